"""Field selectors as Kubernetes writes them: `metadata.name=web`, `type!=Normal,involvedObject.kind=Sandbox`. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from controller.kinds.meta import StoredObject
from controller.kinds.registry import Kind
from controller.service.errors import BadRequest
from controller.service.listing import serialize

_TERM = re.compile(r"\s*([A-Za-z.]+)\s*(==|=|!=)\s*([^,=!]*?)\s*\Z")
_ANY = ("metadata.name", "metadata.namespace")


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """Terms (field, equal or not, value); without any it matches everything."""

    kind: Kind
    terms: tuple[tuple[str, bool, str], ...] = ()

    @property
    def equal(self) -> Mapping[str, str]:
        """Return the fields with a required value: a source may narrow its query by them."""
        return {field: value for field, is_equal, value in self.terms if is_equal}

    def matches(self, obj: StoredObject) -> bool:
        """Return True if all terms match. An absent field counts as empty."""
        as_json = serialize.object_json(self.kind, obj) if self.terms else {}
        return all((_value(as_json, field) == value) == is_equal for field, is_equal, value in self.terms)


def parse(text: str, kind: Kind) -> FieldSelector:
    """Parse a selector. Raises BadRequest, with the selectable fields, if it is invalid."""
    if not text.strip():
        return FieldSelector(kind)
    return FieldSelector(kind, tuple(_term(term, kind, text) for term in text.split(",")))


def _term(term: str, kind: Kind, text: str) -> tuple[str, bool, str]:
    match = _TERM.match(term)
    served = (*_ANY, *kind.selectable)
    if match is None or match[1] not in served:
        raise BadRequest(
            f"field selector `{text}`: can't read `{term.strip()}`; write metadata.name=NAME or another of "
            f"{', '.join(served)}, with = or !="
        )
    return match[1], match[2] != "!=", match[3]


def _value(node: object, field: str) -> str:
    for step in field.split("."):
        node = node.get(step) if isinstance(node, Mapping) else None
    return "" if node is None else str(node)
