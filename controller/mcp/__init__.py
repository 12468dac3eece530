"""Paddock as an MCP server: tools, resources and a prompt for LLM clients, over the same services as the API.

The only package that imports the MCP SDK: `protocol.py` and what it alone imports, at the first request.
"""
