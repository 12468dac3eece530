"""Placement on an existing distributed engine: `swarm` (Docker Swarm)."""
