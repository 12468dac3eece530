"""Reconcile loop: wakes, the reconcile pass, workers and the schedule. It knows Protocols, no concrete packages."""
