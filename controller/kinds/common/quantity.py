"""Resource quantities by Kubernetes' rules, kept as exact integers.

CPU is held in millicores, memory in bytes. Output is canonical: `2`, `500m`, `512Mi`, `1536Mi`, `8G`. A parsed value
has a type of its own, so that it is never parsed again: a bare `2` of CPU is two cores, and `Millicores(2)` is two
millicores everywhere. Sums and differences keep the type. pydantic's ByteSize reads these notations differently and is
not used. https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
"""

import re
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from types import MappingProxyType
from typing import Annotated, Any, Self

from pydantic import WithJsonSchema
from pydantic_core import CoreSchema, core_schema

from controller.kinds.base import FORM

_BINARY = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50, "Ei": 1 << 60}
_DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
_SHAPE = re.compile(r"^(?P<number>\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?P<suffix>[A-Za-z]*|[eE][+-]?\d{1,2})$")


# Context of a dump whose hash is stored: its texts never change.
FOR_HASH: Mapping[str, bool] = MappingProxyType({"hash": True})


class _Quantity(int):
    """A number with a known unit. Sums and differences keep the type."""

    def __add__(self, other: int) -> Self:
        return type(self)(int(self) + int(other))

    __radd__ = __add__  # also of `sum`, which begins with a bare 0

    def __sub__(self, other: int) -> Self:
        return type(self)(int(self) - int(other))


class Millicores(_Quantity):
    """Parsed CPU, in thousandths of a core."""

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: Any) -> CoreSchema:
        return _schema(parse_cpu, format_cpu, format_cpu)


class Bytes(_Quantity):
    """Parsed memory or disk, in bytes."""

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: Any) -> CoreSchema:
        return _schema(parse_bytes, format_bytes, stored_bytes)


def _schema(
    read: Callable[[Any], _Quantity], text: Callable[[int], str], hashed_text: Callable[[int], str]
) -> CoreSchema:
    """Return the pydantic schema of a type, from its parser and its formatters."""

    def serialize(value: int, info: core_schema.SerializationInfo) -> str:
        return (hashed_text if info.context is FOR_HASH else text)(value)

    serialization = core_schema.plain_serializer_function_ser_schema(
        serialize, info_arg=True, return_schema=core_schema.str_schema()
    )
    return core_schema.no_info_plain_validator_function(read, serialization=serialization)


def _split(text: str) -> tuple[Decimal, str]:
    """Return the number and the suffix of a quantity; an exponent is already part of the number."""
    match = _SHAPE.match(text)
    if not match:
        raise ValueError(f"`{text}` is not a quantity; write a number with a suffix, such as 500m, 2, 512Mi or 8G")
    number, suffix = match["number"], match["suffix"]
    try:
        if suffix[:1] in ("e", "E") and suffix[1:].lstrip("+-").isdigit():
            return Decimal(number + suffix), ""
        return Decimal(number), suffix
    except InvalidOperation as error:  # pragma: no cover - the pattern admits only numbers
        raise ValueError(f"`{text}` is not a number") from error


def _whole_number(value: Decimal, text: str, unit: str) -> int:
    if value != value.to_integral_value():
        raise ValueError(f"`{text}` is less than one {unit}; write a whole number of {unit}s")
    return int(value)


def _text(value: Any) -> str:
    if isinstance(value, bool | _Quantity) or not isinstance(value, int | float | str):
        raise ValueError("must be a quantity: a number, or text such as 500m, 2, 512Mi or 8G")
    if isinstance(value, float):
        return format(Decimal(repr(value)), "f")
    return str(value).strip()


def parse_cpu(value: Any) -> Millicores:
    """Parse a CPU quantity (`500m` -> 500, `2` -> 2000, `0.25` -> 250). Raises ValueError.

    Millicores are returned unchanged.
    """
    if isinstance(value, Millicores):
        return value
    text = _text(value)
    number, suffix = _split(text)
    if suffix == "m":
        return Millicores(_whole_number(number, text, "millicore"))
    if suffix not in _DECIMAL:
        raise ValueError(f"`{text}`: `{suffix}` is not a unit of CPU; write cores (2, 0.5) or millicores (500m)")
    return Millicores(_whole_number(number * _DECIMAL[suffix] * 1000, text, "millicore"))


def parse_bytes(value: Any) -> Bytes:
    """Parse a memory or disk quantity (`512Mi`, `8G`, `1.5Gi`, `1e9`). Raises ValueError.

    Bytes are returned unchanged.
    """
    if isinstance(value, Bytes):
        return value
    text = _text(value)
    number, suffix = _split(text)
    if suffix == "m":
        raise ValueError(f"`{text}` is {format((number / 1000).normalize(), 'f')} bytes; write `{number}Mi`")
    factor = _BINARY.get(suffix) or _DECIMAL.get(suffix)
    if factor is None:
        raise ValueError(f"`{text}`: `{suffix}` is not a unit of bytes; write Ki, Mi, Gi, Ti (or k, M, G, T)")
    return Bytes(_whole_number(number * factor, text, "byte"))


def format_cpu(millicores: int) -> str:
    """Format millicores canonically: whole cores without a suffix, anything else in `m`."""
    return f"{millicores}m" if millicores % 1000 else str(millicores // 1000)


def format_bytes(count: int) -> str:
    """Format bytes canonically: with the suffix that leaves the smallest whole number, binary before decimal."""
    factors = [(suffix, factor) for table in (_BINARY, _DECIMAL) for suffix, factor in table.items() if suffix]
    whole = [(count // factor, suffix) for suffix, factor in factors if count and count % factor == 0]
    number, suffix = min(whole, key=lambda pair: pair[0], default=(count, ""))
    return f"{number}{suffix}"


def stored_bytes(count: int) -> str:
    """Format bytes as hashes and records of mounts have them: with the largest suffix, binary before decimal."""
    for suffix, factor in _LARGEST_FIRST if count else ():
        if count % factor == 0:
            return f"{count // factor}{suffix}"
    return str(count)


_LARGEST_FIRST = [
    (suffix, factor)
    for table in (_BINARY, _DECIMAL)
    for suffix, factor in sorted(table.items(), key=lambda item: -item[1])
    if suffix
]


_SCHEMA: dict[str, Any] = {"anyOf": [{"type": "string", "maxLength": 40}, {"type": "number", "minimum": 0}]}

CpuQuantity = Annotated[Millicores, WithJsonSchema({**_SCHEMA, FORM: "CPU in cores (2, 0.5) or millicores (500m)"})]
BytesQuantity = Annotated[Bytes, WithJsonSchema({**_SCHEMA, FORM: "bytes, with Ki Mi Gi Ti or k M G T (512Mi, 8G)"})]
