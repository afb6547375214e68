"""Durable storage: files, the log of facts, checkpoints and the manifest."""
