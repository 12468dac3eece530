"""Requests between the daemons of a fleet: over mutual TLS, to the host that runs the sandbox."""
