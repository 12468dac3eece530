"""Commands for the daemon and its host: its store, its images, the hosts of its fleet."""
