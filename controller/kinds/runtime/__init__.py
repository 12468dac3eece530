"""Containers, mounts, networks, probes and files as the engine is asked for them."""
