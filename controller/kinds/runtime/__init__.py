"""Containers, mounts, networks, probes and files, as other packages ask the engine for them."""
