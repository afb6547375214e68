"""What to fetch next: a state machine over a log of facts; `machine.py` decides, `tables.py` holds the state."""
