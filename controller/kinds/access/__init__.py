"""Roles, grants, requests for access, and audit entries."""
