"""Streams over HTTP and WebSocket: exec, logs, files, ports, watches."""
