"""E2B's control plane: sandboxes with their time-outs and network, templates, snapshots, usage."""
