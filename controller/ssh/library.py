"""asyncssh, imported without its search for a library of key exchanges, which starts ldconfig and a compiler."""

import ctypes.util

_find_library = ctypes.util.find_library
ctypes.util.find_library = lambda name: None  # noqa: ARG005
try:
    import asyncssh as asyncssh
finally:
    ctypes.util.find_library = _find_library
