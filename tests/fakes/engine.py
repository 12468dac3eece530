"""FakeEngine: ports.Engine, Streams and UsageReader in memory. No threads, no I/O, generated ids and times.

It behaves as a Docker Engine does (tests/contract runs one suite on both) and takes hand-made trouble:

    engine = FakeEngine("i-1", clock=clock)
    engine.act(CreateContainer(...))              # as the planner's workers do
    engine.kill("pdk-web-0a1b2c3d")               # as somebody at the host does; seen at once, as by events
    engine.lose_events()                          # from now on hand-made changes are seen by a look only
    engine.go_down("connection refused")          # blind, until engine.come_up()
    engine.fail_next(StartContainer, Transient("StartFailed", "no"))
    engine.unreadable(uid)                        # listed but not inspectable: State.UNKNOWN
    engine.answers["pdk-web-0a1b2c3d", 8500] = 200  # what a port says to probes: a status, None: hangs; else refused
    engine.execs["check"] = 1                     # exit code of a probe's command that the shell does not know
    engine.programs["npm"] = fetch                # run with a sandbox's root folder and its words, not the shell's
    engine.at_rest = True                         # sandboxes started from now on use no CPU, all others what they may
    engine.unguarded = "no nft"                   # the host's firewall does not guard networks; seen at the next look
    engine.guard_unread = True                    # ... and that only for it could not be read
    engine.take_subnet("10.213.4.0/28")           # a network of somebody else's
    engine.hostile = {"seccomp": 0}               # sandboxes started from now on are so inside (fields of Inside)
    engine.calls, engine.looks                    # what was asked of it
"""

import hashlib
import re
import signal as signals
import threading
import uuid
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from controller.kinds.common import labels as own
from controller.kinds.common.chunk import Chunk
from controller.kinds.common.log_tail import GONE, tail_of
from controller.kinds.observed.inside import InsideState
from controller.kinds.observed.observed import (
    Container,
    End,
    FrozenMemory,
    HostFacts,
    Observation,
    OutOfBandSettings,
    State,
)
from controller.kinds.observed.swap import HibernationAbility
from controller.kinds.observed.usage import Usage
from controller.kinds.planning.action import (
    Action,
    BuildImage,
    ConnectNetwork,
    CreateContainer,
    DisconnectNetwork,
    HibernateContainer,
    PauseContainer,
    PullImage,
    ReadTail,
    RemoveContainer,
    RenameContainer,
    SignalContainer,
    StartContainer,
    UnpauseContainer,
    UpdateLimits,
    WakeContainer,
)
from controller.kinds.planning.outcome import (
    FILES_NOT_SAVED,
    FILES_TOO_LARGE,
    NOT_HIBERNATED,
    Ok,
    Outcome,
    Terminal,
    Transient,
    Waiting,
)
from controller.kinds.runtime import agent as agents
from controller.kinds.runtime.adopted_exec import ExecRef
from controller.kinds.runtime.container import ContainerConfig, Limits
from controller.kinds.runtime.disk import DiskAbility
from controller.kinds.runtime.mount import (
    BindMounts,
    CheckFiles,
    Mount,
    RemoveFiles,
    RemoveVolumes,
    SavedFiles,
    SaveFiles,
)
from controller.kinds.runtime.network import EnsureNetwork, Network, RemoveNetwork
from controller.kinds.runtime.probe import ProbeResult, Watch
from controller.kinds.runtime.runtime_choice import RuntimeChoice
from controller.kinds.runtime.snapshot import RestoreRoot
from controller.kinds.volume import HostVolume
from controller.policy.images import remedy
from controller.policy.network import egress
from controller.ports import Clock, StreamError, VolumeInUse, Wake
from tests.fakes.files import FakeFiles
from tests.fakes.images import FakeImages
from tests.fakes.inside import bound_of, inside_of, user_of
from tests.fakes.left import FakeAdoptedExecs
from tests.fakes.ports import FakePorts
from tests.fakes.shell import Run, run

TINY = "paddock/test-tiny:1"
FACTS = HostFacts(
    engine_version="fake",
    api_version="1.41",
    cpus=4,
    memory_bytes=16 << 30,
    cgroup_version="2",
    cgroup_driver="systemd",
    storage_driver="overlay2",
    default_runtime="runc",
    root_dir="/var/lib/docker",
    security_options=("name=seccomp,profile=default",),
    swap_limit=True,
    disk=DiskAbility(False, "the engine refuses a size for the writable layer"),
    runtimes=("runc",),
    runtime_choice=RuntimeChoice("", "NotRegistered", "runc: the engine has no crun"),
)
OnContainer = PauseContainer | UnpauseContainer | HibernateContainer | WakeContainer
_MEMORY_MIN_BYTES = 6 << 20
_LIVE = (State.RUNNING, State.PAUSED)
_ENDING = ("TERM", "KILL", "INT", "QUIT", "HUP")


# Parts of an engine that stay the same however often it is put back to an earlier state.
_LASTING = {"images", "image_store", "_files", "_ports", "left", "_clock", "_lock", "_do", "_wake"}


