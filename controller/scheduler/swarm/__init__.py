"""Scheduler `swarm`: a placeholder service on Docker Swarm for each sandbox, with the sandbox's reservation."""
