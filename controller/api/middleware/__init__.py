"""What surrounds every request: authentication, authorisation, limits, tracing."""
