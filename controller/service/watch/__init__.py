"""Watches of objects."""
