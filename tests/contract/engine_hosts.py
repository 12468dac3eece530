"""Hosts of the engine contract: an engine, and somebody at the host who does things past Paddock."""

import contextlib
import io
import itertools
import os
import shutil
import subprocess
import tarfile
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import docker
import docker.errors

from controller.engine.engine import DockerEngine
from controller.engine.kernel.cgroups import Cgroups
from controller.engine.kernel.engine_namespace import EngineNamespace
from controller.engine.kernel.mount_calls import detach
from controller.kinds.common.chunk import Chunk
from controller.kinds.common.labels import INSTANCE, container_labels, container_name
from controller.kinds.observed.observed import Container
from controller.kinds.planning.action import CreateContainer, StartContainer
from controller.kinds.planning.outcome import Ok, Outcome
from controller.kinds.runtime.container import ContainerConfig, Limits
from controller.kinds.runtime.images import OURS
from controller.ports import Engine, Images, Probes, Streams
from tests.conftest import HandClock
from tests.daemon import remove_image
from tests.fakes.engine import TINY, FakeEngine

SOCKET = "unix:///var/run/docker.sock"
SMALL = Limits(cpu_millicores=500, memory_bytes=32 << 20, pids=32)
DEADLINE_SECONDS = 60.0  # ends no wait on a host that is slow: a virtual machine without KVM


class WallClock:
    def now(self) -> float:
        return time.time()


_CALLS = "paddock_docker_requests_total"


def since(before: Mapping[str, float], now: Mapping[str, float]) -> dict[str, float]:
    return {name: n - before.get(name, 0) for name, n in now.items() if n != before.get(name, 0)}


class CountingMeter:
    """Counts by name and labels; what the tests prove "one list, no inspects" with."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.counts: dict[tuple[str, ...], float] = {}
        self._here = threading.local()
        self.gauges: dict[str, float] = {}

    def count(self, name: str, amount: float = 1, /, **labels: str) -> None:
        key = (name, *(value for _, value in sorted(labels.items())))
        with self._lock:
            self.counts[key] = self.counts.get(key, 0) + amount
        if name == _CALLS:
            mine = self._here.__dict__.setdefault("calls", {})
            mine[key[1]] = mine.get(key[1], 0) + amount

    def observe(self, name: str, seconds: float, /, **labels: str) -> None: ...

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        self.gauges[name] = value

    def calls(self) -> dict[str, float]:
        """Calls to the engine so far, by operation."""
        with self._lock:
            return {key[1]: n for key, n in self.counts.items() if key[0] == _CALLS}

    def own_calls(self) -> dict[str, float]:
        """Those of this thread: the events' threads ask the engine, too, when they see fit."""
        return dict(self._here.__dict__.get("calls", {}))

    def calls_since(self, before: Mapping[str, float]) -> dict[str, float]:
        return since(before, self.calls())

    def own_calls_since(self, before: Mapping[str, float]) -> dict[str, float]:
        return since(before, self.own_calls())


class Hand(Protocol):
    """Somebody with a root shell. FakeEngine has these methods itself."""

    def kill(self, name: str, signal: str = "KILL") -> None: ...
    def start(self, name: str) -> None: ...
    def remove(self, name: str) -> None: ...
    def rename(self, name: str, new: str) -> None: ...
    def pause(self, name: str) -> None: ...
    def unpause(self, name: str) -> None: ...
    def update_limits(self, name: str, limits: Limits) -> None: ...
    def update(self, name: str, **changes: Any) -> None: ...
    def add_foreign(self, name: str, labels: Mapping[str, str] | None = None) -> str: ...
    def exists(self, name: str) -> bool: ...
    def remove_network(self, name: str) -> None: ...
    def open_root(self, name: str) -> None: ...
    def build_image(self, name: str, *, ours: bool, path: str = "made") -> str: ...
    def build_with_stop_signal(self, name: str, signal: str) -> None: ...
    def remove_image(self, name: str) -> None: ...
    def write_inside(self, name: str, path: str, text: str) -> None: ...
    def read_inside(self, name: str, path: str) -> str: ...
    def unmount_inside(self, name: str, path: str) -> None: ...
    def unmount_places(self, name: str) -> None: ...
    def lose_record(self, name: str) -> None: ...
    def lose_cgroups(self, name: str) -> None: ...


