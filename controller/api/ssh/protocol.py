"""Subprotocols of the WebSocket that carries an SSH connection, and how long its client may pause."""

PROTOCOL, RAW = "ssh.paddock", "raw.ssh.paddock"
PAUSE_SECONDS = 86_400.0  # of a client that reads nothing: keepalives of SSH end one that is gone
