"""Use-cases of other people's MCP servers."""