@dataclass
class FakeContainer:
    """One container as the engine has it."""

    id: str
    name: str
    labels: Mapping[str, str]
    image: str
    image_id: str
    limits: Limits
    created_at: float
    command: tuple[str, ...] | None = None
    networks: tuple[str, ...] = ("none",)
    names_on: dict[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)  # of peers, by network
    state: State = State.CREATED
    pid: int = 0
    started_at: float = 0.0
    finished_at: float = 0.0
    exit_code: int = 0
    oom_killed: bool = False
    error: str = ""
    out_of_band: OutOfBandSettings = field(default_factory=OutOfBandSettings)
    memory_used_bytes: int = 1 << 20
    swapped_bytes: int = 0
    at_rest: bool = False
    gpus: int = 0
    gpu_ids: tuple[str, ...] = ()
    ignores_term: bool = False
    output: list[tuple[float, Chunk]] = field(default_factory=list)
    config: ContainerConfig | None = None
    mounts: tuple[Mount, ...] = ()
    keeps: bool = False  # its files in memory outlive it
    cgroups_lost: bool = False
    limits_unread: bool = False
    stop_signal: str = ""
    written: dict[str, str] = field(default_factory=dict)  # files inside, by path
    unmounted: set[str] = field(default_factory=set)  # inside
    unrecorded: bool = False
    is_used: bool = False
    tampered: dict[str, Any] = field(default_factory=dict)

    def seen(self, *, readable: bool) -> Container:
        """As a view shows it."""
        generation = self.labels.get(own.GENERATION, "0")
        container = Container(
            id=self.id,
            name=self.name,
            uid=self.labels.get(own.UID, ""),
            namespace=self.labels.get(own.NAMESPACE, ""),
            object_name=self.labels.get(own.NAME, ""),
            state=self.state,
            role=self.labels.get(own.ROLE, "sandbox"),
            generation=int(generation),
            config_hash=self.labels.get(own.CONFIG_HASH, ""),
            template_hash=self.labels.get(own.TEMPLATE_HASH, ""),
            image=self.image,
            image_id=self.image_id,
            limits=None if (self.cgroups_lost or self.limits_unread) and self.state in _LIVE else self.limits,
            cgroups_lost=self.cgroups_lost and self.state in _LIVE,
            pid=self.pid,
            created_at=self.created_at,
            started_at=self.started_at,
            finished_at=self.finished_at,
            exit_code=self.exit_code,
            oom_killed=self.oom_killed,
            networks=self.networks,
            peer_names=tuple(sorted(name for names in self.names_on.values() for name in names)),
            error=self.error,
            out_of_band=self.out_of_band,
            inside=self._inside() if self.state in _LIVE else None,
            slots=tuple(mount_point.path for mount_point in self.config.mount_points) if self.config else (),
            bound=() if self.unrecorded else bound_of(self.mounts, self.keeps),
            unrecorded=self.unrecorded,
            is_used=self.is_used,
            revision=int(self.labels.get(own.REVISION, "0")),
            storage_bytes=self.config.storage_bytes if self.config else 0,
            agent=agents.volume_name(self.config.agent) if self.config else "",
            user=user_of(self.config) if self.config else "",
            stop_signal=self.stop_signal,
            working_dir=(self.config and self.config.working_dir) or "/workspace",  # as Paddock's images have it
            home=dict(self.config.env).get("HOME", "") if self.config else "",
            frozen_memory=self._frozen_memory(),
            runtime=(self.config and (self.config.runtime or self.config.host_runtime)) or "runc",
        )
        return container if readable else replace(container, state=State.UNKNOWN)

    def _frozen_memory(self) -> FrozenMemory | None:
        if self.state is not State.PAUSED:
            return None
        return FrozenMemory(self.memory_used_bytes - self.swapped_bytes, self.swapped_bytes)

    def _inside(self) -> InsideState:
        inside = inside_of(self.config, self.networks, self.tampered, self.mounts)
        return replace(inside, mounts=tuple(mount for mount in inside.mounts if mount.path not in self.unmounted))


class Stream(Iterator[Chunk]):
    """A stream that counts itself as open until it is closed or read to its end."""

    ref: ExecRef | None = None

    def __init__(self, chunks: Iterable[Chunk], opened: list["Stream"]) -> None:
        self._chunks = iter(chunks)
        self.ended = threading.Event()
        self.killed: Callable[[], None] = lambda: None
        self._opened = opened
        opened.append(self)

    def __next__(self) -> Chunk:
        if self not in self._opened:
            raise StopIteration
        try:
            return next(self._chunks)
        except StopIteration:
            self.close()
            raise

    def close(self) -> None:
        if self in self._opened:
            self._opened.remove(self)
            self.killed()
        self.ended.set()

    def detach_stream(self) -> None:
        self.killed = lambda: None
        self.close()

    def resize(self, rows: int, columns: int) -> None: ...
    def signal(self, name: str) -> None: ...


