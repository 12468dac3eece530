"""The SSH front: real SSH clients work in sandboxes that have no sshd and no network."""
