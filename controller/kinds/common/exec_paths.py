"""What a container runtime may be told to run, and where: bounds that specs, commands and images share.

A runtime repeats both in its error text. Text longer than a pipe holds up the whole container.
"""

import posixpath

LONGEST_BYTES = 4096  # no path that the kernel takes is longer
# A folder of the kernel's may lead out of the sandbox (CVE-2024-21626: /proc/self/fd/8), and is no place to work in.
KERNEL_PATHS = ("/proc", "/sys", "/dev")


def too_long(text: str) -> str:
    """The size of a program's name or a folder's path in words, "" for one within the bound."""
    size = len(text.encode(errors="surrogatepass"))
    return f"{size} bytes, and {LONGEST_BYTES} are the most" if size > LONGEST_BYTES else ""


def in_kernel_paths(path: str) -> bool:
    """Tell whether that is a folder of the kernel's, or below one, however it is written."""
    plain = "/" + posixpath.normpath(f"/{path}").lstrip("/")
    return any(plain == each or plain.startswith(f"{each}/") for each in KERNEL_PATHS)
