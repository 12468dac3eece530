"""The C library keeps what the daemon frees: of every thread apart, and for ever behind the smallest piece in use.

Here it is told to give it back to the host, so that a burst of work does not stay in the daemon's size.
"""

import ctypes
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

TRIM_SECONDS = 20
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # malloc.h
_ARENAS = 2  # of all threads together; Python runs one at a time anyway
_LARGE_BYTES = 128 << 10  # pieces from here on are mapped by themselves; glibc would raise this to 32 MiB by and by


def keep_small() -> Callable[[], None]:
    """To be called before there are threads; gives what is to be called about every second from then on.

    Does nothing where the C library is not glibc.
    """
    libc = ctypes.CDLL(None)
    if not (hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim")):
        return lambda: None
    for what, value in ((_M_ARENA_MAX, _ARENAS), (_M_MMAP_THRESHOLD, _LARGE_BYTES), (_M_TRIM_THRESHOLD, _LARGE_BYTES)):
        libc.mallopt(what, value)
    seconds = 0

    def trim() -> None:
        nonlocal seconds
        seconds += 1
        if seconds % TRIM_SECONDS == 0:
            libc.malloc_trim(0)  # some milliseconds

    return trim


@contextmanager
def loading() -> Iterator[None]:
    """What is made meanwhile stays: no collection looks through it, neither now nor later."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        settled()


def settled() -> None:
    """What is there now is there to stay: from here on no collection looks through it."""
    gc.freeze()
