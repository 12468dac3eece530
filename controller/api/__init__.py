"""The HTTP API: requests become calls of service/, results become responses. No decisions are made here."""
