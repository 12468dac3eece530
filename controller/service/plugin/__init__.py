"""Plugins: their objects."""
