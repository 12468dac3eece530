"""Layers around every request: authentication, authorisation, limits, tracing."""
