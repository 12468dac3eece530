"""Fakes that pass the same contract suites as the real implementations."""
