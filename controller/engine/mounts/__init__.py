"""Volumes, workspaces, secrets and host folders, bound into containers."""
