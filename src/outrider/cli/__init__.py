"""The front door: what is typed becomes options, what comes of it becomes lines and an exit code."""
