"""Pulls, builds and pushes as streams of progress. The engine reports failures inside a stream that began with 200.

Closing the connection ends the work in the engine, too: it cancels a pull or push, and kills the command of a build.
"""

import json
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from http.client import HTTPException
from typing import Any

import structlog
from docker.utils import parse_repository_tag

from controller.engine.docker.client import Client
from controller.engine.docker.errors import Fault
from controller.engine.docker.raw_http import HttpStream
from controller.engine.images.build_cgroup import BuildCgroup
from controller.engine.images.pull import login_for, not_pulled
from controller.engine.images.registries import Registries, RegistryRefused
from controller.kinds.runtime.images import ImageBuild, ImageProgress
from controller.ports import ImageError

_HEADER_SECONDS = 120.0  # a build's answer begins once its context is unpacked
_SILENCE_SECONDS = 120.0
_LINE_BYTES = 1 << 20
# "repository does not exist or may require authorization" is the registry's, in the containerd image store.
_NO_SUCH = re.compile(r"(?<!repository )does not exist")
_COLOUR = re.compile("\x1b\\[(91|0)m")  # around what a build's command writes to stderr
_log = structlog.get_logger("paddock.images")


class DockerImageWork:
    """ports.ImageWork over one answer of the engine.

    `what` is its name in messages; `failed` words an error of the engine. The work is ended after `seconds` in all, or
    after so long a silence. `first` is said before all else, if it is anything.
    """

    def __init__(
        self,
        what: str,
        stream: HttpStream,
        seconds: float,
        silence: float,
        failed: Callable[[str], ImageError],
        first: str = "",
    ) -> None:
        self._what, self._stream, self._failed, self._silence = what, stream, failed, silence
        self._seconds, self._deadline = seconds, time.monotonic() + seconds
        self._rest, self._lines = b"", deque([json.dumps({"stream": first}).encode()] if first else [])
        self._over = self._closed = False
        self._reading = threading.Lock()

    def __iter__(self) -> Iterator[ImageProgress]:
        return self

    def __next__(self) -> ImageProgress:
        with self._reading:
            try:
                while not self._over:
                    progress = self._next()
                    if progress is not None:
                        return progress
            except BaseException:
                self._end()
                raise
            self._end()
        raise StopIteration

    def close(self) -> None:
        self._closed = True
        self._stream.cut()
        if self._reading.acquire(blocking=False):
            try:
                self._end()
            finally:
                self._reading.release()

    def _end(self) -> None:
        self._over = True
        self._stream.release()

    def _next(self) -> ImageProgress | None:
        if not self._lines:
            self._receive()
            return None
        line = self._lines.popleft()
        try:
            step = json.loads(line) if line.strip() else {}
        except ValueError:
            step = {}
        if not isinstance(step, Mapping):
            return None
        if "error" in step:
            raise self._failed(str(step["error"]))
        return _progress(step)

    def _receive(self) -> None:
        seconds_left = self._deadline - time.monotonic()
        late = f"{self._what} was not finished within {self._seconds:g} s, and was ended"
        if seconds_left <= 0:
            raise ImageError(late)
        self._stream.wait_at_most(min(seconds_left, self._silence))
        try:
            data = self._stream.read()
        except TimeoutError as error:
            silent = f"{self._what} was ended: nothing happened for {self._silence:g} s"
            raise ImageError(late if seconds_left < self._silence else silent) from error
        except (OSError, HTTPException, ValueError) as error:
            reason = "was cancelled" if self._closed else "failed: the connection to the Docker Engine broke; try again"
            raise ImageError(f"{self._what} {reason}") from error
        if not data:
            if self._closed:
                raise ImageError(f"{self._what} was cancelled")
            self._over = not self._rest
            data = b"\n"
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._lines.extend(lines)
        if len(self._rest) > _LINE_BYTES:
            raise ImageError(f"{self._what} failed: the Docker Engine's answer can't be read")


def _progress(step: Mapping[str, Any]) -> ImageProgress | None:
    if "stream" in step:
        text = _COLOUR.sub("", str(step["stream"])).rstrip("\n")
        return ImageProgress(text) if text else None
    if "status" not in step:
        return None
    detail = step.get("progressDetail") or {}
    current, total = detail.get("current"), detail.get("total")
    return ImageProgress(
        str(step["status"]),
        str(step.get("id") or ""),
        current if isinstance(current, int) else 0,
        total if isinstance(total, int) and total > 0 else 0,
    )


