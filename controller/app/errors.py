"""Reasons why the daemon does not start."""


class CannotStart(Exception):
    """The daemon cannot run. The message says why and what to do."""


class StoppedWaiting(Exception):
    """The daemon was stopped before it became the leader."""
