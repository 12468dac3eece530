"""A Compose file for the command line: read with what it names, and its ports forwarded."""
