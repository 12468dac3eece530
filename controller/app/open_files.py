"""Limit of open files of the daemon: each connection, stream and sandbox needs some.

The soft limit is low for programs that use select(); a daemon may use the hard limit.
"""

import resource
from contextlib import suppress

MOST = 65_536  # as LimitNOFILE of deploy/paddock.service


def raise_limit() -> int:
    """Raise this process's soft limit to its hard one, at most `MOST`. Return the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft < target:
        with suppress(ValueError, OSError):  # a hard limit above the kernel's fs.nr_open
            resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
            return target
    return soft
