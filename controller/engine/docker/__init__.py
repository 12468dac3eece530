"""Calls to the Docker Engine: client, transport, create config, images, networks."""
