"""When each host may be visited next, alone or in groups.

The schedule follows the state: after each call, the hosts that changed are checked again. A host in its delay is in the
timetable; the queue of a host that may be visited is in a ring; a host without URLs is in neither. A recovery builds
all of it from the columns of hosts and the backlog, so nothing here is on disk.

    host_schedule.py  the timetable of resting hosts and the rings of ready queues
    errand_queue.py   the errands that are lined up at one host
    group_turns.py    clocks and turns that several hosts share
    cooling.py        the choice of the hosts that go cold
    front_returns.py  the return of cold hosts with queued URLs, before a draw
"""
