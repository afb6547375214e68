"""The next URL to fetch: a state machine over a log of facts; `machine.py` puts the verbs together over one core."""
