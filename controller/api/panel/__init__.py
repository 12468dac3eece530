"""The web panel: static files, served from memory."""
