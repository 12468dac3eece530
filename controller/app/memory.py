"""Memory tuning: make glibc and the garbage collector return freed memory to the host.

By default glibc keeps freed memory for each thread, so that one burst of work would enlarge the daemon for good.
Modules that libraries load only if they are there are hidden from them (`UNUSED`), which only `sys.modules` tells
them: 7 of 120 MB after the imports, of a daemon that every host of a fleet runs.
"""

import ctypes
import gc
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

TRIM_SECONDS = 20
UNUSED = ("rich", "chardet", "charset_normalizer")  # what the daemon's libraries would use if it is there
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # malloc.h
_ARENAS = 2  # of all threads together; Python runs one at a time anyway
# Larger blocks are mapped by themselves; glibc would raise this to 32 MiB over time. The buffers of transfers are
# smaller: to map each would cost more time than to copy their data.
_LARGE_BYTES = 2 << 20
_NEW_OBJECTS = 3_000
_KEPT_BYTES = 2 << 20  # freed at the end of an arena, until it is trimmed


def tune_malloc() -> Callable[[], None]:
    """Tune malloc, before threads start. Return a function to be called about every second.

    Does nothing if the C library is not glibc.
    """
    libc = ctypes.CDLL(None)
    if not (hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim")):
        return lambda: None
    for option, value in (
        (_M_ARENA_MAX, _ARENAS),
        (_M_MMAP_THRESHOLD, _LARGE_BYTES),
        (_M_TRIM_THRESHOLD, _KEPT_BYTES),
    ):
        libc.mallopt(option, value)
    seconds = 0

    def trim() -> None:
        nonlocal seconds
        seconds += 1
        if seconds % TRIM_SECONDS == 0:
            libc.malloc_trim(0)  # some milliseconds

    return trim


@contextmanager
def without_collection() -> Iterator[None]:
    """Exclude all objects made in this context from garbage collection, for good."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        freeze_objects()


@contextmanager
def without_importing(*packages: str) -> Iterator[None]:
    """Let imports in this context miss these packages, which others use only if they are installed."""
    hidden = [name for name in packages if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None: it can't be imported
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Unable to find acceptable character detection")  # requests'
            yield
    finally:
        for name in hidden:
            del sys.modules[name]


def tune_collection() -> None:
    """Collect after more new objects than Python would: a pass makes thousands, and hardly any of them is garbage.

    At 60 claims a second it took half a millisecond of each, and the rare collection of all objects delayed one by 50.
    """
    gc.set_threshold(_NEW_OBJECTS)


def freeze_objects() -> None:
    """Exclude all present objects from later garbage collections."""
    gc.freeze()
