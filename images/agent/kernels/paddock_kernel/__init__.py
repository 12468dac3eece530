"""Kernel of a Python context: runs cells that the agent sends over a socket, and writes their events as JSON lines."""
