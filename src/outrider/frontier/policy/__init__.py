"""The rules that people discuss: how long a host is left alone, when a URL is revisited, which hosts share a clock.

Each rule is a pure function of its arguments: no state, no clock, no disk. A verb calls it and writes the result into a
fact, so a replay never needs the rule. The rules of priority are not in this folder but in
`outrider.frontier.priority`, because callers import them by that name.
    lives.py              the lives of a URL, a lease and a host, as tables of states and events
    politeness.py         the rest of a host after a request: the largest of several named rules, alone or in columns
    open_hours.py         the time that a host needs if it is closed at some hours
    network.py            whether our own network is at fault, and how long a crawl pauses for it
    block_detection.py    whether a host shows that a crawler is not welcome
    revisit.py            when a URL or an errand is requested again: after a failure, and after a bad answer
    revisit_plan.py       when a page is visited again under any rule, as price or stretch of all pages stand
    revisit_level.py      the price or stretch of a plan, as it follows the fetches
    fetch_rate.py         the rate of fetches over all hosts
    revisit_rules.py      when a page is visited again by the published rules: uniform, adaptive, halving, nutch
    visit_values.py       the value of a visit now, the interval at which it equals a price, the optimum of a budget
    signal_values.py      the same for pages whose changes are signalled, with missed and false signals
    file_visits.py        when a sitemap or a feed is read again
    change_rates.py       how often a page changes, learned from its visits
    host_rates.py         the same for the pages of a host together: the prior of pages of which nothing is known
    budgets.py            how many answered pages a crawl, a domain or a host may have
    returns.py            when a shape of paths brings so little new content that it is fetched last, or parked
    grouping.py           which group a host belongs to: by domain, by address, by name
    frontier_settings.py  the settings of a frontier, checked
"""
