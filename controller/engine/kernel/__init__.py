"""Kernel interfaces: cgroups, namespaces, mounts, firewall, /proc."""
