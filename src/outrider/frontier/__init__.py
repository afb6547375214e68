"""The next URL to fetch: a state machine over a log of facts. `machine.py` combines the verbs over one core."""
