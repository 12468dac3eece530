"""How many files the daemon may have open: each connection, stream and box takes some.

The soft limit is low for programs that look at every number (select); what a daemon may have is the hard one.
"""

import resource
from contextlib import suppress

MOST = 65_536  # as LimitNOFILE of deploy/paddock.service


def raise_limit() -> int:
    """Raise this process's own soft limit to its hard one, at most `MOST`; the limit from now on."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):  # a hard limit beyond what the kernel gives now (fs.nr_open)
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            return wanted
    return soft
