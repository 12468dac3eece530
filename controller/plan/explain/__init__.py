"""Explaining decisions, and previewing a plan."""
