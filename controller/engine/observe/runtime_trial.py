"""Trial of a runtime: does it start a container as a sandbox has it, with its limits, and run a command in it?

That a runtime is registered says little: crun refuses hosts that mix cgroups v1 and v2, and starts no container there.
The container is of an image of one file, a program that sleeps for a minute, so that it needs no image of this host.
The engine removes it at its end, also if this daemon dies meanwhile.
"""

import io
import json
import logging
import struct
import tarfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from controller.engine.docker.client import Client
from controller.engine.docker.create_config import create_body
from controller.engine.docker.errors import Fault
from controller.engine.docker.lifetime import EngineRun, engine_run_of
from controller.engine.docker.removal import remove_each
from controller.engine.docker.seccomp import NoProfile, profile
from controller.engine.docker.start_errors import in_words
from controller.engine.kernel.cgroups import PROC, Cgroups, Unreadable, parse_mounts
from controller.engine.kernel.inside import read_inside
from controller.engine.usage.limits import in_force, read_limits
from controller.kinds.observed.inside import SECCOMP_FILTER
from controller.kinds.observed.observed import HostFacts
from controller.kinds.runtime.container import ContainerConfig, Limits
from controller.kinds.runtime.images import OURS
from controller.kinds.runtime.runtime_choice import DefaultRuntime
from controller.policy.host.runtime import CRUN, chosen_runtime, needs_trial
from controller.policy.levels.levels import FULL_ISOLATION

_log = logging.getLogger(__name__)

_LIMITS = Limits(cpu_millicores=500, memory_bytes=32 << 20, pids=16)
_SLEEP_SECONDS = 60
_CALL_SECONDS, _ANSWER_SECONDS = 10.0, 5.0
_RETRY_SECONDS, _LONGEST_RETRY_SECONDS = 60.0, 3600.0
# Of a container with an init, in every image.
_INIT = "/sbin/docker-init"
# nanosleep(&time, NULL); exit(0), as machine code with the time behind it; and the kernel's number of the machine.
_PROGRAMS: Mapping[str, tuple[int, bytes]] = {
    "amd64": (62, bytes.fromhex("488d3d12000000 31f6 b823000000 0f05 31ff b83c000000 0f05")),
    "arm64": (
        183,
        struct.pack("<7I", *(0x100000E0, 0xD2800001, 0xD2800CA8, 0xD4000001, 0xD2800000, 0xD2800BA8, 0xD4000001)),
    ),
}
_BASE, _HEADERS = 0x400000, 120
_MIXED = (
    "this host has controllers of cgroup v1 and of v2, which crun refuses; boot with v2 alone "
    "(systemd.unified_cgroup_hierarchy=1)"
)


@dataclass(frozen=True, slots=True)
class Trial:
    """Result of a trial: why it failed, "" if it did not. `may_pass`: a call failed, which another trial may not."""

    error: str = ""
    may_pass: bool = False


class RuntimeTrials:
    """Choice of the runtime, with the result of its trial, cached for each run of the engine. Thread-safe.

    A trial in which a call failed is due again later, after longer and longer pauses: `retry` is called then, to ask
    for the choice again.
    """

    def __init__(
        self,
        client: Client,
        setting: DefaultRuntime,
        *,
        retry: Callable[[], None] = lambda: None,
        retry_seconds: float = _RETRY_SECONDS,
    ) -> None:
        self._client, self._setting = client, setting
        self._lock = threading.Lock()
        self._trials: dict[tuple[str, EngineRun | None], Trial] = {}
        self._retry, self._first_pause, self._pause = retry, retry_seconds, retry_seconds
        self._due_at = 0.0
        self._timer: threading.Timer | None = None
        self._is_closed = False

    def with_choice(self, facts: HostFacts) -> HostFacts:
        """Return the facts of this engine with the runtime for new sandboxes. Raises Fault if it can't be reached."""
        error = self._trial_error(facts) if needs_trial(self._setting, facts) else ""
        return replace(facts, runtime_choice=chosen_runtime(self._setting, facts, error))

    def close(self) -> None:
        """Retry no more. Does not wait for a trial."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _trial_error(self, facts: HostFacts) -> str:
        engine_run = engine_run_of(self._client.base_url)
        key = (facts.engine_id, engine_run)
        with self._lock:
            trial = self._trials.get(key)
            if trial is None or (trial.may_pass and time.monotonic() >= self._due_at):
                is_mixed = engine_run is not None and mixes_cgroups(engine_run.pid)
                trial = self._trials[key] = Trial(_MIXED) if is_mixed else run_trial(self._client, CRUN)
                self._plan_retry(trial)
            return trial.error

    def _plan_retry(self, trial: Trial) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not trial.may_pass:
            self._pause = self._first_pause
            return
        self._due_at = time.monotonic() + self._pause
        self._timer = threading.Timer(self._pause, self._retry)
        self._timer.daemon = True
        if not self._is_closed:
            self._timer.start()
        self._pause = min(self._pause * 2, _LONGEST_RETRY_SECONDS)


def mixes_cgroups(engine_pid: int, proc: Path = PROC) -> bool:
    """Tell whether cgroup v2 has controllers beside v1, for that engine. Without any it is not in crun's way."""
    try:
        mounts = parse_mounts((proc / str(engine_pid) / "mountinfo").read_text())
        if {mount.version for mount in mounts} != {1, 2}:
            return False
        unified = next(mount.point for mount in mounts if mount.version == 2)
        return bool((proc / str(engine_pid) / "root" / unified.lstrip("/") / "cgroup.controllers").read_text().strip())
    except OSError:
        return False


