"""File operations in a sandbox, each by a confined worker process."""
