"""Durable storage: files, the log of facts, checkpoints, the manifest, and object storage."""
