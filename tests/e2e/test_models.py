"""Models from network-less sandboxes on the real engine: streamed, bounded, revoked, and no key anywhere."""
