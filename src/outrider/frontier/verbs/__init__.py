"""The calls on a frontier: discover, lease, report, the words of operators, and looks.

A verb checks its arguments, decides on a *draft*, logs the draft as one frame and applies it. A call that ends in an
error throws its draft away, and the state is what it was. The verbs are parts over one core: a part knows the core and
the parts that it is given. `machine.py`, above this folder, puts them together.

    arguments.py        the values that callers give, checked before anything is decided
    checking.py         the same checks by verb and argument, for a frontier elsewhere
    draft.py            the decisions of a call so far, as facts
    deciding.py         the core: how a decision becomes a fact; the changes that time alone brings
    clock_hosts.py      the hosts whose clocks count for URLs: names, slots, addresses
    gaps.py             the gaps that hosts keep, and their rests after leases without a report
    gates.py            hosts and errands that wait for robots rules
    arrivals.py         links on their way in, in columns
    discovering.py      discover, and links between logs; scopes.py keeps the scopes of crawls
    trapping.py         traps: rules, windows of new URLs, diminishing returns; host_sizes.py counts hosts by fetches
    host_trials.py      new hosts of a domain that are tried at once
    unparking.py        parked URLs of shapes and hosts that brought new content since
    forbidden.py        403s of one folder, and those of a host that closes everything
    robots_files.py     robots rules and the errands that fetch them
    delays.py           how long URLs waited for their leases, summed
    leasing.py          lease; drawing.py draws URLs and errands, leased.py gives a call's leases in columns
    queued_errands.py   errands that callers queue
    notes.py            addresses and places of output that callers tell
    outcome_columns.py  outcomes in columns, read and checked
    settling.py         outcomes become facts: rests, states, texts, links, lines
    reporting.py        report, extend, release, defer; report_pieces.py cuts long reports into frames
    operations.py       the words of operators: pause, block, delay, limit, delete, retry
    transfer.py         records of URLs out of one frontier and into another
    queries.py          the calls that only read; statuses.py makes statuses and counts
    explaining.py       why a URL is not being fetched now, and why nothing can be leased
    census.py           counts over all hosts in bounded steps
    host_lists.py       lists of hosts and queues; listing.py lists URLs
    recount.py          the recount of `verify`
    lifecycle.py        the opening after a recovery, a clock that stepped back, a clean stop
"""