class FakeEngine:
    """Thread-safe. `images` are here, `registry` can be pulled. `before_act` is called first by every `act`."""

    def __init__(
        self,
        instance_id: str = "instance-1",
        *,
        clock: Clock,
        images: Iterable[str] = (TINY,),
        registry: Iterable[str] = (),
        facts: HostFacts = FACTS,
    ) -> None:
        self.instance_id = instance_id
        self.calls: list[Action] = []
        self.looks: list[bool] = []
        self.open_streams: list[Stream] = []
        self.hanging = False  # commands that do not end by themselves run until they are killed, not for their time
        self.commands: list[tuple[str, tuple[str, ...]]] = []  # that were started, with their sandboxes' containers
        self.images = {name: _digest("image", name) for name in images}
        self.registry = set(registry)
        self.building: set[str] = set()
        self.stop_signals: dict[str, str] = {}  # by image id
        self.start_exits: dict[str, int] = {}
        self.answers: dict[tuple[str, int], int | None] = {}
        self.execs: dict[str, int] = {}
        self.probes_run: list[Watch] = []
        self.programs: dict[str, Callable[[Path, Sequence[str]], Run]] = {}
        self.escaping: set[str] = set()  # sandboxes whose commands leave processes behind when their time is over
        self.at_rest = False
        self.hibernation = HibernationAbility(True, "CompressedMemory", "1Gi free", 1 << 30)  # of the host
        self.gpu_driver = False
        self.hostile: dict[str, Any] = {}
        self.before_act: Callable[[Action], None] | None = None
        self._files, self._ports, self.adopted_execs = FakeFiles(), FakePorts(), FakeAdoptedExecs()
        self.image_store = FakeImages(
            self.images,
            lambda: {sandbox.image_id for sandbox in self._containers.values()},
            lambda: {
                sandbox.config.agent for sandbox in self._containers.values() if sandbox.config and sandbox.config.agent
            },
        )
        self._clock = clock
        self.facts = facts
        self._lock = threading.RLock()
        self._containers: dict[str, FakeContainer] = {}
        self._made = 0
        self._pids = 1000
        self._down = ""
        self._deaf = False
        self._ends: dict[str, End] = {}
        self._lost = (0.0, 0.0)
        self._unreadable: set[str] = set()
        self.unguarded, self.guard_unread = "", False
        self.networks: dict[str, Network] = {}
        self._foreign_subnets: set[str] = set()
        self.places: dict[str, dict[str, Mount]] = {}  # by uid: what is bound where
        self.in_memory: dict[str, dict[str, str]] = {}  # by uid: a text for each folder that is held in memory
        self.saved_files: dict[str, dict[str, str]] = {}  # the same on disk
        self.keeping: set[str] = set()  # uids whose files in memory outlive their container
        self.too_large: set[str] = set()  # uids whose files can't be saved
        self.secrets: set[str] | None = None  # that are there; None: any
        self.folders: set[str] | None = None  # of this host, that can be bound; None: any
        self.volumes: dict[tuple[str, str], int] = {}  # by namespace and name: how large each is
        self.claims: dict[tuple[str, str], str] = {}  # of those that a sandbox has for itself: which one
        self._failures: dict[type, deque[Outcome]] = defaultdict(deque)
        self._now = Observation()
        self._wake: Wake = lambda: None
        self._do: dict[type, Callable[..., Outcome]] = {
            PullImage: self._pull,
            BuildImage: self._build,
            CreateContainer: self._create,
            StartContainer: self._start,
            SignalContainer: self._signal,
            PauseContainer: self._pause,
            UnpauseContainer: self._unpause,
            HibernateContainer: self._hibernate,
            WakeContainer: self._unpause,
            UpdateLimits: self._update,
            RenameContainer: self._rename,
            DisconnectNetwork: self._network,
            ConnectNetwork: self._network,
            ReadTail: self._read_tail,
            RemoveContainer: self._remove,
            EnsureNetwork: self._make_network,
            RemoveNetwork: self._remove_network,
            BindMounts: self._bind,
            RemoveVolumes: self._remove_volumes,
            CheckFiles: self._check_files,
            SaveFiles: self._save_files,
            RemoveFiles: self._remove_files,
            RestoreRoot: lambda action: Ok(action.container_id),
        }

    # ports.Engine

    @property
    def streams(self) -> "FakeEngine":
        return self

    @property
    def probes(self) -> "FakeEngine":
        return self

    @property
    def files(self) -> FakeFiles:
        return self._files

    @property
    def ports(self) -> FakePorts:
        return self._ports

    def open(self, wake: Wake) -> None:
        self._wake = wake
        self.observe_now(full=True)

    def close(self) -> None:
        for stream in list(self.open_streams):
            stream.close()
        self._files.close()

    def observe(self) -> Observation:
        return self._now

    def request_observation(self, *, full: bool = False) -> None:
        self.observe_now(full=full)

    def observe_now(self, *, full: bool = False) -> Observation:
        with self._lock:
            self.looks.append(full)
            self._show(observe_now=True)
        return self._now

    def ping(self) -> str:
        return self._down

    def observe_container(self, container_id: str) -> str:
        with self._lock:
            container = self._containers.get(container_id)
            if self._down or container is None:
                return self._down or f"no such container: {container_id[:12]}"
            self._show(act=container.labels.get(own.UID, ""))
            return ""

    def mark_used(self, container_id: str) -> None:
        with self._lock:
            if container := self._containers.get(container_id):
                container.is_used = True
                self._show(act=container.labels.get(own.UID, ""))

    def act(self, action: Action) -> Outcome:
        if self.before_act is not None:
            self.before_act(action)
        with self._lock:
            self.calls.append(action)
            if self._failures[type(action)]:
                return self._failures[type(action)].popleft()
            if self._down:
                return Waiting(2.0, "EngineUnreachable", self._down)
            outcome = self._do[type(action)](action)
            self._show(act=getattr(action, "uid", ""))
            return outcome

    def saved(self) -> Mapping[str, Any]:
        """Return all that it has, for `restore`; but for what is in its files and its store of images."""
        with self._lock:
            return {name: _copied(value) for name, value in vars(self).items() if name not in _LASTING}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Make everything as it was then."""
        with self._lock:
            vars(self).update({name: _copied(value) for name, value in saved.items()})

    # Trouble made by hand

    def container(self, name: str) -> FakeContainer:
        """The container of that name, ours or not. KeyError if there is none."""
        return (
            next(sandbox for sandbox in self._containers.values() if sandbox.name == name)
            if self.exists(name)
            else _no_container(name)
        )

    def exists(self, name: str) -> bool:
        return any(sandbox.name == name for sandbox in self._containers.values())

    def kill(self, name: str, signal: str = "KILL") -> None:
        """`docker kill`."""
        with self._by_hand():
            self._deliver(self.container(name), signal)

    def stop(self, name: str) -> None:
        """`docker stop`: TERM, then KILL."""
        with self._by_hand():
            container = self.container(name)
            self._deliver(container, "TERM")
            self._deliver(container, "KILL")

    def start(self, name: str) -> None:
        """`docker start`."""
        with self._by_hand():
            self._run(self.container(name))

    def exit(self, name: str, code: int, *, oom: bool = False, early: float = 0.0) -> None:
        """The main process ends by itself; with `oom`, by the kernel. `early`: so long before its start was noted."""
        with self._by_hand():
            container = self.container(name)
            _end(container, code, container.started_at - early if early else self._clock.now(), oom=oom)

    def remove(self, name: str) -> None:
        """`docker rm -f`."""
        with self._by_hand():
            self._drop(self.container(name))

    def rename(self, name: str, new: str) -> None:
        """`docker rename`."""
        with self._by_hand():
            if self.exists(new):
                raise ValueError(f"the name {new} is taken")
            self.container(name).name = new

    def pause(self, name: str) -> None:
        """`docker pause`."""
        with self._by_hand():
            self.container(name).state = State.PAUSED

    def unpause(self, name: str) -> None:
        """`docker unpause`."""
        with self._by_hand():
            self.container(name).state, self.container(name).swapped_bytes = State.RUNNING, 0

    def update_limits(self, name: str, limits: Limits) -> None:
        """`docker update`."""
        with self._by_hand():
            self.container(name).limits = limits

    def update(self, name: str, **changes: Any) -> None:
        """`docker update` of what no spec asks for: the fields of OutOfBandSettings, and `cpu_shares`."""
        with self._by_hand():
            container = self.container(name)
            container.limits = replace(
                container.limits, cpu_shares=changes.pop("cpu_shares", container.limits.cpu_shares)
            )
            container.out_of_band = replace(container.out_of_band, **changes)

    def connect(self, name: str, *networks: str) -> None:
        """`docker network connect` and `disconnect`: these networks and no others."""
        with self._by_hand():
            self.container(name).networks = tuple(sorted(networks))

    def take_subnet(self, subnet: str) -> None:
        """`docker network create --subnet`, by somebody else."""
        self._foreign_subnets.add(subnet)

    def unmount(self, name: str, path: str) -> None:
        """Unmount a sandbox's mount on the host, out of band."""
        with self._by_hand():
            container = self.container(name)
            self.places[container.labels[own.UID]].pop(path, None)
            container.mounts = tuple(mount for mount in container.mounts if mount.path != path)

    def unmount_inside(self, name: str, path: str) -> None:
        """`umount` in the sandbox's mount namespace, as root of the host: no event tells of it."""
        self.container(name).unmounted.add(path)

    def unmount_places(self, name: str) -> None:
        """Unmount all at the mount points of this host; the sandbox keeps what it has."""

    def write_inside(self, name: str, path: str, text: str) -> None:
        self.container(name).written[path] = text

    def read_inside(self, name: str, path: str) -> str:
        return self.container(name).written[path]

    def lose_cgroups(self, name: str) -> None:
        """Move its processes out of its cgroups, and remove these; no event tells of it."""
        self.container(name).cgroups_lost = True

    def lose_record(self, name: str) -> None:
        """Take the record of its mounts away; seen by the next daemon."""
        self.container(name).unrecorded = True

    def remove_network(self, name: str) -> None:
        """`docker network rm`: refused while a container that runs is on it."""
        with self._by_hand():
            if self._in_use(name):
                raise ValueError(f"network {name} has active endpoints")
            del self.networks[name]

    def cut_network(self, name: str, **observed: Any) -> None:
        """Change what the host's kernel has of a bridge: `is_linked` (`ip link del`), `leads_out` (flushed rules)."""
        with self._by_hand():
            self.networks[name] = replace(self.networks[name], **observed)

    def replace_network(self, name: str, config_hash: str) -> None:
        """`docker network rm` and `create` of one of ours, as another version of Paddock would make it."""
        with self._by_hand():
            self.networks[name] = replace(self.networks[name], config_hash=config_hash)

    def tamper(self, name: str, **changes: Any) -> None:
        """Tamper with the inside (fields of Inside); observed at the next observation, and gone with the run."""
        self.container(name).tampered.update(changes)

    def open_root(self, name: str) -> None:
        """Run `mount -o remount,rw /` in the sandbox, as root of the host."""
        inside = self.container(name).seen(readable=True).inside
        assert inside is not None
        mounts = (replace(mount, writable=True) if mount.path == "/" else mount for mount in inside.mounts)
        self.tamper(name, mounts=tuple(mounts))

    def use_memory(self, name: str, count: int) -> None:
        """Set the sandbox's memory use."""
        self.container(name).memory_used_bytes = count

    def add_image(self, name: str) -> None:
        """`docker build`; an image that had that name is another one, and gone."""
        self.images[name] = _digest("image", name, self.images.get(name, ""))

    def build_image(self, name: str, *, ours: bool, path: str = "made") -> str:
        """The same, of something new (a file at `path`); with `ours` as Paddock's own recipes do it. Its id."""
        with self._by_hand():
            self.add_image(name)
            self.image_store.built[self.images[name]] = ours
            return self.images[name]

    def build_with_stop_signal(self, name: str, signal: str) -> None:
        """`docker build` of TINY with that STOPSIGNAL."""
        self.add_image(name)
        self.stop_signals[self.images[name]] = signal.removeprefix("SIG")

    def remove_image(self, name: str) -> None:
        """`docker rmi -f`."""
        with self._by_hand():
            del self.images[name]

    def add_foreign(self, name: str, labels: Mapping[str, str] | None = None) -> str:
        """A running container that somebody else made; its id."""
        with self._by_hand():
            container = self._new_container(name, labels or {}, TINY, _digest("image", TINY), Limits(0, 0, 0))
            self._run(container)
            return container.id

    def lose_events(self) -> None:
        """Lose the event stream: out-of-band changes are seen at the next observation only."""
        self._deaf = True

    def hear_events(self) -> None:
        """Restore the event stream, with a full resync."""
        self._deaf = False
        self.observe_now(full=True)

    def go_down(self, why: str = "no Docker Engine answers: connection refused") -> None:
        """The engine stops answering; containers go on."""
        with self._lock:
            self._down = why
            self._show(observe_now=True)

    def forget(self) -> None:
        """Know nothing of what was seen before, as a daemon that has just started."""
        with self._lock:
            self._now = Observation(blind=self._down or "not observed yet")

    def come_up(self) -> None:
        """The engine answers again, and is looked at in full."""
        self._down = ""
        self.observe_now(full=True)

    def shut_down(self, exit_code: int = 137) -> None:
        """Stop the engine as by `systemctl stop docker`: it ends every container, with events."""
        with self._by_hand():
            for container in self._containers.values():
                _end(container, exit_code, self._clock.now())

    def restart(self, *, live_restore: bool = False, exit_code: int = 137) -> None:
        """`systemctl restart docker`: without live-restore every container ends with it. Seen once it is up again."""
        with self._lock:
            if not live_restore:
                for container in self._containers.values():
                    _end(container, exit_code, self._clock.now())
                self._lost = (self._clock.now() - 15, self._clock.now())

    def fail_next(self, action_type: type, *outcomes: Outcome) -> None:
        """The next actions of that type do nothing and have these outcomes."""
        self._failures[action_type].extend(outcomes)

    def unreadable(self, uid: str) -> None:
        """Containers of that object can be listed but not inspected."""
        with self._by_hand():
            self._unreadable.add(uid)

    def readable(self, uid: str) -> None:
        with self._by_hand():
            self._unreadable.discard(uid)

    def say(self, name: str, text: str, stream: str = "stdout") -> None:
        """Write to the sandbox's log."""
        self.container(name).output.append((self._clock.now(), Chunk(stream, text.encode())))

    # ports.UsageReader

    def read(self, containers: Iterable[Container]) -> Mapping[str, Usage]:
        sandboxes = [self._containers[container.id] for container in containers if container.id in self._containers]
        return {sandbox.id: _usage(sandbox, self._clock.now()) for sandbox in sandboxes if sandbox.state in _LIVE}

    # ports.CpuReader

    def cpu_seconds(self, containers: Iterable[Container]) -> Mapping[str, float]:
        return {id_: entry.cpu_usage_seconds for id_, entry in self.read(containers).items()}

    # ports.Probes

    def probe(self, watch: Watch) -> ProbeResult:
        self.probes_run.append(watch)
        probe = watch.probe
        try:
            container = self._reachable(watch.run[0])
        except StreamError as error:
            return ProbeResult("unknown", str(error))
        if container.state is not State.RUNNING:
            return ProbeResult(
                "unknown", f"the sandbox is not running: container {container.name} is {container.state}"
            )
        if probe.exec is not None:
            return self._exec_probe(probe.exec.command, probe.timeout_seconds)
        port = (probe.http_get or probe.tcp_socket).port
        if (container.name, port) not in self.answers:
            return ProbeResult("failure", f"port {port}: connection refused")
        status = self.answers[container.name, port]
        if status is None:
            return ProbeResult("failure", f"port {port}: no answer within {probe.timeout_seconds} s")
        if probe.http_get is not None and not 200 <= status < 400:
            return ProbeResult("failure", f"GET {probe.http_get.path} on port {port}: HTTP status {status}")
        return ProbeResult("success")

    def _exec_probe(self, command: Sequence[str], timeout_seconds: int) -> ProbeResult:
        detached = self.execs.get(command[0])
        done = run(command) if detached is None else Run((), detached)
        code = done.exit_code
        if code is None:
            return ProbeResult("failure", f"no answer within {timeout_seconds} s; the command was killed")
        output = b"".join(chunk.data for chunk in done.output).decode().strip()
        return ProbeResult("failure", f"exit code {code}: {output}".rstrip(": ")) if code else ProbeResult("success")

    # ports.Streams

    def logs(
        self,
        container_id: str,
        *,
        follow: bool = False,
        tail: int | None = None,
        since: float | None = None,
        until: float | None = None,
        timestamps: bool = False,
    ) -> Stream:
        container = self._reachable(container_id)
        stored = [(at, chunk) for at, chunk in container.output if since is None or at >= since]
        kept = stored if tail is None else stored[len(stored) - min(tail, len(stored)) :]
        kept = [(at, chunk) for at, chunk in kept if until is None or at <= until]
        lines = [Chunk(chunk.stream, f"{at} ".encode() + chunk.data) if timestamps else chunk for at, chunk in kept]
        return Stream(lines, self.open_streams)

    def inspect(self, container_id: str) -> Mapping[str, Any]:
        container = self._reachable(container_id)
        env = [f"{name}={value}" for name, value in (container.config.env if container.config else ())]
        state = {"Status": str(container.state), "Running": container.state is State.RUNNING, "Pid": container.pid}
        return {
            "Id": container.id,
            "Name": f"/{container.name}",
            "State": state,
            "Config": {"Env": env, "Labels": container.labels},
        }

    def exec(
        self,
        container_id: str,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        working_dir: str = "",
        user: str = "",
        stdin: Iterable[bytes] | None = None,
        timeout_seconds: float | None = None,
        tty: bool = False,
        size: tuple[int, int] | None = None,
        escaped: Callable[[str], None] | None = None,
        prepared: Callable[[ExecRef], None] | None = None,
        hangs_up: bool = False,
    ) -> Stream:
        container = self._reachable(container_id)
        if container.state is not State.RUNNING:
            raise StreamError(
                f"the sandbox is not running: container {container.name} is {container.state}; ask again once Ready"
            )
        leaves = container.name in self.escaping

        def chunks() -> Iterator[Chunk]:  # it has begun before it has read its input
            program = self.programs.get(command[0])
            done = program(self._files.root(container_id), command) if program else run(command, stdin or ())
            yield from (Chunk("stdout", chunk.data) if tty else chunk for chunk in done.output)
            if done.exit_code is None and self.hanging:
                stream.ended.wait()
                return
            if done.exit_code is None:
                if escaped is not None and leaves:
                    escaped("processes that can't be told from the sandbox's own")
                yield Chunk("timeout", b"")
            yield Chunk("exit", str(124 if done.exit_code is None else done.exit_code).encode())

        def begins() -> None:
            self.commands.append((container.name, tuple(command)))
            expected = stdin is None and command[0] not in self.programs
            self.adopted_execs.start(ref, run(command).exit_code if expected else 0)

        ref = self.adopted_execs.prepare(container.id, begins)
        if prepared is not None:
            prepared(ref)
        stream = Stream(chunks(), self.open_streams)
        stream.ref = ref
        begins()
        stream.killed = lambda: self.adopted_execs.end(ref)
        return stream

    def _reachable(self, container_id: str) -> FakeContainer:
        if self._down:
            raise StreamError(self._down)
        container = self._containers.get(container_id)
        if container is None:
            raise StreamError("the container is gone; retry once the sandbox is Ready")
        if not self._is_ours(container):
            raise StreamError(f"container {container_id[:12]}: not managed by Paddock; it is never touched")
        return container

    # What the engine does

    def _pull(self, action: PullImage) -> Outcome:
        if action.image not in self.images:
            if action.image not in self.registry:
                return Transient("ImagePullFailed", f"{action.image} is not on this host; {remedy(action.image)}")
            self.images[action.image] = _digest("image", action.image)
        return Ok()

    def _build(self, action: BuildImage) -> Outcome:
        if action.image in self.images:
            return Ok()
        if action.image in self.building:
            return Waiting(2.0, "ImageBuilding", f"{action.image} is being built on this host: 0 s")
        reasons = {egress.IMAGE: "EgressImageMissing", agents.IMAGE: "AgentImageMissing"}
        message = f"{action.image} is not on this host, and the daemon does not build it; {remedy(action.image)}"
        return Transient(reasons.get(action.image, "ImageMissing"), message)

    def _create(self, action: CreateContainer) -> Outcome:
        config = action.config
        if action.labels.get(own.INSTANCE) != self.instance_id or action.labels.get(own.UID) != action.uid:
            return Terminal("InvalidConfig", f"{config.name}: its labels belong to another store or object")
        message = self._refused(config.limits)
        if message:
            return Terminal("InvalidConfig", f"the engine refuses this configuration: {message}")
        if config.storage_bytes and not (self.facts.disk and self.facts.disk.enforced):
            return Transient("EngineError", "the engine answered with an error: --storage-opt is not supported here")
        image_id = self._image_id(action)
        if image_id is None:
            advice = "change spec.template" if action.image_id else remedy(config.image)
            return Transient("ImageMissing", f"{config.image} is not on this host; {advice}")
        if config.slots and action.uid not in self.places:
            return Terminal("InvalidConfig", "the engine refuses this configuration: bind source path does not exist")
        if config.agent:
            agent = self._agent(config.agent)
            if not agent:
                text = f"the agent's image {agents.IMAGE} is not on this host; run `images/build.sh agent`"
                return Transient("AgentImageMissing", text)
            config = replace(config, agent=agent)
        holder = next((sandbox for sandbox in self._containers.values() if sandbox.name == config.name), None)
        if holder is not None:
            if self._is_ours(holder) and holder.labels.get(own.UID) == action.uid:
                return Ok(holder.id)
            return Transient("NameConflict", f"the name {config.name} is taken by the container {holder.id[:12]}")
        return Ok(self._new_container_of(config, action.labels, action.image_id or config.image, image_id).id)

    def _image_id(self, action: CreateContainer) -> str | None:
        if action.image_id:
            present = action.image_id in (*self.images.values(), *self.image_store.built)
            return action.image_id if present else None
        return self.images.get(action.config.image)

    def _agent(self, reference: str) -> str:
        """The image of that agent's runtime, which is filled if missing; "" if its image is not here."""
        filled, images = self.image_store.runtimes, set(self.images.values())
        image = reference if agents.volume_name(reference) else self.images.get(agents.IMAGE, "")
        image = image or next(reversed(filled), "")
        if image in images:
            filled.setdefault(image)
        return image if image in filled else ""

    def _make_network(self, action: EnsureNetwork) -> Outcome:
        existing = self.networks.get(action.name)
        network = Network(
            id=_digest("network", action.name, str(len(self.calls))),
            name=action.name,
            uid=action.uid,
            role=action.labels.get(own.ROLE, ""),
            config_hash=action.labels.get(own.CONFIG_HASH, ""),
            subnet=action.config.subnet,
            namespace=action.labels.get(own.NAMESPACE, ""),
            object_name=action.labels.get(own.NAME, ""),
        )
        if existing is not None and replace(existing, id=network.id) == network:
            return Ok()
        if existing is not None and existing.uid != action.uid:
            return Transient("NameConflict", f"the network {action.name} belongs to another object")
        if existing is not None and self._in_use(action.name):
            return Waiting(1.0, "NetworkInUse", f"{action.name} has active endpoints")
        subnets = {entry.subnet for name, entry in self.networks.items() if name != action.name}
        if action.config.subnet in subnets | self._foreign_subnets:
            return Transient("SubnetTaken", f"subnet {action.config.subnet}: already in use on this host")
        self.networks[action.name] = network
        return Ok()

    def _remove_network(self, action: RemoveNetwork) -> Outcome:
        network = self.networks.get(action.name)
        if network is None:
            return Ok()
        if network.uid != action.uid:
            return Transient("NameConflict", f"the network {action.name} belongs to another object")
        if self._in_use(action.name):
            return Waiting(1.0, "NetworkInUse", f"{action.name} has active endpoints")
        del self.networks[action.name]
        return Ok()

    def _bind(self, action: BindMounts) -> Outcome:
        container = self._containers.get(action.container_id)
        if action.container_id and container is None:
            return _gone(action.name)
        if container is not None and not self._is_ours(container, action.uid):
            return _hands_off(container)
        if not action.container_id:
            self.places[action.uid] = {}
            in_memory = self.in_memory.pop(action.uid, {}) if action.keep_files else {}
            saved = self.saved_files.pop(action.uid, {}) if action.keep_files else {}
            self.in_memory[action.uid] = {**saved, **in_memory}
        if action.uid not in self.places:
            return Transient("MountFailed", f"{action.name}: no such file or directory")
        (self.keeping.add if action.keep_files else self.keeping.discard)(action.uid)
        for mount in action.mounts:
            if mount.kind == "host" and self.folders is not None and mount.source not in self.folders:
                return Transient("MountRefused", f"{mount.source} does not exist; create the folder, or use another")
            if mount.kind == "secret" and self.secrets is not None and mount.source not in self.secrets:
                return Transient("SecretMissing", f"secret {mount.source}: not found")
            if mount.kind == "volume":
                key = (action.namespace, mount.source)
                if key in self.volumes and mount.claimed_by not in ("", self.claims.get(key, "")):
                    return Transient("MountRefused", f"volume `{mount.source}` belongs to another sandbox")
                if key not in self.volumes and mount.claimed_by:
                    self.claims[key] = mount.claimed_by
                if self.volumes.get(key, 0) > mount.size_bytes:
                    return Transient("MountRefused", f"volume `{mount.source}` is larger, and volumes never shrink")
                self.volumes[key] = mount.size_bytes
            self.places[action.uid][mount.path] = mount
        for container in self._containers.values():
            if self._is_ours(container, action.uid):
                container.mounts = tuple(self.places[action.uid].values())
                container.keeps = action.uid in self.keeping
                container.unmounted -= {entry.path for entry in action.mounts}
                container.unrecorded = container.unrecorded and bool(action.container_id)
        return Ok(action.container_id)

    def _check_files(self, action: CheckFiles) -> Outcome:
        if action.uid in self.too_large:
            return Transient(FILES_TOO_LARGE, f"{action.name}: its files in memory are too large")
        return Ok()

    def _save_files(self, action: SaveFiles) -> Outcome:
        sandboxes = [sandbox for sandbox in self._containers.values() if self._is_ours(sandbox, action.uid)]
        if any(sandbox.state in _LIVE for sandbox in sandboxes):
            return Waiting(0.1, "StillRunning", f"{action.name} runs")
        if action.keep and action.uid in self.too_large:
            return Transient(FILES_NOT_SAVED, f"{action.name}: its files in memory are too large")
        files = {**self.saved_files.pop(action.uid, {}), **self.in_memory.pop(action.uid, {})}
        for entry in sandboxes:
            entry.mounts = tuple(mount for mount in entry.mounts if mount.kind in ("host", "volume"))
        self.places[action.uid] = {mount.path: mount for container in sandboxes for mount in container.mounts}
        if not action.keep:
            return Ok()
        if files:
            self.saved_files[action.uid] = files
        size_bytes = sum(map(len, files.values()))
        return Ok(saved=SavedFiles(size_bytes, len(files), at=self._clock.now()))

    def _remove_files(self, action: RemoveFiles) -> Outcome:
        self._forget_files(action.uid)
        return Ok()

    def _forget_files(self, uid: str) -> None:
        self.in_memory.pop(uid, None)
        self.saved_files.pop(uid, None)

    def _remove_volumes(self, action: RemoveVolumes) -> Outcome:
        for volume in action.volumes:
            key = (action.namespace, volume)
            if self.claims.get(key, "") in ("", action.claimed_by):
                self.drop_volume(key)
        return Ok()

    def drop_volume(self, key: tuple[str, str]) -> None:
        self.volumes.pop(key, None)
        self.claims.pop(key, None)

    @property
    def kept_volumes(self) -> "FakeVolumes":
        return FakeVolumes(self)

    def mounts_volume(self, namespace: str, name: str) -> bool:
        """Tell whether a container of that namespace has it mounted."""
        return any(
            mount.kind == "volume" and mount.source == name
            for container in self._containers.values()
            if container.labels.get(own.NAMESPACE) == namespace
            for mount in container.mounts
        )

    def _in_use(self, network: str) -> bool:
        return any(network in sandbox.networks and sandbox.state in _LIVE for sandbox in self._containers.values())

    def _start(self, action: StartContainer) -> Outcome:
        container = self._containers.get(action.container_id)
        if not action.container_id and self.exists(action.name):
            container = self.container(action.name)
        if container is None:
            return _gone(action.name)
        if not self._is_ours(container, action.uid):
            return _hands_off(container)
        if container.state is State.PAUSED:
            return Transient("StartFailed", f"{container.name} does not start: it is paused, unpause it")
        if container.gpus and not self.gpu_driver:
            return Terminal("NoDeviceDriver", f"{container.name} requests gpus; this engine has no driver for them")
        if container.state is not State.RUNNING:
            lacking = [
                network for network in container.networks if network.startswith("pd") and network not in self.networks
            ]
            if lacking:
                return Transient("StartFailed", f"{container.name} does not start: network {lacking[0]} not found")
            self._run(container)
        return Ok(container.id)

    def _signal(self, action: SignalContainer) -> Outcome:
        container = self._containers.get(action.container_id)
        if container is not None:
            if not self._is_ours(container, action.uid):
                return _hands_off(container)
            self._deliver(container, action.signal)
        return Ok(action.container_id)

    def _pause(self, action: PauseContainer) -> Outcome:
        return self._switch(action, State.RUNNING, State.PAUSED)

    def _unpause(self, action: UnpauseContainer | WakeContainer) -> Outcome:
        return self._switch(action, State.PAUSED, State.RUNNING)

    def _hibernate(self, action: HibernateContainer) -> Outcome:
        if not self.hibernation.available:
            return Transient(NOT_HIBERNATED, f"{action.name} is not hibernated: {self.hibernation.message}")
        outcome = self._switch(action, State.RUNNING, State.PAUSED)
        if isinstance(outcome, Ok):
            container = self._containers[action.container_id]
            container.swapped_bytes = container.memory_used_bytes
        return outcome

    def _switch(
        self,
        action: PauseContainer | UnpauseContainer | HibernateContainer | WakeContainer,
        before: State,
        after: State,
    ) -> Outcome:
        container = self._containers.get(action.container_id)
        if container is None:
            return _gone(action.name)
        if not self._is_ours(container, action.uid):
            return _hands_off(container)
        if container.state not in (before, after):
            return Transient("Conflict", f"container {container.name} is not {before}")
        container.state = after
        container.swapped_bytes = container.swapped_bytes if after is State.PAUSED else 0
        return Ok(container.id)

    def _update(self, action: UpdateLimits) -> Outcome:
        container = self._containers.get(action.container_id)
        if container is None:
            return _gone(action.name)
        if not self._is_ours(container, action.uid):
            return _hands_off(container)
        message = self._refused(action.limits)
        if message:
            return Terminal("InvalidConfig", f"the engine refuses this configuration: {message}")
        if container.state in _LIVE and container.memory_used_bytes > action.limits.memory_bytes:
            return Waiting(5.0, "MemoryInUse", f"{container.name} uses {container.memory_used_bytes} bytes")
        shares = action.limits.cpu_shares or container.limits.cpu_shares
        container.limits = replace(action.limits, cpu_shares=shares, disk_bytes=0, gpus=0)
        container.out_of_band = replace(container.out_of_band, swap_bytes=0, restart_policy="no")
        return Ok(container.id)

    def _rename(self, action: RenameContainer) -> Outcome:
        container = self._containers.get(action.container_id)
        if container is None:
            return _gone(action.name)
        if not self._is_ours(container, action.uid):
            return _hands_off(container)
        if container.name != action.name and self.exists(action.name):
            return Transient("NameConflict", f"the name {action.name} is taken by another container")
        container.name = action.name
        return Ok(container.id)

    def _network(self, action: DisconnectNetwork | ConnectNetwork) -> Outcome:
        container = self._containers.get(action.container_id)
        if not action.container_id and self.exists(action.name):
            container = self.container(action.name)
        if container is None:
            return Ok(action.container_id) if isinstance(action, DisconnectNetwork) else _gone(action.name)
        if not self._is_ours(container, action.uid):
            return _hands_off(container)
        networks = set(container.networks) - {action.network}
        if isinstance(action, ConnectNetwork) and "none" in networks | {action.network} and networks:
            return Transient("Conflict", "a container on the network none is on no other")
        container.networks = tuple(
            sorted(networks | ({action.network} if isinstance(action, ConnectNetwork) else set()))
        )
        names = action.peer_names if isinstance(action, ConnectNetwork) else ()
        container.names_on = {**container.names_on, action.network: names}
        return Ok(container.id)

    def _read_tail(self, action: ReadTail) -> Outcome:
        container = self._containers.get(action.container_id)
        if container is None:
            return Ok(action.container_id, GONE)
        if not self._is_ours(container, action.uid):
            return _hands_off(container)
        text = b"".join(chunk.data for at, chunk in container.output if at >= action.since)
        return Ok(container.id, tail_of(text))

    def _remove(self, action: RemoveContainer) -> Outcome:
        container = self._containers.get(action.container_id)
        if container is not None:
            if not self._is_ours(container, action.uid):
                return _hands_off(container)
            self._drop(container)
            if not action.replaced and not any(
                self._is_ours(sandbox, action.uid) for sandbox in self._containers.values()
            ):
                self.places.pop(action.uid, None)
                self._forget_files(action.uid)
        return Ok(action.container_id)

    # Inside

    def _is_ours(self, container: FakeContainer, uid: str | None = None) -> bool:
        """Of this instance and, where a uid is given, of that object."""
        ours = container.labels.get(own.INSTANCE) == self.instance_id
        return ours and uid in (None, container.labels.get(own.UID))

    def _refused(self, limits: Limits) -> str:
        if limits.memory_bytes < _MEMORY_MIN_BYTES:
            return "Minimum memory limit allowed is 6MB"
        if limits.cpu_millicores > self.facts.cpus * 1000:
            return f"Range of CPUs is from 0.01 to {self.facts.cpus}.00"
        return ""

    def _new_container_of(
        self, config: ContainerConfig, labels: Mapping[str, str], image: str, image_id: str
    ) -> FakeContainer:
        limits = replace(config.limits, disk_bytes=0, gpus=0)  # no bound of any container
        container = self._new_container(config.name, labels, image, image_id, limits)
        container.command, container.gpus, container.gpu_ids = _command(config), config.gpus, config.gpu_ids
        container.networks, container.config = (config.network_mode,), config
        container.mounts = tuple(self.places.get(labels.get(own.UID, ""), {}).values())
        container.keeps = labels.get(own.UID, "") in self.keeping
        container.stop_signal = self.stop_signals.get(image_id, "")
        return container

    def _new_container(
        self, name: str, labels: Mapping[str, str], image: str, image_id: str, limits: Limits
    ) -> FakeContainer:
        self._made += 1
        id_ = _digest("container", self.instance_id, str(self._made)).removeprefix("sha256:")
        container = FakeContainer(id_, name, dict(labels), image, image_id, limits, created_at=self._clock.now())
        self._containers[id_] = container
        return container

    def _run(self, container: FakeContainer) -> None:
        self._pids += 1
        container.at_rest = self.at_rest
        container.state, container.pid, container.started_at = State.RUNNING, self._pids, self._clock.now()
        container.exit_code, container.oom_killed, container.error, container.cgroups_lost = 0, False, "", False
        container.tampered, container.unmounted = dict(self.hostile) if container.config else {}, set()
        done = run(container.command)
        container.output += [(self._clock.now(), chunk) for chunk in done.output]
        code = self.start_exits.get(container.name, done.exit_code)
        if code is not None:
            _end(container, code, self._clock.now())

    def _deliver(self, container: FakeContainer, signal: str) -> None:
        name = signal.removeprefix("SIG")
        trap = re.search(rf"trap 'exit (\d+)' {name}\b", " ".join(container.command or ()))
        if container.state in _LIVE and trap:
            _end(container, int(trap[1]), self._clock.now())
        ends = name == "KILL" or (name in _ENDING and not (name == "TERM" and container.ignores_term))
        if container.state in _LIVE and ends:
            _end(container, 128 + signals.Signals[f"SIG{name}"].value, self._clock.now())

    def _drop(self, container: FakeContainer) -> None:
        """Remove it by force, with an exit event if it ran."""
        if container.state in _LIVE:
            self._ends[container.id] = End(137, self._clock.now())
        del self._containers[container.id]

    def _by_hand(self) -> "_OutOfBand":
        return _OutOfBand(self)

    def _show(self, *, observe_now: bool = False, act: str | None = None) -> None:
        """Update the view: everything after an observation or an event, one object's after its action."""
        before = self._now
        if self._down:
            after = replace(before, blind=self._down)
        elif observe_now or not self._deaf:
            after = replace(
                before,
                containers=self._all(),
                blind="" if observe_now else before.blind,
                facts=replace(self.facts, agent=self.images.get(agents.IMAGE, "")),
                lost=self._lost,
                ends=MappingProxyType(dict(self._ends)),
                networks=MappingProxyType(dict(self.networks)),
                unguarded=self.unguarded if observe_now else before.unguarded,
                guard_lost=bool(self.unguarded) and not self.guard_unread if observe_now else before.guard_lost,
            )
        elif act is not None:
            mine = {uid: group for uid, group in self._all().items() if uid == act}
            groups = {uid: group for uid, group in before.containers.items() if uid != act}
            networks = MappingProxyType(dict(self.networks))
            after = replace(before, containers=MappingProxyType({**groups, **mine}), networks=networks)
        else:
            return
        relocated = after != before
        at = before.at if self._down else self._clock.now()
        self._now = replace(after, revision=before.revision + relocated, at=at)
        if relocated:
            self._wake()

    def _all(self) -> Mapping[str, tuple[Container, ...]]:
        document: dict[str, tuple[Container, ...]] = {}
        for container in sorted(self._containers.values(), key=lambda each: (each.created_at, each.id)):
            if self._is_ours(container):
                uid = container.labels.get(own.UID, "")
                document[uid] = (*document.get(uid, ()), container.seen(readable=uid not in self._unreadable))
        return MappingProxyType(document)


