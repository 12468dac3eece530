"""Configurations of MCP clients, and servers that run without a sandbox."""
