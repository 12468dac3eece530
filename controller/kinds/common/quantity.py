"""Resource quantities by Kubernetes' rules, kept as exact integers.

CPU is held in millicores, memory in bytes. Output is canonical: `2`, `500m`, `512Mi`, `1536Mi`, `8G`.
pydantic's ByteSize reads these notations differently and is not used. Rules:
https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
"""

import re
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

_BINARY = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50, "Ei": 1 << 60}
_DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
_SHAPE = re.compile(r"^(?P<number>\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?P<suffix>[A-Za-z]*|[eE][+-]?\d{1,2})$")


def _split(text: str) -> tuple[Decimal, str]:
    """The number and the suffix of a quantity; an exponent is already worked into the number."""
    found = _SHAPE.match(text)
    if not found:
        raise ValueError(f"`{text}` is not a quantity; write a number with a suffix, such as 500m, 2, 512Mi or 8G")
    number, suffix = found["number"], found["suffix"]
    try:
        if suffix[:1] in ("e", "E") and suffix[1:].lstrip("+-").isdigit():
            return Decimal(number + suffix), ""
        return Decimal(number), suffix
    except InvalidOperation as error:  # pragma: no cover - the pattern admits only numbers
        raise ValueError(f"`{text}` is not a number") from error


def _whole(value: Decimal, text: str, unit: str) -> int:
    if value != value.to_integral_value():
        raise ValueError(f"`{text}` is finer than one {unit}; write a whole number of {unit}s")
    return int(value)


def _text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("must be a quantity: a number, or text such as 500m, 2, 512Mi or 8G")
    if isinstance(value, float):
        return format(Decimal(repr(value)), "f")
    return str(value).strip()


def parse_cpu(value: Any) -> int:
    """Millicores of a CPU quantity (`500m` -> 500, `2` -> 2000, `0.25` -> 250). Raises ValueError."""
    text = _text(value)
    number, suffix = _split(text)
    if suffix == "m":
        return _whole(number, text, "millicore")
    if suffix not in _DECIMAL:
        raise ValueError(f"`{text}`: `{suffix}` is no unit of CPU; write cores (2, 0.5) or millicores (500m)")
    return _whole(number * _DECIMAL[suffix] * 1000, text, "millicore")


def parse_bytes(value: Any) -> int:
    """Bytes of a memory or disk quantity (`512Mi`, `8G`, `1.5Gi`, `1e9`). Raises ValueError."""
    text = _text(value)
    number, suffix = _split(text)
    if suffix == "m":
        raise ValueError(f"`{text}` is {format((number / 1000).normalize(), 'f')} bytes; write `{number}Mi`")
    factor = _BINARY.get(suffix) or _DECIMAL.get(suffix)
    if factor is None:
        raise ValueError(f"`{text}`: `{suffix}` is no unit of bytes; write Ki, Mi, Gi, Ti (or k, M, G, T)")
    return _whole(number * factor, text, "byte")


def format_cpu(millicores: int) -> str:
    """Canonical text of millicores: whole cores without a suffix, anything else in `m`."""
    return f"{millicores}m" if millicores % 1000 else str(millicores // 1000)


def format_bytes(count: int) -> str:
    """Canonical text of bytes: the largest suffix that divides exactly, binary before decimal."""
    for table in (_BINARY, _DECIMAL):
        for suffix, factor in sorted(table.items(), key=lambda item: -item[1]):
            if suffix and count and count % factor == 0:
                return f"{count // factor}{suffix}"
    return str(count)


_SCHEMA: dict[str, Any] = {"anyOf": [{"type": "string", "maxLength": 40}, {"type": "number", "minimum": 0}]}

CpuQuantity = Annotated[
    int,
    BeforeValidator(parse_cpu),
    PlainSerializer(format_cpu, return_type=str),
    WithJsonSchema({**_SCHEMA, "description": "CPU in cores (2, 0.5) or millicores (500m)"}),
]
BytesQuantity = Annotated[
    int,
    BeforeValidator(parse_bytes),
    PlainSerializer(format_bytes, return_type=str),
    WithJsonSchema({**_SCHEMA, "description": "bytes, with Ki Mi Gi Ti or k M G T (512Mi, 8G)"}),
]
