"""Shared parts of the deciders: context, plan builder, conclusion, back-off, events."""
