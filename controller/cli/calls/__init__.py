"""Calls of the API that only the command line makes: images, snapshots, runs of workflows."""
