"""Deciding for one sandbox."""
