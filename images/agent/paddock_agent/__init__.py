"""Paddock's agent in a sandbox: MCP tools over HTTP on the loopback, with the standard library alone."""

NAME = "paddock-agent"
VERSION = "1.0.0"
