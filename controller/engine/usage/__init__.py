"""Resource usage of containers and of the host."""
