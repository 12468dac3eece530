"""Rules on the parts of a sandbox's container: mounts and volumes, disk, GPUs, credentials, the agent."""
