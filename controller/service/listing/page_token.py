"""`continue` tokens of paged lists: where the next page begins, and the revision of the first. Pure.

The token is opaque to clients. A list that is read in pages bears the revision of its first page: a watch from it
sends every change that a later page may have missed.
"""

import base64
import binascii
import json
from dataclasses import dataclass

from controller.service.errors import BadRequest


@dataclass(frozen=True, slots=True)
class PageToken:
    """`after` is namespace and name of the last object of the page before."""

    revision: int
    after: tuple[str, str]

    def text(self) -> str:
        """Return the text that a client sends back."""
        return base64.urlsafe_b64encode(json.dumps([1, self.revision, *self.after]).encode()).decode().rstrip("=")


def parse(text: str) -> PageToken:
    """Parse a token. Raises BadRequest if it is not one of ours."""
    try:
        version, revision, namespace, name = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, TypeError, binascii.Error, RecursionError):
        version, revision, namespace, name = 0, 0, "", ""
    if version != 1 or type(revision) is not int or not isinstance(namespace, str) or not isinstance(name, str):
        raise BadRequest("`continue` is no token of a list's answer; list again without it")
    return PageToken(revision, (namespace, name))
