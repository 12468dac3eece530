"""YAML writer. Text that YAML 1.1 or 1.2 would read as another type is quoted."""

from typing import Any

import yaml

from controller.cli.safe_text import UNSAFE
from controller.documents.yaml_core import is_plain_text

_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_DUMPER):  # type: ignore[misc]
    """Dumper with PyYAML's rules (1.1) and ours (1.2)."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the library's signature
        return True


def _text(dumper: Any, value: str) -> Any:
    style = "|" if "\n" in value else None if is_plain_text(value) else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def dump(value: Any) -> str:
    """Format JSON data as YAML, in its order. Characters unsafe on a terminal are escaped."""
    text = _dump(value, allow_unicode=True)
    return _dump(value, allow_unicode=False) if UNSAFE.search(text) else text


def _dump(value: Any, *, allow_unicode: bool) -> str:
    return str(yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=allow_unicode, width=120))
