"""Workflow runs: the work of their stages, their files, and requests about them."""
