"""The command line: typed words become options, results become lines and an exit code."""
