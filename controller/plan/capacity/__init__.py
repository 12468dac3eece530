"""Sharing what the host has: quota, pressure, eviction, images."""
