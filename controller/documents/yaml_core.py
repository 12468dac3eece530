"""YAML 1.2 core scalars. PyYAML follows YAML 1.1, where `no` is false and 0644 is 420.

https://yaml.org/spec/1.2.2/#103-core-schema
"""

import re

_NULLS = frozenset(("", "~", "null", "Null", "NULL"))
_TRUE = frozenset(("true", "True", "TRUE"))
_FALSE = frozenset(("false", "False", "FALSE"))
_INTEGER = re.compile(r"[-+]?[0-9]+\Z")
_BASED = re.compile(r"0o[0-7]+\Z|0x[0-9a-fA-F]+\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_ENDLESS = re.compile(r"[-+]?\.(inf|Inf|INF)\Z|\.(nan|NaN|NAN)\Z")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+\Z")
_DIGITS_MAX = 40  # longer numbers fit no field, and int() of millions of digits takes seconds

Scalar = str | int | float | bool | None


def scalar(text: str) -> Scalar:
    """Return the value of a plain (unquoted) scalar. ValueError for a scalar that other parsers read differently."""
    if text in _NULLS:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if text[0] not in "+-.0123456789":
        return text
    return _number(text)


def _number(text: str) -> Scalar:
    if _ENDLESS.match(text):
        raise ValueError(f"`{text}` is not a number that any field accepts")
    if len(text) > _DIGITS_MAX and (_FLOAT.match(text) or _BASED.match(text)):
        raise ValueError("the number has too many digits; put it in quotes if it is text")
    if _LEADING_ZERO.match(text):
        raise ValueError(_two_readings(text))
    if _INTEGER.match(text):
        return int(text)
    if _BASED.match(text):
        return int(text, 0)
    return float(text) if _FLOAT.match(text) else text


def _two_readings(text: str) -> str:
    """Return the message for a number with leading zeros, which YAML 1.1 reads in base 8."""
    digits = text.lstrip("+-")
    octal = "" if set(digits) & set("89") else f" and {int(digits, 8)} in YAML 1.1"
    return f'`{text}` is {int(digits)} in YAML 1.2{octal}; write `{int(digits)}`, or "{text}" in quotes'


def is_plain_text(text: str) -> bool:
    """Return True if a YAML 1.2 parser takes this plain scalar for text."""
    try:
        return scalar(text) == text
    except ValueError:
        return False
