"""Commands that run a Compose file."""
