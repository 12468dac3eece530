"""The networks of a sandbox: sealed and guarded bridges, egress proxy, peers."""
