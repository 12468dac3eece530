"""Snapshots of sandboxes: take, fork, roll back, export and import."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from paddock._client.connection import Connection, segment
from paddock._client.errors import ClientError
from paddock._version import API_VERSION

_POLL_SECONDS = 0.05


class NotTaken(ClientError):
    """A snapshot that can't be taken as things are."""


@dataclass(frozen=True, slots=True)
class SnapshotClient:
    """The snapshots of one namespace. Raises Refused."""

    connection: Connection
    namespace: str

    def create(self, name: str, sandbox: str, *, ttl_seconds: int | None = None) -> Mapping[str, Any]:
        """Request a snapshot of a sandbox; return it, not captured yet."""
        spec: dict[str, Any] = {"sandboxRef": {"name": sandbox}}
        if ttl_seconds is not None:
            spec["ttlSeconds"] = ttl_seconds
        document = {
            "apiVersion": API_VERSION,
            "kind": "SandboxSnapshot",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": spec,
        }
        created: Mapping[str, Any] = self.connection.request("POST", self._all, json=document)
        return created

    def get(self, name: str) -> Mapping[str, Any]:
        """Return a snapshot."""
        snapshot: Mapping[str, Any] = self.connection.get(self._one(name))
        return snapshot

    def list(self) -> list[Mapping[str, Any]]:
        """Return all snapshots."""
        snapshots: list[Mapping[str, Any]] = self.connection.list(self._all)["items"]
        return snapshots

    def wait(self, name: str, seconds: float = 180.0) -> Mapping[str, Any]:
        """Wait until a snapshot is captured; return it. Raises NotTaken if it can't be, ClientError if it is late."""
        deadline = time.monotonic() + seconds
        while True:
            snapshot = self.get(name)
            conditions = snapshot.get("status", {}).get("conditions", ())
            captured: Mapping[str, Any] = next(
                (condition for condition in conditions if condition["type"] == "Captured"), {}
            )
            if captured.get("status") == "True":
                return snapshot
            state = f"{captured.get('reason', 'Pending')}: {captured.get('message', '')}"
            if captured.get("status") == "False":
                raise NotTaken(f"snapshot `{name}` can't be taken: {state}")
            if time.monotonic() > deadline:
                raise ClientError(f"snapshot `{name}` is not captured within {seconds:g} s: {state}")
            time.sleep(_POLL_SECONDS)

    def delete(self, name: str) -> None:
        """Delete a snapshot."""
        self.connection.request("DELETE", self._one(name))

    def fork(
        self,
        sandbox: str,
        *,
        count: int = 1,
        name_prefix: str = "",
        snapshot: str = "",
        allow_partial: bool = False,
    ) -> Mapping[str, Any]:
        """Create sandboxes that begin as one is now; return them (`items`), their snapshot, and why no more."""
        body = {"count": count, "namePrefix": name_prefix, "snapshot": snapshot, "allowPartial": allow_partial}
        forks: Mapping[str, Any] = self.connection.request("POST", f"{self._sandbox(sandbox)}/fork", json=body)
        return forks

    def contexts(self, sandbox: str) -> tuple[str, ...]:
        """Return the names of a sandbox's code contexts, as its status lists them."""
        status = self.connection.get(self._sandbox(sandbox)).get("status", {})
        return tuple(str(context["name"]) for context in status.get("contexts", ()))

    def rollback(self, sandbox: str, snapshot: str, *, backup: bool = True) -> Mapping[str, Any]:
        """Give a sandbox the files of a snapshot; return it, and the name of the snapshot of its files until then."""
        body = {"snapshot": snapshot, "backup": backup}
        result: Mapping[str, Any] = self.connection.request("POST", f"{self._sandbox(sandbox)}/rollback", json=body)
        return result

    def export(self, name: str, write: Callable[[bytes], object], *, image: bool = False) -> None:
        """Write a snapshot as an archive."""
        with self.connection.stream(f"{self._one(name)}/archive", {"image": "true"} if image else {}) as pieces:
            for piece in pieces:
                write(piece)

    def import_(self, name: str, pieces: Iterable[bytes]) -> Mapping[str, Any]:
        """Create a snapshot from an archive; return it."""
        imported: Mapping[str, Any] = self.connection.send("PUT", f"{self._one(name)}/archive", pieces)
        return imported

    @property
    def _all(self) -> str:
        return f"namespaces/{segment(self.namespace)}/sandboxsnapshots"

    def _one(self, name: str) -> str:
        return f"{self._all}/{segment(name)}"

    def _sandbox(self, name: str) -> str:
        return f"namespaces/{segment(self.namespace)}/sandboxes/{segment(name)}"
