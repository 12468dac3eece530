"""Explaining: why an object is as it is, and what a change would do."""
