"""The networks of a sandbox: sealed or guarded bridge, egress proxy, peers, canary."""
