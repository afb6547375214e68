"""The calls that change a frontier: discover, lease, report, and the words of operators.

A verb checks its arguments, decides on a *draft*, logs the draft as one frame and applies it. A call that ends in an
error throws its draft away, and the state is what it was. `machine.py`, above this folder, puts the verbs together.

    arguments.py     the values that callers give, checked before anything is decided
    draft.py         the decisions of a call so far, as facts
    deciding.py      how a decision becomes a fact; the changes that time alone brings
    arrivals.py      links on their way in, in columns
    discovering.py   discover, and links between logs; scopes.py keeps the scopes of crawls
    trapping.py      traps: rules, windows of new URLs, diminishing returns; host_sizes.py counts hosts by fetches
    asking.py        robots rules and the errands that fetch them
    delays.py        how long URLs waited for their leases, summed
    leasing.py       lease; drawing.py draws URLs and errands, leased.py gives a call's leases in columns
    errands.py       errands that callers queue
    outcomes.py      outcomes in columns, read and checked
    settling.py      outcomes become facts: rests, states, texts, links, lines
    reporting.py     report, extend, release, defer; pieces.py cuts long reports into frames
    operations.py    the words of operators: pause, block, delay, limit, delete, retry
    carried.py       records of URLs out of one frontier and into another
    census.py        counts over all hosts in bounded steps; listing.py lists URLs likewise
    accounts.py      the looks: status, counts, lists of hosts, explain, and the recount of `verify`
"""
