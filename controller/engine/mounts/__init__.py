"""Mounts of containers: volumes, workspaces, secrets and host folders."""
