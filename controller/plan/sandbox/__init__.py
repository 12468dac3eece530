"""Decisions for one sandbox."""
