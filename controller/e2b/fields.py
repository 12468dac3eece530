"""Fields of a client's JSON object, by their types. Every wrong one is refused by its name."""

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

from controller.service.errors import BadRequest

_TEXT_CHARACTERS = 1 << 20
_MOST_ITEMS = 4096
_KINDS = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}


class Fields:
    """An object of JSON. A field that is missing, or null, has the default."""

    def __init__(self, data: Mapping[str, Any], place: str = "") -> None:
        """`place` is the path of the object in the request, with a dot at its end, for messages."""
        self._data, self._place = data, place

    def __contains__(self, name: str) -> bool:
        return self._data.get(name) is not None

    def text(self, name: str, default: str | None = None) -> str:
        """Return a text without NUL. Without a default it is required."""
        value = self._data.get(name)
        if value is None:
            if default is None:
                raise self._wrong(name, "is missing")
            return default
        if not isinstance(value, str):
            raise self._wrong(name, f"must be text, not {kind_of(value)}")
        if "\0" in value or len(value) > _TEXT_CHARACTERS:
            raise self._wrong(name, "must have no NUL and at most 1 MiB")
        return value

    def flag(self, name: str, default: bool) -> bool:
        """Return true or false."""
        value = self._data.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self._wrong(name, f"must be true or false, not {kind_of(value)}")
        return value

    def number(self, name: str, default: int, *, least: int = 0, most: int = (1 << 32) - 1) -> int:
        """Return a whole number, which may be written as text, as int64 are."""
        value = self._data.get(name)
        if value is None:
            return default
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 20:
            value = int(value)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self._wrong(name, f"must be a whole number from {least} to {most}")
        return value

    def data(self, name: str) -> bytes:
        """Return bytes, which are written in base64."""
        try:
            return base64.b64decode(self.text(name, ""), validate=True)
        except (binascii.Error, ValueError):
            raise self._wrong(name, "is not valid base64") from None

    def fields(self, name: str) -> "Fields":
        """Return an object; an empty one if it is missing."""
        value = self._data.get(name)
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise self._wrong(name, f"must be an object, not {kind_of(value)}")
        return Fields(value, f"{self._place}{name}.")

    def texts(self, name: str) -> Sequence[str]:
        """Return a list of texts."""
        value = self._data.get(name)
        if value is None:
            return ()
        if not isinstance(value, list) or len(value) > _MOST_ITEMS:
            raise self._wrong(name, f"must be a list of at most {_MOST_ITEMS} texts")
        items = Fields(dict(zip(map(str, range(len(value))), value, strict=True)), f"{self._place}{name}.")
        return tuple(items.text(str(index)) for index in range(len(value)))

    def text_map(self, name: str) -> dict[str, str]:
        """Return an object of texts by name."""
        value = self._data.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict) or len(value) > _MOST_ITEMS:
            raise self._wrong(name, f"must be an object of at most {_MOST_ITEMS} texts")
        items = Fields(value, f"{self._place}{name}.")
        return {key: items.text(key) for key in value}

    def _wrong(self, name: str, message: str) -> BadRequest:
        return BadRequest(f"{self._place}{name}: {message}")


def kind_of(value: Any) -> str:
    """Return the type of a JSON value, for messages."""
    return _KINDS.get(type(value), "a number")
