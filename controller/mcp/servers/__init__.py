"""Other people's MCP servers: sessions in sandboxes, and the gateway to them."""
