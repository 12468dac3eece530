"""Builds of Paddock's own images by their recipes (images/build.sh), in the background and one at a time.

A build is a process of its own, which goes on when the daemon ends: it holds a lock on a file, and the next daemon
reads there what is being built and since when. The recipes' builds use the host's network; no other build does.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from controller.kinds.planning.outcome import Ok, Outcome, Transient, Waiting
from controller.kinds.runtime import agent
from controller.policy.images import has_recipe, recipe_of, remedy
from controller.policy.network import egress
from controller.ports import Clock

_log = structlog.get_logger("paddock.images")
_HERE = Path(__file__).parents
_SCRIPTS = (_HERE[3] / "images/build.sh", _HERE[2] / "images/build.sh")  # of a checkout, of an installed package
_POLL_SECONDS = 2.0
_STEP_SECONDS = 10  # a progress of every second would be a write of every waiting sandbox
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 10.0, 300.0
_BUILD_SECONDS = 3600
_TAIL_BYTES, _TAIL_LINES = 4096, 3
_REASONS = {egress.IMAGE: "EgressImageMissing", agent.IMAGE: "AgentImageMissing"}
_LOG = "build.log"
_BUILDING, _FAILED = "ImageBuilding", "ImageBuildFailed"


@dataclass(frozen=True, slots=True)
class _Failed:
    """Builds of one image that failed in a row. `until` is the time of the next try (Unix seconds)."""

    count: int
    until: float
    message: str


class RecipeBuilds:
    """Builds on the engine at `base_url`. Thread-safe; daemons with one `folder` build one at a time.

    `is_here` tells if an image is on the engine. `folder` holds the lock and the log (None: nothing is built). `script`
    is images/build.sh.
    """

    def __init__(
        self,
        is_here: Callable[[str], bool],
        base_url: str,
        clock: Clock,
        folder: Path | None,
        script: Path | None = None,
    ) -> None:
        self._is_here, self._base_url, self._clock, self._folder = is_here, base_url, clock, folder
        self._script = script or next((path for path in _SCRIPTS if path.is_file()), None)
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._image = ""  # of this daemon's last build, until its end was noticed
        self._failures: dict[str, _Failed] = {}

    def ensure(self, image: str) -> Outcome:
        """Return Ok if the image is here; else begin its build, or say how far that is. Raises Fault."""
        if self._is_here(image):
            self._failures.pop(image, None)
            return Ok()
        why = self._hindrance(image)
        if why:
            message = f"{image} is not on this host, and the daemon does not build it: {why}; {remedy(image)}"
            return Transient(_REASONS.get(image, "ImageMissing"), message)
        with self._lock:
            return self._ensure(image)

    def _ensure(self, image: str) -> Outcome:
        assert self._folder is not None
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return self._progress(image, descriptor)
            self._note_end()
            if self._is_here(image):
                return Ok()
            failed = self._failures.get(image)
            if failed is not None and self._clock.now() < failed.until:
                return Transient(_FAILED, failed.message)
            return self._begin(image, descriptor)
        finally:
            os.close(descriptor)

    def _hindrance(self, image: str) -> str:
        """Return why nothing is built by this daemon; "" if it may be."""
        if self._folder is None:
            return "the setting build_images is off"
        if not has_recipe(image):
            return "it has no recipe"
        if self._script is None:
            return "this installation has no recipes (images/build.sh); build it from a checkout"
        missing = [name for name in ("bash", "docker") if shutil.which(name) is None]
        if missing:
            return f"this host has no `{missing[0]}` command; install it, or build the image where there is one"
        return ""

    def _begin(self, image: str, descriptor: int) -> Outcome:
        """Start the build. Its processes inherit the lock."""
        assert self._folder is not None
        assert self._script is not None
        record = json.dumps({"image": image, "began": self._clock.now()}).encode()
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, record, 0)
        limit = shutil.which("timeout")
        command = [*([limit, str(_BUILD_SECONDS)] if limit else []), "bash", str(self._script), recipe_of(image)]
        try:
            with self._log_file.open("wb") as log:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd="/",
                    env=self._environment(),
                    pass_fds=(descriptor,),
                    start_new_session=True,
                )
        except OSError as error:
            return Transient(_FAILED, f"{image} can't be built: {command[0]}: {error.strerror}; {remedy(image)}")
        self._image = image
        threading.Thread(target=self._process.wait, name="image-build", daemon=True).start()  # it leaves no zombie
        _log.info("image build begins", image=image, pid=self._process.pid)
        return Waiting(_POLL_SECONDS, _BUILDING, f"{image} is being built on this host: 0 s")

    def _environment(self) -> Mapping[str, str]:
        """Return the environment of a build, which installs nothing on this host and leaves the daemon's venv alone."""
        return {
            **os.environ,
            "PADDOCK_DOCKER_HOST": self._base_url.removeprefix("http+"),
            "PADDOCK_PYTHON": sys.executable,
            "PADDOCK_INSTALL": "no",
        }

    def _progress(self, image: str, descriptor: int) -> Outcome:
        """Return how far the build is that runs now, of this image or of another one."""
        try:
            record = json.loads(os.pread(descriptor, _TAIL_BYTES, 0))
            current, started_at = str(record["image"]), float(record["began"])
        except (ValueError, KeyError, TypeError):
            current, started_at = image, self._clock.now()
        seconds = max(0, int(self._clock.now() - started_at)) // _STEP_SECONDS * _STEP_SECONDS
        message = f"{image} is being built on this host: {seconds} s"
        if current != image:
            message = f"{image} is built next on this host, after {current}: {seconds} s"
        return Waiting(_POLL_SECONDS, _BUILDING, message)

    def _note_end(self) -> None:
        """Note how this daemon's own build has ended, if one has. The lock is free: all its processes have ended."""
        if self._process is None:
            return
        image, code = self._image, self._process.wait()
        self._process, self._image = None, ""
        if code == 0 and self._is_here(image):
            _log.info("image built", image=image)
            return
        before = self._failures.get(image)
        count = before.count + 1 if before is not None else 1
        pause = min(_FIRST_PAUSE_SECONDS * 2 ** (count - 1), _LONGEST_PAUSE_SECONDS)
        tail = self._tail()
        log = f"{self._folder.name}/{_LOG}" if self._folder is not None else _LOG
        message = f"{image} could not be built on this host: {tail or f'exit code {code}'}; see {log} of the daemon"
        self._failures[image] = _Failed(count, self._clock.now() + pause, message)
        _log.warning("image build failed", image=image, exit_code=code, last_lines=tail)

    @property
    def _log_file(self) -> Path:
        assert self._folder is not None
        return self._folder / _LOG

    def _tail(self) -> str:
        """Return the error of the log's end, else its last lines."""
        text = ""
        with suppress(OSError), self._log_file.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
            text = log.read().decode(errors="replace")
        lines = [line.strip(" |\t") for line in text.splitlines() if line.strip(" |\t")]
        errors = [at for at, line in enumerate(lines) if line.startswith("error: ")]
        chosen = lines[errors[-1] :][:_TAIL_LINES] if errors else lines[-_TAIL_LINES:]
        return " ".join(chosen).removeprefix("error: ")
