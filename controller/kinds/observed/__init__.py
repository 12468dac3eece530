"""Observed state: what the engine, the kernel and the host report."""
