"""The kernel's own interfaces: cgroups, namespaces, mounts, firewall, /proc."""
