"""Processes that copy folders into archives and back: large ones would hold up the daemon's threads."""