class FakeVolumes:
    """ports.Volumes: those of a FakeEngine."""

    def __init__(self, engine: FakeEngine) -> None:
        self._engine = engine

    def list(self, namespace: str | None = None) -> Sequence[HostVolume]:
        return [
            HostVolume(
                *key,
                uid=str(uuid.uuid5(uuid.NAMESPACE_URL, "/".join(key))),
                size_bytes=size,
                claimed_by=self._engine.claims.get(key, ""),
                mounted=self._engine.mounts_volume(*key),
            )
            for key, size in sorted(self._engine.volumes.items())
            if namespace in (None, key[0])
        ]

    def is_mounted(self, namespace: str, name: str) -> bool:
        return self._engine.mounts_volume(namespace, name)

    def remove(self, namespace: str, name: str) -> None:
        if self._engine.mounts_volume(namespace, name):
            raise VolumeInUse(f"volume `{name}` is still mounted in a container")
        self._engine.drop_volume((namespace, name))


class _OutOfBand:
    """An out-of-band change: under the lock, then reported like an event."""

    def __init__(self, engine: FakeEngine) -> None:
        self._engine = engine

    def __enter__(self) -> None:
        self._engine._lock.acquire()

    def __exit__(self, *_: object) -> None:
        try:
            self._engine._show()
        finally:
            self._engine._lock.release()


