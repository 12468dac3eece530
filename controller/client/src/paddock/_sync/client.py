# Generated from _async/client.py by `python -m tests.sdk.unasync`: change that one.
"""Client of one daemon."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from paddock._client.connection import segment
from paddock._client.errors import ClientError, Refused, Unreachable
from paddock._connect import chosen_server
from paddock._models import Change, MetricsList, Object, change_of, metrics_list_of
from paddock._spec import SandboxOptions, document, spec_of
from paddock._sync.mcp import MCP
from paddock._sync.objects import Objects
from paddock._sync.sandbox import Sandbox
from paddock._transport.blocking import Transport
from paddock._version import API_VERSION

_NOT_READY = 503
_YAML = "application/yaml"


class Paddock:
    """Client of a daemon. Use it in a `with`, or close it.

        with Paddock() as paddock:
            with paddock.sandboxes.create(image="paddock/python:1") as sandbox:
                print((sandbox.run_code("print(6 * 7)")).text)

    Without arguments it finds the daemon as the command `paddock` does: PADDOCK_SERVER, the current context, then the
    socket of this host. `server` is unix:///path or https://host:port, `context` a name in
    ~/.config/paddock/config.toml. The token is `token`, else that of the context, PADDOCK_TOKEN_FILE or PADDOCK_TOKEN.
    """

    def __init__(
        self,
        server: str | None = None,
        *,
        context: str | None = None,
        namespace: str | None = None,
        token: str = "",
        ca_file: str = "",
    ) -> None:
        chosen = chosen_server(server, context=context, namespace=namespace, token=token, ca_file=ca_file)
        self.namespace = chosen.namespace
        self._transport = Transport(chosen.server)

    def __enter__(self) -> "Paddock":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    @property
    def server(self) -> str:
        """Address of the daemon."""
        return str(self._transport.server)

    @property
    def sandboxes(self) -> "Sandboxes":
        """The sandboxes of the namespace."""
        return Sandboxes(self._transport, self.namespace)

    @property
    def templates(self) -> Objects:
        """The SandboxTemplates of the namespace."""
        return self.objects("sandboxtemplates")

    @property
    def pools(self) -> Objects:
        """The SandboxPools of the namespace."""
        return self.objects("sandboxpools")

    @property
    def mcp(self) -> MCP:
        """The MCP servers of the namespace."""
        return MCP(self._transport, self.namespace)

    def objects(self, plural: str, *, namespaced: bool = True) -> Objects:
        """Return the objects of any kind, such as `objects("quotas")`; `namespaced=False` for those of the host."""
        return Objects(self._transport, self.namespace if namespaced else None, plural)

    def sandbox(self, name: str, *, env: Mapping[str, str] | None = None) -> Sandbox:
        """Return a handle of an existing sandbox; nothing is requested yet."""
        return Sandbox(self._transport, self.namespace, name, env=env)

    def apply(self, spec: str | Path | Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> list[Change]:
        """Apply documents, all or none: YAML text, the path of a file, or dictionaries.

        paddock.apply(Path("specs/quickstart.yaml"))
        """
        body = {"documents": [_document(spec)], "namespace": self.namespace}
        return [change_of(outcome) for outcome in (self._transport.request("POST", "apply", json=body))["items"]]

    def is_docker_available(self) -> bool:
        """Tell if sandboxes can run: the daemon answers, and reaches its container engine and its store."""
        try:
            self._transport.download("/readyz", {})
        except Unreachable:
            return False
        except Refused as error:
            if error.code != _NOT_READY:
                raise
            return False
        return True

    def version(self) -> str:
        """Return the version of the daemon."""
        return str((self._transport.request("GET", "/version"))["version"])


class Sandboxes:
    """The sandboxes of a namespace."""

    def __init__(self, transport: Transport, namespace: str) -> None:
        self._transport, self._namespace = transport, namespace
        self._objects = Objects(transport, namespace, "sandboxes")
        self.watch = self._objects.watch

    def create(
        self,
        name: str = "",
        *,
        spec: Mapping[str, Any] | None = None,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        wait: bool = True,
        timeout: float | None = None,
        **options: Unpack[SandboxOptions],
    ) -> Sandbox:
        """Create a sandbox, and wait until it is Ready. As a context manager it is deleted at the end.

        Without `name` it gets one. Its container is that of `template`, `pool` or `image`; without them it has Python.
        `spec` is a Sandbox's spec, or a whole document, instead of options. A sandbox that fails, or is not Ready
        within `timeout` seconds (120, beside those that its image is being built), is deleted, and SandboxFailed or
        WaitTimedOut raised.

            sandbox = paddock.sandboxes.create(template="python", memory="1Gi", lifetime=3600)
            sandbox = paddock.sandboxes.create(spec={"templateRef": {"name": "python"}, "priority": 5})
        """
        if spec is not None and options:
            option_names = ", ".join(f"`{option}`" for option in options)
            raise TypeError(f"create: `spec` and {option_names} exclude each other; put all into the spec")
        env: Mapping[str, str] = options.get("env", {})
        if spec is None:
            spec = spec_of(options, self._template_of(options.get("pool", "")))
        manifest = document(name, self._namespace, labels or {}, annotations or {}, spec)
        created = self._objects.create(manifest)
        metadata = created["metadata"]
        sandbox = Sandbox(
            self._transport, metadata.get("namespace", self._namespace), metadata["name"], document=created, env=env
        )
        if wait:
            try:
                sandbox.wait_until("Ready", timeout=timeout)
            except BaseException:
                _remove(sandbox)
                raise
        return sandbox

    def get(self, name: str) -> Sandbox:
        """Return an existing sandbox. Raises NotFound."""
        existing = self._objects.get(name)
        return self._handle(existing)

    def list(self, *, selector: str = "") -> list[Sandbox]:
        """List the sandboxes; `selector` by label (`app=web,tier!=db`)."""
        return [self._handle(existing) for existing in self._objects.list(selector=selector)]

    def metrics(self) -> MetricsList:
        """Measure the use of CPU, memory, network, disk and processes of all running ones, on all hosts."""
        path = f"namespaces/{segment(self._namespace)}/sandboxes/-/metrics"
        return metrics_list_of(self._transport.request("GET", path))

    def delete(self, name: str, *, wait: bool = False, timeout: float = 60.0) -> None:
        """Delete a sandbox; `wait`: until its container is gone. Raises NotFound, WaitTimedOut."""
        self._objects.delete(name, wait=wait, timeout=timeout)

    def _handle(self, existing: Object) -> Sandbox:
        return Sandbox(self._transport, self._namespace, existing["metadata"]["name"], document=existing)

    def _template_of(self, pool: str) -> str:
        if not pool:
            return ""
        pool_object = Objects(self._transport, self._namespace, "sandboxpools").get(pool)
        return str(pool_object["spec"]["templateRef"]["name"])


def _remove(sandbox: Sandbox) -> None:
    """Delete a sandbox that failed; its own error is worth more than one of this."""
    with contextlib.suppress(ClientError):
        sandbox.delete()


def _document(spec: str | Path | Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return one text of the request for /apply. JSON is YAML; without a name no message has a position in it."""
    if isinstance(spec, Path):
        return {"file": str(spec), "text": spec.read_text()}
    if isinstance(spec, str):
        return {"file": "request", "text": spec}
    items = [spec] if isinstance(spec, Mapping) else list(spec)
    documents = ({"apiVersion": API_VERSION, **fields} for fields in items)
    return {"file": "", "text": "\n---\n".join(json.dumps(entry) for entry in documents)}
