"""Planner: plan(snapshot) -> Plan. Pure: no I/O, no clock, no randomness, no logging."""
