"""Watches: streams of object changes."""
