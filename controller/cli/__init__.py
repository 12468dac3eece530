"""Command line: a client of the daemon. Heavy modules are imported by the command that needs them."""
