"""Requests to the daemon, as the command line and the classes of `paddock` send them. It is not a public API."""
