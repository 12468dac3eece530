"""Paddock: a reconciling controller for Docker sandboxes on one host. Importing it does no work."""
