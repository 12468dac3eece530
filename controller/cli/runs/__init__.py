"""Commands in sandboxes: the options of `docker run`, a sandbox for one command, relayed streams."""
