"""What survives a crash: files, the log of facts, checkpoints and the manifest."""
