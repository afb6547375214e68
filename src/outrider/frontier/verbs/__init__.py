"""The calls on a frontier: discover, lease, report, orders of operators, and queries.

A verb checks its arguments, decides on a *draft*, logs the draft as one frame and applies it. If a call raises an
error, its draft is dropped and the state is unchanged. The verbs are parts on one core. A part uses the core and the
parts that its constructor takes. `machine.py`, above this folder, puts them together.

    arguments.py        checks of the values that callers pass, before a decision
    checking.py         the same checks by verb and argument, for a remote frontier
    draft.py            the decisions of a call, as facts
    deciding.py         the core: how a decision becomes a fact; the changes that time alone brings
    clock_hosts.py      the hosts whose clocks count for URLs: names, slots, addresses
    gaps.py             the gaps of hosts, and their rests after leases without a report
    gates.py            hosts and errands that wait for robots rules
    arrivals.py         arriving links, in columns; unique.py has those of crawls by unique keys
    discovering.py      discover, and links between logs; scopes.py has the scopes of crawls
    trapping.py         traps: rules, windows of new URLs, diminishing returns; host_sizes.py counts hosts by fetches
    host_trials.py      new hosts of a domain that are tried at once
    unparking.py        judges parked URLs of shapes and hosts again after new content
    forbidden.py        status 403 for one folder, or for a whole host
    paying.py           status 402: parked parts of paths, and what sites ask for
    robots_files.py     robots rules and the errands that fetch them
    delays.py           sums of the times that URLs waited for their leases
    leasing.py          lease; drawing.py draws URLs and errands, leased.py gives a call's leases in columns
    queued_errands.py   errands that callers queue
    notes.py            addresses of hosts and lengths of synced output, from callers
    outcome_columns.py  outcomes in columns, read and checked
    settling.py         turns outcomes into facts: rests, states, texts, links, lines
    reporting.py        report, extend, release, defer; report_pieces.py cuts long reports into frames
    revisiting.py       the next visits of pages by a revisit rule, and the rate of all fetches
    revisited_files.py  the next visits of sitemaps and feeds
    signalling.py       dates of changes that links name, and what visits show about them
    resting.py          rest: requests that are over before their outcomes are known
    operations.py       orders of operators: pause, block, delay, limit, delete
    single_urls.py      orders about single URLs: reprioritise, requeue, delete, retry
    transfer.py         export and import of URL records
    queries.py          the calls that only read; statuses.py makes statuses and counts
    explaining.py       why a URL is not fetched now, and why nothing can be leased
    census.py           counts over all hosts in bounded steps
    closed_hours.py     the hours in which hosts are closed, for the time left
    domain_counts.py    the domains with the most queued URLs
    host_lists.py       lists of hosts and queues; listing.py lists URLs
    recount.py          the recount of `verify`
    lifecycle.py        the opening after a recovery, a clock that stepped back, a clean stop
"""
