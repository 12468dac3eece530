"""The listeners: Unix socket and TCP, their connection limits and deadlines."""
