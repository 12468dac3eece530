"""Habits of users of other tools: what to write here."""
