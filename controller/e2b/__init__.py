"""E2B's protocol over the services: its clients work against a daemon. Nothing is imported before the first request."""
