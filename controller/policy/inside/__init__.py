"""Checks of what a program inside a sandbox sends. Nothing of it is trusted."""
