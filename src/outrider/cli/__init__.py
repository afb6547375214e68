"""The front door: typed words become options, results become lines and an exit code."""
