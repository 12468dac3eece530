"""Time lost to waiting for CPU, memory and I/O (PSI), which only the v2 tree tells: on a hybrid host, the unified one.

Some kernels are built or booted without it, and older ones tell of CPU by `some` alone: what is not told is left out.
"""

import errno
from collections.abc import Callable

# By the file's name: where `some` and `full` of it belong in kinds.usage.Usage.
_FIELDS = {
    "cpu.pressure": ("cpu_waiting_seconds", "cpu_stalled_seconds"),
    "memory.pressure": ("memory_waiting_seconds", "memory_stalled_seconds"),
    "io.pressure": ("io_waiting_seconds", "io_stalled_seconds"),
}
_NOT_TOLD = (errno.ENOENT, errno.EOPNOTSUPP)


def read_stalls(text_of: Callable[[str], str]) -> dict[str, float | None]:
    """The fields of a Usage that these files fill. Raises OSError, ValueError; not where the kernel tells nothing."""
    found: dict[str, float | None] = {}
    for name, (some, full) in _FIELDS.items():
        try:
            totals = parse_pressure(text_of(name))
        except OSError as error:
            if error.errno not in _NOT_TOLD:
                raise
            continue
        found |= {some: totals.get("some"), full: totals.get("full")}
    return found


def parse_pressure(text: str) -> dict[str, float]:
    """Seconds by the first word of `some avg10=0.00 avg60=0.00 avg300=0.00 total=1234` (microseconds)."""
    totals = {}
    for line in text.splitlines():
        word, _, rest = line.partition(" ")
        totals[word] = int(rest.rpartition("total=")[2]) / 1e6
    return totals
