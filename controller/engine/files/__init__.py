"""File operations in a sandbox, each in a confined worker process."""
