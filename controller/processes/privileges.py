"""Giving up of every privilege, at the start of a process that reads what strangers send."""

import ctypes
import os
import resource

_MOST_FILES = 65_536
_PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 4, 38


def drop_privileges(user: int) -> None:
    """Give up every privilege: another user, no core dumps, no memory that others can read, no new privileges."""
    libc = ctypes.CDLL(None, use_errno=True)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_FILES if most == resource.RLIM_INFINITY else min(most, _MOST_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    os.chdir("/")
    os.umask(0o077)
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    for option, value in ((_PR_SET_NO_NEW_PRIVS, 1), (_PR_SET_DUMPABLE, 0)):
        if libc.prctl(option, value, 0, 0, 0) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
