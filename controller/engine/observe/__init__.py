"""Observing containers: events, list, inspect, probes, canary, doctor's facts."""