def run_trial(client: Client, runtime: str) -> Trial:
    """Run the trial. Raises Fault if the engine can't be reached: a runtime that hangs is not its silence."""
    started = time.monotonic()
    try:
        trial = Trial(_error_of(client, runtime))
    except Fault as fault:
        if fault.unreachable and not client.answers(_ANSWER_SECONDS):
            raise
        hangs = fault.kind == "timeout"
        error = "a call did not end in time, while the engine answered" if hangs else in_words(fault.message, "")
        trial = Trial(error, may_pass=True)
    took = time.monotonic() - started
    _log.info("trial of runtime %s: %s (%.2f s)", runtime, trial.error or "passed", took)
    return trial


def _error_of(client: Client, runtime: str) -> str:
    machine = str(client.call("version", lambda api: api.version()).get("Arch") or "")
    if machine not in _PROGRAMS:
        return f"there is no trial for this machine ({machine or 'of unknown kind'})"
    try:
        seccomp = profile(FULL_ISOLATION.seccomp)
    except NoProfile as error:
        return str(error)
    image = _import(client, machine)
    removals = [("images.remove", f"/images/{quote(image, safe='')}")]
    try:
        body = create_body(_config(image, runtime), {OURS: "runtime-trial"}, image, seccomp)
        body["HostConfig"]["AutoRemove"] = True
        container = str(client.call("containers.create", lambda api: api.create_container_from_config(body))["Id"])
        removals.insert(0, ("containers.remove", f"/containers/{container}"))
        _post(client, "containers.start", f"/containers/{container}/start")
        return _trouble(client, container)
    finally:
        remove_each(client, *removals)


def _post(client: Client, operation: str, path: str) -> None:
    """Make a call of the engine that calls the runtime, within a bounded time. Raises Fault."""
    timeout_seconds = min(_CALL_SECONDS, client.timeout_seconds)
    client.stream(operation, "POST", path, timeout_seconds=timeout_seconds).release()


def _config(image: str, runtime: str) -> ContainerConfig:
    level = FULL_ISOLATION
    return ContainerConfig(
        image=image,
        name="",
        limits=_LIMITS,
        hostname="trial",
        command=("/sleep",),
        user=level.default_user,
        tmpfs=level.tmpfs,
        seccomp=level.seccomp,
        sysctls=level.sysctls,
        runtime=runtime,
    )


def _trouble(client: Client, container: str) -> str:
    """Return what is not as in a sandbox of runc's; "" if all is."""
    state = client.inspect(container, timeout_seconds=_CALL_SECONDS)["State"]
    pid = int(state.get("Pid") or 0)
    if not state.get("Running") or not pid:
        return f"its program ended with exit code {state.get('ExitCode')}"
    command = client.call("exec.create", lambda api: api.exec_create(container, [_INIT, "--version"]))
    client.call("exec.start", lambda api: api.exec_start(command["Id"]))
    code = client.call("exec.inspect", lambda api: api.exec_inspect(command["Id"])).get("ExitCode")
    if code != 0:
        return f"a command in it ended with exit code {code}"
    _post(client, "containers.pause", f"/containers/{container}/pause")
    _post(client, "containers.unpause", f"/containers/{container}/unpause")
    inside = read_inside(pid, container)
    if inside.unread:
        return ""  # an engine on another machine, or in another pid namespace: nothing can be compared
    if inside.seccomp != SECCOMP_FILTER or not inside.no_new_privileges or inside.capabilities or inside.bounding:
        return "its processes are not confined as with runc"
    if inside.label.endswith("(mixed)"):
        return (
            f"its AppArmor label is {inside.label}, and the kernel's list of profiles does not tell which are enforced"
        )
    try:
        limits = in_force(_LIMITS, read_limits(Cgroups(), container, pid))
    except Unreadable as error:
        return str(error)
    return "" if limits == _LIMITS else f"its limits are {limits}, not {_LIMITS}"


def _import(client: Client, machine: str) -> str:
    """Return the id of a new image of that one program."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tree:
        program = _program(machine)
        entry = tarfile.TarInfo("sleep")
        entry.size, entry.mode = len(program), 0o755
        tree.addfile(entry, io.BytesIO(program))
    label = f"LABEL {OURS}=runtime-trial"
    data = content.getvalue()
    answer: Any = client.call("images.import", lambda api: api.import_image_from_data(data, changes=[label]))
    return str(json.loads(str(answer).strip().splitlines()[-1])["status"])


def _program(machine: str) -> bytes:
    """Return the program as an ELF file: its headers, the code, and the time that it sleeps."""
    number, code = _PROGRAMS[machine]
    content = code + struct.pack("<qq", _SLEEP_SECONDS, 0)
    size = _HEADERS + len(content)
    identity = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    header = struct.pack("<16sHHIQQQIHHHHHH", identity, 2, number, 1, _BASE + _HEADERS, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    return header + struct.pack("<IIQQQQQQ", 1, 5, 0, _BASE, _BASE, size, size, 0x1000) + content
