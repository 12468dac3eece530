"""Deciding for pools of warm sandboxes."""
