"""Snapshots of sandboxes on this host: captured while the sandbox stands still, restored before its first process."""
