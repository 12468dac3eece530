"""Pools of warm sandboxes: members, claims, launches."""
