"""Periodic work beside the reconcile loop."""
