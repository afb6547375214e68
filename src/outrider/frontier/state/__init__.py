"""The state of a frontier: the effect of all facts, changed only by applying facts.

A live call and a replay apply the same facts with the same function, so a live frontier and a recovered one cannot
differ. A checkpoint copies hosts, queues and authorities; the ledger contains the cards; a recovery reads both, replays
the log after them, and derives everything that schedules.

    tables.py          hosts with their queues, and the joint of the parts: `apply` passes facts to the part that owns
                       them, `copy` returns them for a checkpoint
    url_table.py       the card of each URL in the place for its state, leases, counts
    authorities.py     authorities: their robots.txt files, and the errands for them
    crawls.py          crawls: names, rows, states, scopes
    registry.py        openings, workers, repeatable answers, places of output, counts, classes of errors
    transit.py         links between logs
    returns_table.py   how much new content hosts and shapes of paths had
    latest_rows.py     values by name, of which those that changed least recently leave
    payments.py        what sites ask for their pages
    host_signals.py    how the signals of hosts agreed with visits
    seen.py            the seen-set, which is derived
    hosts.py           hosts and queues: columns with a row each, found by hash
    spanning_keys.py   keys that span hosts: one turn and one clock for all their queues
    deleted_queues.py  queues of deleted crawls, removed bit by bit
    cold.py            hosts that are not needed soon: records on disk, recalled when a call names or draws them
    rested.py          open leases whose request is over
    errand.py          the kinds of errands, the open ones, and those that callers queue
    host_addresses.py  the addresses of hosts, and the errands that resolve them
    robots_answers.py  the meaning of a robots.txt's answer, for pages and for the next errand
    recovery.py        checkpoint, ledger and log to tables: the same `apply`, and no policy
    kept_schedule.py   what recovery derives from the ledger, in a file next to a checkpoint: counts, or everything
    unread_slots.py    the slots whose URLs an opening left for later, and how they are read
    replay.py          frames of the log gathered into windows, of which the net effect is applied
    salvage.py         the same from the rest of a damaged store
"""
