"""Workflow runs: start, follow, cancel, and fetch their artifacts."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddock._archive.names import Unsafe
from paddock._archive.tar import Reader, TarError
from paddock._archive.unpack import Rules, unpack
from paddock._client.connection import Connection, segment
from paddock._client.errors import ClientError
from paddock._version import API_VERSION

ENDED = ("Succeeded", "Failed", "Cancelled")
_MODES = 0o755
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class WorkflowRuns:
    """The workflow runs of one namespace. Raises Refused."""

    connection: Connection
    namespace: str

    def create(
        self,
        name: str,
        spec: Mapping[str, Any],
    ) -> Mapping[str, Any]:
        """Create a run; return it."""
        document = {
            "apiVersion": API_VERSION,
            "kind": "WorkflowRun",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": dict(spec),
        }
        created: Mapping[str, Any] = self.connection.request("POST", self._all, json=document)
        return created

    def get(self, name: str) -> Mapping[str, Any]:
        """Return a run."""
        run: Mapping[str, Any] = self.connection.get(self._run_path(name))
        return run

    def cancel(self, name: str) -> Mapping[str, Any]:
        """Cancel a run: its stages are stopped, and its `finally` stages done. Return it; one that ended is refused."""
        change = {"spec": {"runState": "Cancelled"}}
        path, type_ = self._run_path(name), "application/merge-patch+json"
        cancelled: Mapping[str, Any] = self.connection.request("PATCH", path, json=change, content_type=type_)
        return cancelled

    def log(self, name: str, stage: str, *, attempt: int | None = None, offset: int = 0) -> bytes:
        """Return the output of a stage from that byte on."""
        params = {"stage": stage, "offset": str(offset)} | ({"attempt": str(attempt)} if attempt else {})
        with self.connection.stream(f"{self._run_path(name)}/logs", params) as pieces:
            return b"".join(pieces)

    def artifacts(self, name: str) -> list[Mapping[str, Any]]:
        """Return the artifacts of a run, each with its name, size and files."""
        artifacts: list[Mapping[str, Any]] = self.connection.get(f"{self._run_path(name)}/artifacts")["items"]
        return artifacts

    def download(self, name: str, artifact: str, folder: Path) -> int:
        """Unpack an artifact into a folder, which is created; return the number of files. Raises ClientError.

        Whatever a sandbox wrote, nobody but this user may write its files and folders here.
        """
        folder.mkdir(parents=True, exist_ok=True)
        top = os.open(folder, _OPEN)
        try:
            with self.connection.stream(f"{self._run_path(name)}/artifacts/{segment(artifact)}", {}) as pieces:
                remainder = b""

                def read(count: int) -> bytes:
                    nonlocal remainder
                    remainder = remainder or next(pieces, b"")
                    piece, remainder = remainder[:count], remainder[count:]
                    return piece

                return unpack(Reader(read), top, Rules(modes=_MODES)).files
        except (TarError, Unsafe) as error:
            raise ClientError(f"artifact {artifact}: {error}") from error
        except OSError as error:
            raise ClientError(f"{folder}: {error.strerror or error}: {error.filename or ''}") from error
        finally:
            os.close(top)

    @property
    def _all(self) -> str:
        return f"namespaces/{segment(self.namespace)}/workflowruns"

    def _run_path(self, name: str) -> str:
        return f"{self._all}/{segment(name)}"