def _end(container: FakeContainer, code: int, now: float, *, oom: bool = False) -> None:
    if container.state in _LIVE:
        container.state, container.pid, container.exit_code, container.oom_killed, container.finished_at = (
            State.EXITED,
            0,
            code,
            oom,
            now,
        )


def _digest(*parts: str) -> str:
    return "sha256:" + hashlib.sha256("/".join(parts).encode()).hexdigest()


def _no_container(name: str) -> FakeContainer:
    raise KeyError(f"{name}: the container is gone")


def _gone(name: str) -> Outcome:
    return Waiting(0.1, "ContainerGone", f"the container {name} was removed meanwhile")


def _hands_off(container: FakeContainer) -> Outcome:
    return Transient(
        "ForeignContainer", f"the container {container.name} belongs to somebody else: Paddock never touches it"
    )


def _command(config: ContainerConfig) -> tuple[str, ...] | None:
    """The command that decides a sandbox's life: an agent's child, if it has one. Its images have no entrypoint."""
    if not config.agent or config.command is None:
        return config.command or config.args or None
    _, _, child = "\0".join(config.command).partition("\0--\0")
    return tuple(child.split("\0")) if child else None


def _usage(container: FakeContainer, now: float) -> Usage:
    seconds = (
        0.0 if container.at_rest else max(0.0, now - container.started_at) * container.limits.cpu_millicores / 1000
    )
    return Usage(
        source="cgroup2",
        cpu_usage_seconds=seconds,
        cpu_user_seconds=seconds,
        cpu_system_seconds=0.0,
        memory_usage_bytes=container.memory_used_bytes,
        memory_working_set_bytes=container.memory_used_bytes,
        memory_rss_bytes=container.memory_used_bytes,
        memory_cache_bytes=0,
        pids=1,
        pids_limit=container.limits.pids or None,
        memory_limit_bytes=container.limits.memory_bytes or None,
        cpu_limit_cores=container.limits.cpu_millicores / 1000 or None,
    )


def _copied(value: Any) -> Any:
    """Return it so that no later change reaches it: a collection, or what it holds."""
    if isinstance(value, FakeContainer):
        copies = {name: copy(getattr(value, name)) for name in ("output", "tampered", "written", "unmounted")}
        return replace(value, **copies)
    if isinstance(value, dict):
        created = copy(value)
        created.update((key, _copied(entry)) for key, entry in value.items())
        return created
    return copy(value) if isinstance(value, list | set | deque) else value
