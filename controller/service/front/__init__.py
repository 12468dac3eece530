"""The front door: who connects to a sandbox by SSH, and links to its ports."""
