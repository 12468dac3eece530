"""Routes of stored objects: all kinds alike."""
