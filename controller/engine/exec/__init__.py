"""Commands, streams and port-forwards into a container."""
