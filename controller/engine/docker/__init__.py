"""Docker Engine API: client, transport, create config, images, networks."""
