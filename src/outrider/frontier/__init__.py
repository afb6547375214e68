"""The frontier chooses the next fetch: a state machine over a log of facts; `machine.py` decides, `tables.py` holds the
state."""
