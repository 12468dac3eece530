"""Pressure stall information (PSI): time lost waiting for CPU, memory and I/O. Only in the v2 (unified) tree.

Some kernels are built or booted without it, and older ones have only `some` for CPU; missing values are left out.
"""

import errno
from collections.abc import Callable

# By file name: the fields of kinds.usage.Usage for `some` and `full`.
_FIELDS = {
    "cpu.pressure": ("cpu_waiting_seconds", "cpu_stalled_seconds"),
    "memory.pressure": ("memory_waiting_seconds", "memory_stalled_seconds"),
    "io.pressure": ("io_waiting_seconds", "io_stalled_seconds"),
}
_NOT_REPORTED = (errno.ENOENT, errno.EOPNOTSUPP)


def read_stalls(text_of: Callable[[str], str]) -> dict[str, float | None]:
    """Return the fields of a Usage from these files. Raises OSError, ValueError, except for missing PSI."""
    fields: dict[str, float | None] = {}
    for name, (some, full) in _FIELDS.items():
        try:
            totals = parse_pressure(text_of(name))
        except OSError as error:
            if error.errno not in _NOT_REPORTED:
                raise
            continue
        fields |= {some: totals.get("some"), full: totals.get("full")}
    return fields


def parse_pressure(text: str) -> dict[str, float]:
    """Parse `some avg10=0.00 avg60=0.00 avg300=0.00 total=1234` (microseconds): seconds by the first word."""
    totals = {}
    for line in text.splitlines():
        word, _, figures = line.partition(" ")
        totals[word] = int(figures.rpartition("total=")[2]) / 1e6
    return totals