class DockerHand:
    """The same with docker-py, past the code that is tested. Removes what it made."""

    def __init__(self, base_url: str = SOCKET) -> None:
        self._base_url = base_url
        self._api = docker.APIClient(base_url=base_url, version="auto")
        self._foreign: list[str] = []
        self._built: list[str] = []

    def kill(self, name: str, signal: str = "KILL") -> None:
        self._api.kill(name, signal)

    def start(self, name: str) -> None:
        self._api.start(name)

    def remove(self, name: str) -> None:
        self._api.remove_container(name, force=True)

    def rename(self, name: str, new: str) -> None:
        self._api.rename(name, new)

    def pause(self, name: str) -> None:
        self._api.pause(name)

    def unpause(self, name: str) -> None:
        self._api.unpause(name)

    def update_limits(self, name: str, limits: Limits) -> None:
        url = f"{self._api.base_url}/v{self._api.api_version}/containers/{name}/update"
        body = {"Memory": limits.memory_bytes, "MemorySwap": limits.memory_bytes, "PidsLimit": limits.pids}
        self._api.post(url, json={**body, "NanoCpus": limits.cpu_millicores * 1_000_000}).raise_for_status()

    def update(self, name: str, **changes: Any) -> None:
        memory = self.inspect(name)["HostConfig"]["Memory"]
        message = {"restart_policy": "RestartPolicy", "cpus": "CpusetCpus", "cpu_shares": "CpuShares"}
        body: dict[str, Any] = {message[field]: value for field, value in changes.items() if field in message}
        if "restart_policy" in changes:
            body["RestartPolicy"] = {"Name": changes["restart_policy"]}
        if "swap_bytes" in changes:
            swap = changes["swap_bytes"]
            body |= {"Memory": memory, "MemorySwap": -1 if swap == -1 else memory + swap}
        url = f"{self._api.base_url}/v{self._api.api_version}/containers/{name}/update"
        self._api.post(url, json=body).raise_for_status()

    def remove_network(self, name: str) -> None:
        self._api.remove_network(name)

    def add_foreign(self, name: str, labels: Mapping[str, str] | None = None) -> str:
        host_config = self._api.create_host_config(network_mode="none", init=True)
        container = self._api.create_container(
            TINY, ["sleep", "1000"], name=name, labels=dict(labels or {}), host_config=host_config
        )
        self._foreign.append(container["Id"])
        self._api.start(container["Id"])
        return str(container["Id"])

    def exists(self, name: str) -> bool:
        try:
            self.inspect(name)
        except docker.errors.NotFound:
            return False
        return True

    def open_root(self, name: str) -> None:
        pid = str(self.inspect(name)["State"]["Pid"])
        subprocess.run(
            ["nsenter", "--target", pid, "--mount", "--pid", "/bin/mount", "-o", "remount,rw", "/"], check=True
        )

    def build_image(self, name: str, *, ours: bool, path: str = "made") -> str:
        with io.BytesIO() as content, tarfile.open(fileobj=content, mode="w") as tree:
            member = tarfile.TarInfo(path)
            member.size = len(uuid.uuid4().bytes)
            tree.addfile(member, io.BytesIO(uuid.uuid4().bytes))
            tree.close()
            changes = [f"LABEL {OURS}=test"] if ours else []
            self._api.import_image_from_data(content.getvalue(), repository=name, changes=changes)
        self._built.append(str(self._api.inspect_image(name)["Id"]))
        return self._built[-1]

    def build_with_stop_signal(self, name: str, signal: str) -> None:
        recipe = io.BytesIO(f"FROM {TINY}\nSTOPSIGNAL {signal}\n".encode())
        answer = list(self._api.build(fileobj=recipe, tag=name, rm=True))
        self._built.append(name)
        assert any(b"Successfully tagged" in entry for entry in answer), answer

    def remove_image(self, name: str) -> None:
        self._api.remove_image(name, force=True)

    def write_inside(self, name: str, path: str, text: str) -> None:
        self._run(name, "sh", "-c", f"echo {text} > {path}")

    def read_inside(self, name: str, path: str) -> str:
        return self._run(name, "cat", path).strip()

    def _run(self, name: str, *command: str) -> str:
        return str(self._api.exec_start(self._api.exec_create(name, command)["Id"]).decode())

    def unmount_inside(self, name: str, path: str) -> None:
        pid = str(self.inspect(name)["State"]["Pid"])
        subprocess.run(["nsenter", "--target", pid, "--mount", "/bin/umount", "-l", path], check=True)

    def unmount_places(self, name: str) -> None:
        """Unmount all that is mounted at the container's mount points on the host."""
        for place in self._places(name):
            self._unmount(place)

    def lose_record(self, name: str) -> None:
        """Unmount the folder of all mount points, with their records."""
        self._unmount(self._places(name)[0].parents[1])

    def _unmount(self, path: Path) -> None:
        """Unmount all at a path, where the engine sees it: a lab's engine has mounts of its own."""

        def unmount() -> None:
            while os.path.ismount(path):
                detach(str(path))

        engine = EngineNamespace(self._base_url)
        with contextlib.closing(engine):
            engine.run(unmount)

    def _places(self, name: str) -> list[Path]:
        sources = [Path(mount["Source"]) for mount in self.inspect(name)["Mounts"]]
        return [source for source in sources if source.name.isdigit()]

    def lose_cgroups(self, name: str) -> None:
        """Move all its processes out of its cgroups, and remove these."""
        state = self.inspect(name)
        text = Path(f"/proc/{state['State']['Pid']}/cgroup").read_text()
        for folder in {Path(entry.path) for entry in Cgroups().folders(text, str(state["Id"])).values()}:
            for one_name in (folder / "cgroup.procs").read_text().split():
                (folder.parent / "cgroup.procs").write_text(one_name)
            folder.rmdir()

    def inspect(self, name: str) -> dict[str, Any]:
        inspect_container: dict[str, Any] = self._api.inspect_container(name)
        return inspect_container

    @property
    def api(self) -> Any:
        return self._api

    def clean(self, instance_id: str) -> None:
        """Remove all of that instance, and the foreign containers made here."""
        rows = self._api.containers(all=True, filters={"label": [f"{INSTANCE}={instance_id}"]})
        for entry in [*(row["Id"] for row in rows), *self._foreign]:
            with contextlib.suppress(docker.errors.NotFound):
                self._api.remove_container(entry, force=True, v=True)
        for row in self._api.networks(filters={"label": [f"{INSTANCE}={instance_id}"]}):
            with contextlib.suppress(docker.errors.NotFound):
                self._api.remove_network(row["Id"])
        for single in self._built:
            remove_image(single, self._base_url)
        self._api.close()


