"""Client of the engine: a bounded connection pool, a time-out on every call, every call counted and timed."""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any, TypeVar
from urllib.parse import quote

import docker

from controller.engine.docker import raw_http
from controller.engine.docker.bulkhead import Bulkhead
from controller.engine.docker.errors import FOREIGN, Fault, fault_of
from controller.engine.docker.transport import UnixAdapter
from controller.engine.kernel.apparmor import in_force
from controller.engine.kernel.engine_socket import unix_path
from controller.kinds.observed.observed import HostFacts
from controller.kinds.runtime.engine_api import OLDEST, format_version, negotiated, parse_version
from controller.policy.levels.abilities import has_option
from controller.ports import Meter

T = TypeVar("T")

_POOL_SIZE = 64
BAD_REQUEST = 400
_MAPPED_DATA = re.compile(r"/([0-9]{1,10})\.([0-9]{1,10})/?$")


class Client:
    """Calls to one engine. Connects at the first call; `probe` negotiates the API version again.

    `first_ids` are the uid and gid of this host that are root's in a container, as of the last probe.
    """

    def __init__(self, base_url: str, *, meter: Meter, timeout_seconds: float) -> None:
        raw_http.connection(base_url, timeout_seconds)  # does not connect: raises ValueError for a bad address
        self.base_url = base_url
        self.timeout_seconds = timeout_seconds
        self._meter = meter
        self._lock = threading.Lock()
        self._api: docker.APIClient | None = None
        self._count_lock = threading.Lock()
        self._in_flight = 0
        self._bulkhead = Bulkhead()
        self._connections = raw_http.Connections(base_url, _POOL_SIZE)
        self.first_ids = (0, 0)

    def call(self, operation: str, do: Callable[[Any], T], *, container: str = "") -> T:
        """Run one call on the docker.APIClient (its stubs are half typed), measured as `operation`. Raises Fault.

        A call for a `container` is refused at once while an earlier one for it hangs (see bulkhead.py).
        """
        with self._entered(container), self._measured(operation):
            return do(self._connected())

    def post(
        self,
        operation: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        container: str = "",
        timeout_seconds: float | None = None,
    ) -> dict[str, Any]:
        """Post JSON; return the answer ({} for an empty one). `path` has no version. Raises Fault."""
        timeout = timeout_seconds or self.timeout_seconds
        with self._entered(container), self._measured(operation):
            return self._parsed(self._connections.change(self._versioned(path), body, timeout))

    def get(
        self, operation: str, path: str, *, container: str = "", timeout_seconds: float | None = None
    ) -> dict[str, Any]:
        """Return the answer to a request that only reads. `path` has no version. Raises Fault."""
        timeout = timeout_seconds or self.timeout_seconds
        with self._entered(container), self._measured(operation):
            return self._parsed(self._connections.read(self._versioned(path), timeout))

    def inspect(self, reference: str, *, timeout_seconds: float) -> dict[str, Any]:
        """Inspect one container, by id or name, within the time-out. Raises Fault."""
        path, timeout = f"/containers/{quote(reference, safe='')}/json", min(timeout_seconds, self.timeout_seconds)
        return self.get("containers.inspect", path, container=reference, timeout_seconds=timeout)

    def image(self, reference: str) -> dict[str, Any]:
        """Inspect one image, by id or name. Raises Fault."""
        return self.get("images.inspect", f"/images/{quote(reference, safe='/:@')}/json")

    def exec_state(self, exec_id: str, *, timeout_seconds: float) -> dict[str, Any]:
        """Inspect one command, within the time-out. Raises Fault."""
        timeout = min(timeout_seconds, self.timeout_seconds)
        return self.get("exec.inspect", f"/exec/{quote(exec_id, safe='')}/json", timeout_seconds=timeout)

    def layer_bytes(self, container_id: str, *, timeout_seconds: float) -> int:
        """Return the size of a container's writable layer. Raises Fault.

        The engine walks the layer for it and holds no lock meanwhile, so other calls for the container go on.
        """
        path = f"/containers/{quote(container_id, safe='')}/json?size=1"
        size = self.get("containers.size", path, timeout_seconds=timeout_seconds).get("SizeRw")
        if size is None or int(size) < 0:  # engines say -1 where counting failed
            raise Fault("5xx", "the engine does not tell its size", status=500)
        return int(size)

    def speaks(self, version: str) -> bool:
        """Tell whether the API version in use is at least this one. Raises Fault."""
        return parse_version(self._connected().api_version) >= parse_version(version)

    def answers(self, timeout_seconds: float) -> bool:
        """Tell whether the engine answers a ping within the time-out."""
        try:
            self.stream("ping", "GET", "/_ping", timeout_seconds=min(timeout_seconds, self.timeout_seconds)).release()
        except Fault as fault:
            return not fault.unreachable
        return True

    def stream(
        self,
        operation: str,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        upgrade: bool = False,
        timeout_seconds: float | None = None,
        container: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> raw_http.HttpStream:
        """Open a stream over a socket of its own; measured until the engine answers. `path` has no version.

        `timeout_seconds` bounds the wait for that answer (default: the client's). `container` as in `call`.
        """
        with self._entered(container), self._measured(operation):
            return raw_http.request(
                self.base_url,
                method,
                self._versioned(path),
                timeout_seconds=timeout_seconds or self.timeout_seconds,
                params=params,
                body=body,
                upgrade=upgrade,
                headers=headers,
            )

    def probe(self) -> HostFacts:
        """Return the engine's facts, and negotiate the API version. Raises Fault."""
        with self._measured("version"):
            version = self._ask_version()
            api = self._use(version_to_use(version))
        facts = facts_of(version, self.call("info", lambda api: api.info()), api.api_version)
        self.first_ids = first_ids(facts)
        if not unix_path(self.base_url):
            return facts  # another machine's kernel
        return replace(facts, security_options=in_force(facts.security_options))

    def close(self) -> None:
        with self._lock:
            self._drop()
        self._connections.close()

    def _versioned(self, path: str) -> str:
        return f"/v{self._connected().api_version}{path}"

    def _parsed(self, content: bytes) -> dict[str, Any]:
        """Return the JSON of an answer. Raises Fault if it is none."""
        try:
            body: dict[str, Any] = json.loads(content) if content else {}
        except ValueError as error:
            raise fault_of(error, self.base_url) from error
        return body

    def _drop(self) -> None:
        if self._api is not None:
            self._api.close()
            self._api = None

    def _connected(self) -> docker.APIClient:
        return self._api or self._use(version_to_use(self._ask_version()))

    def _use(self, version: str) -> docker.APIClient:
        """Return the client of that API version. The current one is kept if it fits: other threads are using it."""
        with self._lock:
            if self._api is None or self._api.api_version != version:
                self._drop()
                self._api = self._new_api(version)
            return self._api

    def _ask_version(self) -> dict[str, Any]:
        asking = self._new_api(format_version(OLDEST))
        try:
            return asking.version(api_version=False)
        finally:
            asking.close()

    def _new_api(self, version: str) -> docker.APIClient:
        # docker-py's stubs want whole seconds; requests takes fractions.
        timeout: Any = self.timeout_seconds
        api = docker.APIClient(base_url=self.base_url, version=version, timeout=timeout, max_pool_size=_POOL_SIZE)
        # Neither a proxy of the environment nor ~/.netrc applies to the engine.
        api.trust_env = False
        path = unix_path(self.base_url)
        if path:
            api.mount("http+docker://", UnixAdapter(path, size=_POOL_SIZE))
        return api

    def _entered(self, container: str) -> AbstractContextManager[None]:
        return self._bulkhead.entered(container) if container else nullcontext()

    @contextmanager
    def _measured(self, operation: str) -> Iterator[None]:
        self._meter.count("paddock_docker_requests_total", operation=operation)
        self._count_in_flight(1)
        started = time.monotonic()
        try:
            yield
        except (Fault, *FOREIGN) as error:
            fault = error if isinstance(error, Fault) else fault_of(error, self.base_url)
            fault = self._replaced() or fault if fault.status == BAD_REQUEST else fault
            self._meter.count("paddock_docker_request_errors_total", operation=operation, reason=fault.kind)
            if fault is error:
                raise
            raise fault from error
        finally:
            self._count_in_flight(-1)
            took = time.monotonic() - started
            self._meter.observe("paddock_docker_request_duration_seconds", took, operation=operation)

    def _replaced(self) -> Fault | None:
        """Return the fault of an engine that was replaced by one without the API version in use; None for the same.

        The engine's own message would send people to upgrade a client that they do not have.
        """
        try:
            version = self._ask_version()
            fitting = version_to_use(version)
        except (Fault, *FOREIGN):
            return None
        with self._lock:
            if self._api is None or self._api.api_version == fitting:
                return None
            self._drop()
        message = f"Docker Engine {version.get('Version')} has taken its place; it is asked again by API {fitting}"
        return Fault("connection", message)

    def _count_in_flight(self, change: int) -> None:
        with self._count_lock:
            self._in_flight += change
            self._meter.gauge("paddock_docker_requests_in_flight", self._in_flight)


def version_to_use(version: Mapping[str, Any]) -> str:
    """Return the API version to use, given the answer to /version. Raises Fault for an engine too old."""
    newest = parse_version(str(version.get("ApiVersion", "")))
    if newest < OLDEST:
        engine_version = version.get("Version", "unknown")
        raise Fault("connection", f"Docker Engine {engine_version} is too old; install 20.10 (API 1.41) or newer")
    return format_version(negotiated(newest, parse_version(str(version.get("MinAPIVersion") or ""))))


def first_ids(facts: HostFacts) -> tuple[int, int]:
    """Return the ids of this host that are root's in a container. An engine that maps users names its data so."""
    match = _MAPPED_DATA.search(facts.root_dir)
    return (int(match[1]), int(match[2])) if match and has_option(facts, "userns") else (0, 0)


def facts_of(version: Mapping[str, Any], info: Mapping[str, Any], api_version: str) -> HostFacts:
    """Return the facts that Paddock needs of the answers to /version and /info."""
    return HostFacts(
        engine_version=str(version.get("Version", "")),
        api_version=api_version,
        cpus=int(info.get("NCPU") or 0),
        memory_bytes=int(info.get("MemTotal") or 0),
        cgroup_version=str(info.get("CgroupVersion") or ""),
        cgroup_driver=str(info.get("CgroupDriver") or ""),
        storage_driver=str(info.get("Driver") or ""),
        default_runtime=str(info.get("DefaultRuntime") or ""),
        root_dir=str(info.get("DockerRootDir") or ""),
        security_options=tuple(info.get("SecurityOptions") or ()),
        live_restore=bool(info.get("LiveRestoreEnabled")),
        swap_limit=bool(info.get("SwapLimit")),
        runtimes=tuple(sorted(info.get("Runtimes") or ())),
        engine_id=str(info.get("ID") or ""),
    )
