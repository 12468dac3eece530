"""Placement on an existing distributed engine: `manual` (by a person), `swarm` (Docker Swarm)."""
