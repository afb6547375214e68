"""The containers of URLs and robots rules, each with a bound on its memory.

The ledger contains the newest card of each accepted URL, for ever. In addition the card is in one place, by its state:
a queued URL in the backlog or in the record of its cold host, a waiting URL in the calendar (a planned one in a second
calendar), a leased URL with the open leases (a kernel). Backlog and calendar keep their ends in scratch files, which
the next opening makes anew from the ledger.

    ledger.py          the newest card of every URL ever accepted: memory, and sorted runs
    tailed_backlog.py  the cards of queued URLs: heads in memory, tails on disk
    tails.py           where the tails of the queues are on disk, and their best classes
    ordered_cards.py   cards of crawls with an exact order, as the backlog sorts them
    chunks.py          the pieces in which tails are on disk
    calendar.py        the cards that wait for an instant
    moved_cards.py     old copies of cards that are elsewhere now, which calendar and backlog drop when they meet them
    recent.py          URLs that were accepted or met lately: known at once
    spilled_keys.py    seen keys beyond their memory: the newest in memory, the others in sorted runs, and a filter
    seen_filter.py     that filter, in parts that are replaced one by one
    front_tier.py      the lines in which cold hosts with queued URLs wait
    rulebook.py        robots.txt files and their rules: a bounded part in memory, the rest on disk

A store handles cards and files, but no hosts, clocks or policies.
"""
