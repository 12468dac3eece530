"""Attestation: a container's real state compared with its rendered config."""
