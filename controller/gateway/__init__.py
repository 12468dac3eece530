"""The model gateway: sandboxes use models through it, without their keys and without a network."""
