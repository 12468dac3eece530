"""Images of the host: listing, pulls, builds and pushes."""
