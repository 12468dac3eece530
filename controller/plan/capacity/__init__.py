"""Sharing the capacity of this host: reservations, quotas, waiting, orphans, images."""
