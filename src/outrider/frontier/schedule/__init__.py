"""The turn of each host: rest, ready or busy, alone or in groups.

The schedule follows the state: after each call the hosts that changed are looked at again. A host that rests is booked
in the timetable; the queue of a host that may be visited stands in a ring; a host without URLs stands nowhere. A
recovery builds all of it from the columns of hosts and the backlog, so nothing here is on disk.

    host_schedule.py  the timetable of resting hosts and the rings of ready queues
    errand_queue.py   the errands that are lined up at one host
    group_turns.py    clocks and turns that several hosts share
    cooling.py        the choice of the hosts that go cold before a checkpoint
"""
