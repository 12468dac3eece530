"""Exec, log streams and port-forwards of a container."""
