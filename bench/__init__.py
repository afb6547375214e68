"""Benches for every figure in README and docs. Each one measures other products in the same run."""
