"""Every figure that the README and the docs claim, rerunnable, with its peers beside it in the same run."""
