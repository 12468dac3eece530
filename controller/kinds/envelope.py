"""The top level of a document and its metadata, by Kubernetes' rules."""

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from controller.kinds.base import Form, Model, Name, Text
from controller.kinds.common.owner_reference import MOST_OWNERS, OwnerReference

_SUBDOMAIN = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*"
_WORD = r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
TOP_FIELDS = ("apiVersion", "kind", "metadata", "spec", "status")
DEFAULT_NAMESPACE = "default"

_NAMESPACE, _NAMESPACE_WORDS = (
    r"[a-z0-9]([a-z0-9-]*[a-z0-9])?",
    "lower-case letters, digits and `-`, starting and ending with a letter or digit",
)
_NAMESPACE_LETTERS = 63
Namespace = Annotated[
    Text,
    Field(min_length=1, max_length=_NAMESPACE_LETTERS, pattern=rf"^{_NAMESPACE}$"),
    Form(_NAMESPACE_WORDS),
]
LabelKey = Annotated[
    Text,
    Field(min_length=1, max_length=253 + 1 + 63, pattern=rf"^({_SUBDOMAIN}/)?{_WORD}$"),
    Form(
        "at most 63 letters, digits, `-`, `_` and `.`, starting and ending with a letter or digit, "
        "after an optional `example.org/`"
    ),
]
LabelValue = Annotated[
    Text,
    Field(max_length=63, pattern=rf"^({_WORD})?$"),
    Form("letters, digits, `-`, `_` and `.`, starting and ending with a letter or digit"),
]

_ANNOTATIONS_BYTES = 256 << 10  # together, as Kubernetes has it


def annotation_bytes(annotations: Mapping[str, str]) -> int:
    """Return the size of annotations together."""
    return sum(len(key.encode()) + len(value.encode(errors="surrogatepass")) for key, value in annotations.items())


def too_large(annotations: Mapping[str, str]) -> str:
    """Return why these annotations are too large together; "" if they are not."""
    size = annotation_bytes(annotations)
    if size <= _ANNOTATIONS_BYTES:
        return ""
    return f"are {size} bytes together, more than {_ANNOTATIONS_BYTES >> 10} KiB; store large data elsewhere"


def _bounded(annotations: dict[str, str]) -> dict[str, str]:
    """Refuse annotations that are too large together. A YAML alias can repeat one long text in each of them."""
    if message := too_large(annotations):
        raise ValueError(message)
    return annotations


class Metadata(Model):
    """Identity of an object.

    Fields that only Paddock sets may stand in a document (`get -o yaml` prints them); they are ignored.
    `resource_version` and `uid`, if given, must be those of the stored object.
    """

    name: Name
    """The name, unique for its kind in its namespace; it cannot be changed."""
    namespace: Namespace | None = None
    """The project or tenant it belongs to; `default` if left out."""
    labels: Annotated[dict[LabelKey, LabelValue], Field(max_length=256)] = {}
    """Key-value pairs to select by: `paddock get sandboxes -l app=web`."""
    annotations: Annotated[
        dict[LabelKey, Annotated[Text, Field(max_length=262144)]], Field(max_length=256), AfterValidator(_bounded)
    ] = {}
    """Notes for people and tools; nothing selects by them."""
    resource_version: Text | None = None
    """If given, the change is refused unless the object is still at this version."""
    uid: Text | None = None
    """If given, the change is refused unless it is still the same object."""
    generation: Any = None
    """Number of changes of the spec; only Paddock sets it."""
    creation_timestamp: Any = None
    """Time of creation; only Paddock sets it."""
    deletion_timestamp: Any = None
    """Time of the deletion request; only Paddock sets it."""
    finalizers: Any = None
    """Cleanup steps that must finish before the object is deleted. Paddock has its own; a patch adds or removes others.
    """
    owner_references: Annotated[tuple[OwnerReference, ...] | None, Field(max_length=MOST_OWNERS)] = None
    """Owners of this object: once all of them are deleted, it is deleted."""


def namespace_fault(text: str) -> str:
    """Return why this is not a valid namespace; "" if it is. For names that stand in no document."""
    if len(text) <= _NAMESPACE_LETTERS and re.fullmatch(_NAMESPACE, text):
        return ""
    return (
        f"`{text[:_NAMESPACE_LETTERS]}` is not a valid namespace; write at most {_NAMESPACE_LETTERS} {_NAMESPACE_WORDS}"
    )
