"""Sharing the host's capacity: quotas, admission order, pressure, preemption, images, orphans."""