class EngineHost:
    """One engine under test, with a wake that tests wait on instead of sleeping."""

    def __init__(self, instance_id: str, engine: Engine, streams: Streams, hand: Hand) -> None:
        self.instance_id = instance_id
        self.engine = engine
        self.streams = streams
        self.hand = hand
        self.remake: Callable[[], Engine] = lambda: engine
        self.wakes = 0
        self._woken = threading.Condition()
        self._numbers = itertools.count(1)
        engine.open(self._wake)

    def _wake(self) -> None:
        with self._woken:
            self.wakes += 1
            self._woken.notify_all()

    @property
    def probes(self) -> Probes:
        """Beside the engine, as its streams are."""
        return self.engine.probes  # type: ignore[attr-defined]  # every engine of the suite has it

    @property
    def images(self) -> Images:
        return self.engine.image_store  # type: ignore[attr-defined]  # likewise

    def until(self, holds: Callable[[], object], seconds: float = DEADLINE_SECONDS) -> None:
        """Wait for the view (or anything that moves with it) to be so."""
        with self._woken:
            if not self._woken.wait_for(holds, seconds):
                raise AssertionError(f"not so within {seconds:g} s; the view is {self.engine.observe()}")

    def settled(self) -> "EngineHost":
        """Wait for the first look, and for what the engine has to say of itself."""
        self.until(lambda: not self.engine.observe().blind and self.engine.observe().facts.cpus)
        return self

    def next_daemon(self) -> None:
        """Replace the engine's adapter as the next daemon does: all that it only remembers is gone."""
        engine = self.remake()
        if engine is not self.engine:
            self.engine.close()
            self.engine = engine
            engine.open(self._wake)
        engine.observe_now(full=True)

    def new_uid(self) -> str:
        return str(uuid.uuid5(uuid.UUID(int=0), f"{self.instance_id}/{next(self._numbers)}"))

    def create(self, uid: str, *, labels: Mapping[str, str] | None = None, **changes: Any) -> CreateContainer:
        """The action that makes a small sleeping sandbox of that object."""
        name = container_name("box", uid)
        document: dict[str, Any] = {
            "image": TINY,
            "name": name,
            "limits": SMALL,
            "hostname": "box",
            "command": ("sleep", "1000"),
            **changes,
        }
        config = ContainerConfig(**document)
        own_document = container_labels(
            instance=self.instance_id,
            uid=uid,
            namespace="default",
            name="box",
            role="sandbox",
            generation=3,
            config_hash=config.hash(),
            template_hash="feedbeef",
        )
        return CreateContainer(uid, config, {**own_document, **(labels or {})}, why="a test")

    def made(self, uid: str, **changes: Any) -> Container:
        """A created sandbox, as the view has it."""
        ok(self.engine.act(self.create(uid, **changes)))
        return self.only(uid)

    def running(self, uid: str, **changes: Any) -> Container:
        """A created and started sandbox, as the view has it."""
        container = self.made(uid, **changes)
        ok(self.engine.act(StartContainer(uid, container.name, "a test", container.id)))
        return self.only(uid)

    def view(self, uid: str) -> tuple[Container, ...]:
        return self.engine.observe().containers.get(uid, ())

    def only(self, uid: str) -> Container:
        (container,) = self.view(uid)
        return container

    def state(self, uid: str) -> str:
        view = self.view(uid)
        return view[0].state if view else "absent"


