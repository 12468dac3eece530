"""Commands for this command line itself: contexts, completion, the panel, versions."""
