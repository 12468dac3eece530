"""Bounds on programs and working directories, shared by specs, commands and images.

A container runtime repeats both in its error text. A text longer than a pipe's buffer blocks the whole container.
"""

import posixpath

LONGEST_BYTES = 4096  # the kernel's maximum for a path
# Kernel folders may lead out of the sandbox (CVE-2024-21626: /proc/self/fd/8).
KERNEL_PATHS = ("/proc", "/sys", "/dev")


def too_long(text: str) -> str:
    """Return the size of a program's name or a folder's path as a message, "" if it is within the bound."""
    size = len(text.encode(errors="surrogatepass"))
    return f"{size} bytes, more than the maximum of {LONGEST_BYTES}" if size > LONGEST_BYTES else ""


def normal_path(path: str) -> str:
    """Return an absolute path without `.`, `..`, and doubled or trailing `/`."""
    return "/" + posixpath.normpath(f"/{path}").lstrip("/")


def mount_place(path: str) -> str:
    """Return the place where a mount at this path is seen: in images `/var/run` is a link to `/run`."""
    plain = normal_path(path)
    return plain.removeprefix("/var") if plain == "/var/run" or plain.startswith("/var/run/") else plain


def in_kernel_paths(path: str) -> bool:
    """Return True if the path is one of the kernel's folders or below one, however it is written."""
    plain = normal_path(path)
    return any(plain == folder or plain.startswith(f"{folder}/") for folder in KERNEL_PATHS)
