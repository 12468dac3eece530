"""SSH to sandboxes, over the API."""
