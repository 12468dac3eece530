"""Contents of a process's core dump, read while it runs."""

from collections.abc import Iterable
from pathlib import Path


def core_has(pid: int, keys: Iterable[bytes]) -> bool:
    """Return True if a process's writable memory holds any of these."""
    sought = tuple(keys)
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            place, rights = line.split()[:2]
            first, _, last = place.partition("-")
            if "rw" not in rights or "[v" in line:
                continue
            memory.seek(int(first, 16))
            observed = memory.read(int(last, 16) - int(first, 16))
            if any(key in observed for key in sought):
                return True
    return False


def core_limits(pid: int) -> tuple[str, str]:
    """Return the soft and the hard limit of a process's core dumps."""
    lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
    *_, soft, hard, _ = next(line for line in lines if line.startswith("Max core file size")).split()
    return soft, hard
