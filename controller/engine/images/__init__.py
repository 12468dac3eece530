"""Images: pulls, builds, layers, checks of what is in them."""
