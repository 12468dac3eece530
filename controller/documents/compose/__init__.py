"""Compose files: a strict subset as Sandbox documents, and a refusal with its position for everything else. Pure."""
