"""DECIDING: plan(snapshot) -> Plan. One file a question. Pure: no I/O, no clock, no randomness, no logging."""
