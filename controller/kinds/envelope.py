"""What surrounds every spec: the top level of a document and its metadata, by Kubernetes' rules."""

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


def too_large(annotations: Mapping[str, str]) -> str:
    """Why an object can't have these annotations together; "" when it can."""
    held = sum(len(key.encode()) + len(value.encode(errors="surrogatepass")) for key, value in annotations.items())
    if held <= _ANNOTATIONS_BYTES:
        return ""
    return f"are {held} bytes together, more than {_ANNOTATIONS_BYTES >> 10} KiB; keep what is large elsewhere"


def _bounded(annotations: dict[str, str]) -> dict[str, str]:
    """One long text could stand in each of them, by an alias."""
    if words := too_large(annotations):
        raise ValueError(words)
    return annotations


class Metadata(Model):
    """Who an object is. What only Paddock sets may stand in a document (`get -o yaml` prints it) and is not read.

    `resource_version` and `uid`, where given, must be those of the stored object.
    """

    name: Name
    """The name, unique for its kind in its namespace; it cannot be changed."""
    namespace: Namespace | None = None
    """The project or tenant it belongs to; `default` if left out."""
    labels: Annotated[dict[LabelKey, LabelValue], Field(max_length=256)] = {}
    """Short words to select by: `paddock get sandboxes -l app=web`."""
    annotations: Annotated[
        dict[LabelKey, Annotated[Text, Field(max_length=262144)]], Field(max_length=256), AfterValidator(_bounded)
    ] = {}
    """Notes that nothing selects by."""
    resource_version: Text | None = None
    """If given, the change is refused unless the object is still at this version."""
    uid: Text | None = None
    """If given, the change is refused unless it is still the same object."""
    generation: Any = None
    """Counts the changes of the spec; only Paddock sets it."""
    creation_timestamp: Any = None
    """When it was made; only Paddock sets it."""
    deletion_timestamp: Any = None
    """When its deletion was asked for; only Paddock sets it."""
    finalizers: Any = None
    """What is to be done before it goes. Paddock has its own; a patch adds or takes off others."""
    owner_references: Annotated[tuple[OwnerReference, ...] | None, Field(max_length=MOST_OWNERS)] = None
    """The objects it goes with: once all of them are gone, it is deleted."""


def no_namespace(text: str) -> str:
    """Why this is no name of a namespace, for one that stands in no document; "" when it is."""
    if len(text) <= _NAMESPACE_LETTERS and re.fullmatch(_NAMESPACE, text):
        return ""
    return f"`{text[:_NAMESPACE_LETTERS]}` is no namespace: write at most {_NAMESPACE_LETTERS} {_NAMESPACE_WORDS}"
