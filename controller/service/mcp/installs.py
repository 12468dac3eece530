"""Installs of MCP servers' packages: fetched in a sandbox of level build, built into an image, recorded in the status.

Each set of packages is installed once for the host, whichever servers name it. What an earlier daemon began is removed
at the start, and begun anew.

Not a Dockerfile for the image service: its RUN would execute what packages bring in a build, outside of any sandbox.
"""

import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import structlog
from pydantic import ValidationError

from controller.kinds.mcpserver import INSTALL_LABEL, INSTALLED, READY, MCPServerSpec, ready_condition
from controller.kinds.meta import Condition, StoredObject
from controller.kinds.runtime.files import FileRequest
from controller.kinds.runtime.package_hosts import Registries
from controller.kinds.sandbox import KIND as SANDBOX
from controller.policy.foreign_tools import plain
from controller.policy.images import has_recipe, is_own, remedy
from controller.policy.levels.levels import Policy
from controller.policy.mcpserver import install_plan, launch_of
from controller.policy.packages.install import (
    FETCHED,
    FOLDER,
    NAMESPACE,
    InstallPlan,
    failure,
    install_sandbox,
    install_status,
    installed,
    program_of,
    read_lock,
)
from controller.policy.packages.launch import Launch, LaunchError
from controller.ports import Engine, StreamError
from controller.processes.keeper import Periodic
from controller.service import errors
from controller.service.access import access
from controller.service.exec.collected_output import Collected, Collector
from controller.service.exec.streams import SandboxStreams
from controller.service.images.images import ImageService
from controller.service.mcp.server import Server
from controller.service.mcp.servers import McpServers
from controller.service.objects.objects import Objects
from controller.service.objects.write import Write
from controller.service.sandbox.files import SandboxFiles

AT_ONCE = 2
_WRITTEN_BY = "mcp"
_TICK_SECONDS = 1.0
_START_SECONDS = 90.0
_LOOK_SECONDS = 0.1
_IMAGE_BUILDING, _NO_IMAGE = "ImageBuilding", ("ImageMissing", "ImageBuildFailed")
_OUTPUT_BYTES = 8 << 20  # of one command: a lock of some hundred packages is smaller
_LAST_LINES, _LAST_LETTERS = 12, 1500
_FIRST_DELAY, _MOST_DELAY = 15.0, 900.0
_SEEN_SECONDS = 30.0  # after which an installed image is looked for again
_UNFINISHED = ("Installing", "InstallFailed")
_REPORTED = ("reason", "message", "observedGeneration")
_log = structlog.get_logger("paddock.mcp")


@dataclass(frozen=True, slots=True)
class InstallRules:
    """The operator's settings: the time of an install, the disk of its sandbox, and where packages come from.

    `instance_id` is of this Paddock, whose images bear its mark.
    """

    seconds: float = 300.0
    disk_bytes: int = 1 << 30
    registries: Registries = field(default_factory=Registries)
    instance_id: str = ""


@dataclass(frozen=True, slots=True)
class InstallPorts:
    """The engine, and the use-cases that an install is made of."""

    objects: Objects
    write: Write
    engine: Engine
    images: ImageService
    sandbox_streams: SandboxStreams
    files: SandboxFiles
    servers: McpServers


class _Closable(Protocol):
    def close(self) -> None: ...


class _Failed(Exception):
    """The install failed; the message says why, with the last lines of the tool."""


class _Unwanted(Exception):
    """No server wants it any more, or the daemon stops."""


@dataclass(slots=True)
class _Job:
    """One set of packages, and the servers that wait for it. `current` is its running piece of work."""

    plan: InstallPlan
    launch: Launch
    servers: list[Server] = field(default_factory=list)
    sandbox: StoredObject | None = None
    current: _Closable | None = None
    deadline: float = 0.0


@dataclass(slots=True)
class _Failures:
    count: int = 0
    not_before: float = 0.0
    message: str = ""


def in_thread(do: Callable[[], None]) -> threading.Thread | None:
    """Run it in a thread of its own."""
    thread = threading.Thread(target=do, name="mcp install", daemon=True)
    thread.start()
    return thread