def start_pull(client: Client, name: str, seconds: float, registries: Registries) -> DockerImageWork:
    """Start a pull. Raises ImageError."""
    repository, tag = parse_repository_tag(name)
    params = {"fromImage": repository, "tag": tag or "latest"}

    def failed(reason: str) -> ImageError:
        message = registries.message(name, reason)
        return ImageError(f"{name}: {message}", detail="" if message == reason else reason)

    try:
        registries.check(name)
    except RegistryRefused as refused:
        _log.warning("registry refused", image=name, reason=str(refused))
        raise failed(str(refused)) from refused
    except Fault as fault:
        raise ImageError(fault.message) from fault
    return _registry_work(
        client, "images.pull", "/images/create", params=params, name=name, seconds=seconds, worded=failed
    )


def start_push(client: Client, name: str, seconds: float) -> DockerImageWork:
    """Start a push. Raises ImageError."""
    repository, tag = parse_repository_tag(name)
    params = {"tag": tag or "latest"}

    def failed(reason: str) -> ImageError:
        return ImageError(f"{name}: {reason}")

    return _registry_work(
        client, "images.push", f"/images/{repository}/push", params=params, name=name, seconds=seconds, worded=failed
    )


def start_build(client: Client, ask: ImageBuild, cgroup: BuildCgroup) -> DockerImageWork:
    """Start a build by the engine's classic builder. Raises ImageError."""
    period, first = 100_000, ""
    try:
        parent, unlimited = cgroup.parent()
    except Fault as fault:
        raise ImageError(fault.message) from fault
    if unlimited:
        first = f"the number of processes of this build is not limited: {unlimited}"
        _log.warning("processes of an image build not limited", reason=unlimited)
    params = {
        **({"cgroupparent": parent} if parent else {}),
        "t": ask.tag,
        "dockerfile": ask.dockerfile,
        "buildargs": json.dumps(dict(ask.arguments)),
        "networkmode": "none",
        "rm": "1",
        "forcerm": "1",
        "pull": "0",
        "memory": str(ask.memory_bytes),
        "memswap": str(ask.memory_bytes),
        "cpuperiod": str(period),
        "cpuquota": str(ask.cpu_millicores * period // 1000),
    }

    def failed(answer: str, _status: int = 500) -> ImageError:
        return ImageError(f"the build of {ask.tag} failed: {answer.strip()[:2000]}")

    # A command may be silent for as long as the whole build may take.
    return _started(
        client,
        "images.build",
        "/build",
        params=params,
        seconds=ask.seconds,
        silence=ask.seconds,
        failed=failed,
        what=f"the build of {ask.tag}",
        body=ask.context,
        first=first,
    )


def _registry_work(
    client: Client,
    operation: str,
    path: str,
    params: Mapping[str, str],
    name: str,
    seconds: float,
    worded: Callable[[str], ImageError],
) -> DockerImageWork:
    """Begin a pull or a push, and return its work. `worded` makes the error of what the engine says."""
    what = f"{'the pull' if operation == 'images.pull' else 'the push'} of {name}"

    def failed(answer: str, status: int = 500) -> ImageError:
        # A registry's answer is for the log alone: it may be any server that the host can reach.
        _log.warning("image transfer failed", operation=operation, image=name, answer=answer[:1000])
        missing = "No such image" in answer or bool(_NO_SUCH.search(answer))
        if operation == "images.push" and missing:
            return ImageError(f"{name} is not on this host; build it, or pull it", found=False)
        return worded(not_pulled(status, answer))

    try:
        headers = client.call("images.login", lambda api: login_for(api, name))
    except Fault as fault:
        raise ImageError(fault.message) from fault
    if operation == "images.push":
        headers = headers or {"X-Registry-Auth": "e30="}  # the engine requires the header: {}
    return _started(
        client,
        operation,
        path,
        params=params,
        seconds=seconds,
        silence=_SILENCE_SECONDS,
        failed=failed,
        what=what,
        headers=headers,
    )


def _started(
    client: Client,
    operation: str,
    path: str,
    params: Mapping[str, str],
    seconds: float,
    silence: float,
    failed: Callable[..., ImageError],
    *,
    what: str,
    headers: Mapping[str, str] | None = None,
    body: bytes | Iterator[bytes] | None = None,
    first: str = "",
) -> DockerImageWork:
    try:
        stream = client.stream(
            operation, "POST", path, params=params, body=body, headers=headers, timeout_seconds=_HEADER_SECONDS
        )
    except Fault as fault:
        if fault.unreachable or fault.kind == "busy":
            raise ImageError(fault.message) from fault
        raise failed(fault.message, fault.status) from fault
    return DockerImageWork(what, stream, seconds=seconds, silence=silence, failed=failed, first=first)
