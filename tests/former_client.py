"""Client of one daemon over the connection of the command line: objects as dictionaries, and sandboxes."""

from types import TracebackType
from typing import Any

from paddock._client.connection import connect, segment
from paddock._client.sandbox import Sandbox


class Paddock:
    """Client of the daemon at `server` (unix:///path or http://host:port); default: as for the command `paddock`.

    Objects are those of `namespace`. Use it in a `with`, or close it. Every method may raise a ClientError.
    """

    def __init__(self, server: str | None = None, *, namespace: str = "default") -> None:
        self.connection = connect(server)
        self.namespace = namespace

    def __enter__(self) -> "Paddock":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def sandbox(self, name: str) -> Sandbox:
        """Return a handle of a sandbox; nothing is requested yet."""
        return Sandbox(self.connection, self.namespace, name)

    def apply(self, text: str) -> list[dict[str, Any]]:
        """Apply the documents of a spec file's text, all or none; return the result of each."""
        body = {"documents": [{"file": "request", "text": text}], "namespace": self.namespace}
        items: list[dict[str, Any]] = self.connection.request("POST", "apply", json=body)["items"]
        return items

    def get(self, plural: str, name: str) -> dict[str, Any]:
        """Return one object, such as `get("sandboxes", "quickstart")`. Refused (reason NotFound) if missing."""
        document: dict[str, Any] = self.connection.get(f"{self._path(plural)}/{segment(name)}")
        return document

    def list(self, plural: str, *, selector: str = "") -> list[dict[str, Any]]:
        """List the objects of a kind in the namespace; `selector` by label (`app=web,tier!=db`)."""
        items: list[dict[str, Any]] = self.connection.get(self._path(plural), labelSelector=selector)["items"]
        return items

    def delete(self, plural: str, name: str) -> None:
        """Request the deletion of an object; it is finished once its container is gone."""
        self.connection.request("DELETE", f"{self._path(plural)}/{segment(name)}")

    def _path(self, plural: str) -> str:
        return f"namespaces/{segment(self.namespace)}/{segment(plural)}"