class Installs:
    """Looks every second which servers lack their packages, and installs them, AT_ONCE at a time.

    `spawn` runs an install, `pause` waits between looks at its sandbox.
    """

    def __init__(
        self,
        ports: InstallPorts,
        policy: Policy,
        rules: InstallRules,
        *,
        clock: Callable[[], float] = time.monotonic,
        spawn: Callable[[Callable[[], None]], threading.Thread | None] = in_thread,
        pause: Callable[[float], None] | None = None,
    ) -> None:
        self._objects, self._write, self._engine, self._images = ports.objects, ports.write, ports.engine, ports.images
        self._streams, self._files, self._servers = ports.sandbox_streams, ports.files, ports.servers
        self._policy, self._rules = policy, rules
        self._clock, self._spawn = clock, spawn
        self._stop, self._lock = threading.Event(), threading.Lock()
        self._pause: Callable[[float], Any] = pause or self._stop.wait
        self._jobs: dict[str, _Job] = {}
        self._failures: dict[str, _Failures] = {}
        self._seen: dict[str, float] = {}  # installed images, by the time when they were seen last
        self._threads: list[threading.Thread] = []
        self._ticking = Periodic(
            "mcp installs", "paddock.mcp", _TICK_SECONDS, self._tick_as_daemon, postponing=(errors.ServiceError,)
        )

    def start(self) -> None:
        """Remove what an earlier daemon left, and look from now on. Raises ServiceError."""
        if sandbox_count := self.remove_left():
            _log.info("mcp installs of an earlier daemon removed", count=sandbox_count)
        self._ticking.start()

    def close(self) -> None:
        """End the installs under way; their sandboxes are removed."""
        self._stop.set()
        for job in list(self._jobs.values()):
            self._close(job)
        self._ticking.stop()
        for thread in self._threads:
            thread.join(30)

    def remove_left(self) -> int:
        """Delete the sandboxes of installs that nobody carries out. Return their number."""
        with access.acting(None):
            sandboxes = self._objects.list(SANDBOX, NAMESPACE, labels=INSTALL_LABEL).objects
            leftovers = [
                sandbox for sandbox in sandboxes if sandbox.deleted_at is None and self._servers.is_here(sandbox)
            ]
            for sandbox in leftovers:
                self._remove(sandbox)
        return len(leftovers)

    def tick(self) -> None:
        """Begin the installs that are wanted, record those that are here, and end those that nobody wants."""
        desired_jobs = self._desired_jobs()
        for key, job in list(self._jobs.items()):
            if key in desired_jobs:
                job.servers = desired_jobs[key].servers
                if key not in self._failures:
                    self._report_all(job, "Installing", _under_way(job))
            else:
                self._close(job)
        self._failures = {key: job_failure for key, job_failure in self._failures.items() if key in desired_jobs}
        if self._engine.observe().blind:
            return
        for key, job in desired_jobs.items():
            if key not in self._jobs:
                self._look(key, job)

    def _look(self, key: str, job: _Job) -> None:
        recorded = [record for record in (installed(job.plan, server.obj.status) for server in job.servers) if record]
        failed, now = self._failures.get(key), self._clock()
        if len(recorded) == len(job.servers) and now < self._seen.get(key, 0.0) + _SEEN_SECONDS:
            return
        if failed is not None and now < failed.not_before:
            self._report_all(job, "InstallFailed", failed.message)
            return
        image_ids = self._images.ids_by_name() if recorded else {}
        ready = next((record for record in recorded if image_ids.get(str(record["image"])) == record["digest"]), None)
        if ready is None:
            self._begin(key, job)
        else:
            self._seen[key] = now
            self._share(job, ready)

    def _tick_as_daemon(self) -> None:
        with access.acting(None):
            self.tick()

    def _desired_jobs(self) -> dict[str, _Job]:
        jobs: dict[str, _Job] = {}
        for obj in (server.obj for server in self._servers.managed_servers()):
            if not obj.spec.get("enabled", True):
                continue
            with suppress(ValidationError, LaunchError):
                spec = MCPServerSpec.model_validate(obj.spec)
                launch = launch_of(spec)
                plan = install_plan(spec, self._rules.registries)
                if launch is not None and plan is not None:
                    jobs.setdefault(plan.key, _Job(plan, launch)).servers.append(Server(obj, spec))
        return jobs

    def _share(self, job: _Job, ready: Mapping[str, Any]) -> None:
        """Record an image that is here for the servers that lack it."""
        for server in job.servers:
            is_unfinished = ready_condition(server.obj).get("reason") in _UNFINISHED
            if server.obj.status.get(INSTALLED) != ready or is_unfinished:
                self._report_installed(server, ready)

    def _begin(self, key: str, job: _Job) -> None:
        with self._lock:
            is_free = len(self._jobs) < AT_ONCE and not self._stop.is_set()
            if is_free:
                self._jobs[key] = job
        if key not in self._failures:  # else that stays in sight until another try has ended
            self._report_all(job, "Installing", _under_way(job))
        if is_free:
            thread = self._spawn(lambda: self._carry_out(key, job))
            self._threads = [worker for worker in self._threads if worker.is_alive()] + ([thread] if thread else [])

    def _carry_out(self, key: str, job: _Job) -> None:
        try:
            with access.acting(None):
                status = self._install(job)
                self._failures.pop(key, None)
                for server in job.servers:
                    self._report_installed(server, status)
            _log.info("mcp packages installed", packages=str(job.plan), image=status["image"])
        except _Unwanted:
            _log.info("mcp install ended", packages=str(job.plan))
        except (_Failed, LaunchError, errors.ServiceError, StreamError) as error:
            self._note(key, job, str(error))
        except Exception as error:  # it is retried, and its servers say so
            _log.exception("mcp install failed", packages=str(job.plan))
            self._note(key, job, f"an error in Paddock: {error!r}; see the daemon's log")
        finally:
            with self._lock:
                self._jobs.pop(key, None)

    def _note(self, key: str, job: _Job, message: str) -> None:
        if self._stop.is_set():
            return
        failed = self._failures.setdefault(key, _Failures())
        failed.count, failed.message = failed.count + 1, f"{job.plan}: {message}"
        failed.not_before = self._clock() + min(_FIRST_DELAY * 2.0 ** (failed.count - 1), _MOST_DELAY)
        self._report_all(job, "InstallFailed", failed.message)

    def _install(self, job: _Job) -> dict[str, Any]:
        """Carry the plan out. Raises _Failed, LaunchError, ServiceError, StreamError."""
        plan, job.deadline = job.plan, self._clock() + self._rules.seconds
        self._check(plan)
        name = f"install-{plan.slug[:30].strip('-')}-{secrets.token_hex(4)}"
        body = json.dumps(install_sandbox(plan, name=name, disk_bytes=self._rules.disk_bytes))
        job.sandbox = self._write.create(SANDBOX, NAMESPACE, body, written_by=_WRITTEN_BY)
        try:
            self._await_start(job)
            for command in plan.commands:
                done = self._run(job, command)
                if done.exit_code:
                    raise _Failed(self._why(job, done))
            text = self._output(job, ("cat", plan.lock))
            program = program_of(job.launch, self._output(job, plan.describe))
            lock = read_lock(plan.source, text, plan.packages)
            image, digest = self._build(job, plan.tag_of(lock, self._rules.instance_id))
        finally:
            self._remove(job.sandbox)
        return install_status(plan, lock, program, image, digest)

    def _check(self, plan: InstallPlan) -> None:
        """Raise _Failed for what is missing on this host."""
        image_ids = self._images.ids_by_name()
        for image in dict.fromkeys((plan.fetching, plan.running)):
            # The sandbox's image is built by the host if it can be; a base that is not Paddock's own is pulled.
            if image not in image_ids and is_own(image) and not (image == plan.fetching and has_recipe(image)):
                raise _Failed(f"the image {image} is not on this host; {remedy(image)}")
        if not self._policy.levels[plan.level].allowed_hosts:
            setting = "npm_registry" if plan.source == "npm" else "pypi_index"
            message = "sandboxes of level build reach no package registry"
            raise _Failed(f"{message}; name one in the daemon's settings ({setting}, or package_hosts)")

    def _await_start(self, job: _Job) -> None:
        """Wait until the sandbox runs. The time that the host takes to build its image does not count."""
        until = self._clock() + min(_START_SECONDS, self._rules.seconds)
        while True:
            self._go_on(job)
            ready = ready_condition(self._sandbox(job))
            if ready.get("status") == "True":
                return
            reason, message = ready.get("reason", ""), ready.get("message") or "no pass has looked at it"
            if reason in _NO_IMAGE:
                raise _Failed(message)
            if reason == _IMAGE_BUILDING:
                until = self._clock() + min(_START_SECONDS, self._rules.seconds)
                job.deadline = self._clock() + self._rules.seconds
                self._report_all(job, "Installing", f"{_under_way(job)}; {message}")
            if self._clock() >= until:
                raise _Failed(f"the sandbox that fetches it did not start: {reason} {message}")
            self._pause(_LOOK_SECONDS)

    def _sandbox(self, job: _Job) -> StoredObject:
        """Return the install's sandbox. Raises _Failed if somebody else changed it."""
        assert job.sandbox is not None
        sandbox = self._objects.get(SANDBOX, NAMESPACE, job.sandbox.name)
        if (sandbox.uid, sandbox.generation) != (
            job.sandbox.uid,
            job.sandbox.generation,
        ) or sandbox.deleted_at is not None:
            raise _Failed(f"its sandbox {NAMESPACE}/{sandbox.name} was changed meanwhile")
        return sandbox

    def _run(self, job: _Job, command: Sequence[str]) -> Collected:
        self._go_on(job)
        sandbox, seconds_left = self._sandbox(job), job.deadline - self._clock()
        most = self._streams.rules.most_seconds
        limit = max(min(seconds_left, most) if most else seconds_left, 1.0)
        options: dict[str, Any] = {"env": dict(job.plan.env), "timeout_seconds": limit}
        stream = self._streams.exec(SANDBOX, NAMESPACE, sandbox.name, command, **options)()
        collector = Collector(_OUTPUT_BYTES)
        with self._hold(job, stream):
            done = collector.collect(stream)
        self._go_on(job)
        if done is None:
            raise _Failed("its sandbox ended early")
        if done.timed_out:
            message = f"{self._rules.seconds:g} s were not enough (setting package_install_seconds)"
            raise _Failed(f"{message}: the registry is slow, or does not answer{_last(done)}")
        return done

    def _output(self, job: _Job, command: Sequence[str]) -> str:
        """Return a command's whole output. Raises _Failed if it has none, or too much."""
        done = self._run(job, command)
        if done.exit_code or done.stdout_omitted_bytes:
            raise _Failed(f"what was fetched can't be read{_last(done)}")
        return done.stdout.decode(errors="replace")

    def _why(self, job: _Job, failed: Collected) -> str:
        finding = ""
        if job.plan.examine:
            with suppress(_Failed, StreamError, errors.ServiceError):
                finding = self._run(job, job.plan.examine).stdout.decode(errors="replace")
        message = failure(
            job.plan, failed.exit_code, failed.stdout.decode(errors="replace"), finding, self._rules.disk_bytes
        )
        return f"{message}{_last(failed)}"

    def _build(self, job: _Job, tag: str) -> tuple[str, str]:
        """Build the image of what was fetched; return its name and digest."""
        self._go_on(job)
        ask = FileRequest("pack", FETCHED, top=FOLDER)
        work = self._files.begin(SANDBOX, NAMESPACE, self._sandbox(job).name, ask)
        with self._hold(job, work):
            task = self._images.build_fetched(tag, job.plan.dockerfile, iter(work.receive, b""), job.plan.key)
            with self._hold(job, task):
                for _ in task:
                    if self._clock() >= job.deadline:
                        raise _Failed("the image was not built in time (setting package_install_seconds)")
            work.result()
        self._sandbox(job)  # as it was all the time
        if task.image is None:
            raise _Failed("the image was built, and is not here any more")
        return tag, task.image.id

    @contextmanager
    def _hold(self, job: _Job, work: _Closable) -> Iterator[None]:
        """Let `close` end this work."""
        before, job.current = job.current, work
        try:
            yield
        except (OSError, StreamError, errors.ServiceError):
            self._go_on(job)  # it was ended on purpose
            raise
        finally:
            job.current = before
            work.close()

    def _go_on(self, job: _Job) -> None:
        if self._stop.is_set() or not job.servers:
            raise _Unwanted

    def _close(self, job: _Job) -> None:
        job.servers = []
        current = job.current
        if current is not None:
            with suppress(StreamError):
                current.close()

    def _remove(self, sandbox: StoredObject) -> None:
        with suppress(errors.NotFound):
            self._objects.delete(SANDBOX, NAMESPACE, sandbox.name, deleted_by=_WRITTEN_BY)

    def _report_installed(self, server: Server, status: Mapping[str, Any]) -> None:
        message = f"{len(status['lock'])} packages are in {status['image']}; its next call starts it"
        self._servers.report(server, Condition(READY, "Unknown", "Unused", message), {INSTALLED: dict(status)})

    def _report_all(self, job: _Job, reason: str, message: str) -> None:
        for server in job.servers:
            now = ready_condition(server.obj)
            if [now.get(key) for key in _REPORTED] != [reason, message, server.obj.generation]:
                self._servers.report(server, Condition(READY, "False", reason, message))


def _under_way(job: _Job) -> str:
    return f"{job.plan} is being installed into an image"


def _last(done: Collected) -> str:
    """Return the last lines of a tool as a part of a message."""
    text = plain((done.stderr or done.stdout).decode(errors="replace"), _OUTPUT_BYTES).strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()][-_LAST_LINES:]
    return f"; its last lines: {' | '.join(lines)[-_LAST_LETTERS:]}" if lines else ""
