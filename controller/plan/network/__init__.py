"""Networks of a sandbox: sealed and guarded bridges, egress proxy, peers. Entry: networks.py."""
