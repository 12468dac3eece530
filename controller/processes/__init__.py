"""Processes of their own, without privileges: the daemon starts them, and hands sockets over a channel."""
