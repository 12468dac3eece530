"""Routes of what is inside of a sandbox."""