def ok(outcome: Outcome) -> str:
    """The container id of an Ok; anything else fails the test with its words."""
    assert isinstance(outcome, Ok), outcome
    return outcome.container_id


def read_all(stream: Any) -> tuple[bytes, bytes, bytes]:
    """(stdout, stderr, exit) of a stream read to its end."""
    parts: dict[str, list[bytes]] = {"stdout": [], "stderr": [], "timeout": [], "exit": []}
    with contextlib.closing(stream):
        for chunk in stream:
            assert isinstance(chunk, Chunk)
            parts[chunk.stream].append(chunk.data)
    return b"".join(parts["stdout"]), b"".join(parts["stderr"]), b"".join(parts["exit"])


def new_instance_id() -> str:
    return f"test-{uuid.uuid4().hex[:12]}"


@contextlib.contextmanager
def fake_host() -> Iterator[EngineHost]:
    instance_id = new_instance_id()
    engine = FakeEngine(instance_id, clock=HandClock())
    yield EngineHost(instance_id, engine, engine, engine)
    engine.close()


@contextlib.contextmanager
def docker_host(base_url: str = SOCKET, *, hand: DockerHand | None = None, **options: Any) -> Iterator[EngineHost]:
    instance_id = new_instance_id()
    hand = hand or DockerHand()
    folder = tempfile.mkdtemp(prefix="paddock-users-")
    options = {"users_dir": Path(folder), **options}

    def make() -> DockerEngine:
        return DockerEngine(instance_id, base_url=base_url, clock=WallClock(), **options)

    engine = make()
    host = EngineHost(instance_id, engine, engine.streams, hand)
    host.remake = make
    try:
        yield host
    finally:
        host.engine.close()
        hand.clean(instance_id)
        shutil.rmtree(folder, ignore_errors=True)
