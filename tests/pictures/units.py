"""Numbers as Grafana writes them, in the units that our panels use. A unit that is not here is a mistake of a panel."""

from collections.abc import Callable, Mapping, Sequence

_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_SHORT = ("", " K", " Mil", " Bil", " Tri")
_TIMES = ((31_536_000.0, "years"), (604_800.0, "weeks"), (86_400.0, "days"), (3600.0, "hours"), (60.0, "mins"))


def _scaled(value: float, base: float, words: Sequence[str]) -> tuple[float, str]:
    step = 0
    while abs(value) >= base and step < len(words) - 1:
        value, step = value / base, step + 1
    return value, words[step]


def _number(value: float) -> str:
    """Three digits that tell something."""
    digits = 0 if abs(value) >= 100 or value == int(value) else 1 if abs(value) >= 10 else 2
    return f"{value:.{digits}f}" if abs(value) >= 1 or value == 0 else f"{value:.3g}"


def _bytes(value: float) -> str:
    number, word = _scaled(value, 1024, _BINARY)
    return f"{_number(number)} {word}"


def _seconds(value: float) -> str:
    for length, word in _TIMES:
        if abs(value) >= length:
            return f"{_number(value / length)} {word}"
    if abs(value) >= 1 or value == 0:
        return f"{_number(value)} s"
    return f"{_number(value * 1000)} ms" if abs(value) >= 0.001 else f"{_number(value * 1e6)} µs"


def _short(value: float) -> str:
    number, word = _scaled(value, 1000, _SHORT)
    return _number(number) + word


UNITS: Mapping[str, Callable[[float], str]] = {
    "none": _number,
    "short": _short,
    "s": _seconds,
    "bytes": _bytes,
    "binBps": lambda value: f"{_bytes(value)}/s",
    "percentunit": lambda value: f"{_number(value * 100)}%",
    "ops": lambda value: f"{_short(value)} ops/s",
    "reqps": lambda value: f"{_short(value)} req/s",
}
_SUFFIX = "suffix:"


def written(unit: str, decimals: int | None) -> Callable[[float], str]:
    """Return a function that writes numbers in that unit, with so many decimals (None: as many as tell something)."""
    if unit.startswith(_SUFFIX):
        digits = _number if decimals is None else lambda value: f"{value:.{decimals}f}"
        return lambda value: f"{digits(value)} {unit.removeprefix(_SUFFIX)}"
    plain = UNITS[unit]
    return plain if decimals is None else lambda value: plain(round(value, decimals))
