"""Frozen data that every other package uses: specs, statuses, snapshot, actions, plan, labels.

Pure: no I/O, no clock, no randomness, no logging.
"""
