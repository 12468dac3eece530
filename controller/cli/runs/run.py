"""A sandbox for one command: created, waited for, used, and removed in every case.

A killed client removes nothing. Its command is killed with it; the daemon deletes the sandbox after a minute of
idleness, and after a day at the latest. A detached command is the sandbox's main command instead: it outlives its
client.
"""

import contextlib
import math
import re
import secrets
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from controller.cli.calls.images import Images
from controller.cli.calls.logs import opened_log
from controller.cli.client import Client, connect, sandbox_handle, sandbox_path, segment
from controller.cli.errors import INTERRUPTED, CliError, UsageProblem
from controller.cli.objects.kinds import Resource
from controller.cli.objects.watch import Object, Obstacle, condition_of, obstacle_of, until
from controller.cli.runs.docker_options import Volume
from controller.cli.runs.exec_relay import relay_streams
from controller.cli.runs.image_volumes import image_volumes, with_image_volumes
from controller.cli.text.output import note
from controller.cli.text.progress import pulls_shown, waiting_for
from controller.cli.text.terminal_filter import Output
from controller.version import API_VERSION
from paddock._client.errors import ClientError, Refused

if TYPE_CHECKING:
    from paddock._sync.sandbox import Sandbox

IMAGE = "paddock/python:1"
LABEL = "paddock-run"
_INTERPRETERS = {".py": "python3", ".sh": "sh", ".pl": "perl", ".rb": "ruby"}
_JAVASCRIPT = {".js": "node", ".mjs": "node", ".cjs": "node", ".ts": "bun", ".mts": "bun", ".tsx": "bun", ".jsx": "bun"}
_HERE = Path(__file__).parents
_SPECS = (_HERE[3] / "specs", _HERE[2] / "specs")  # of a checkout, of an installed package
_OWN = ("sandboxtemplate/javascript.yaml", "sandboxtemplate/python.yaml")
_MAX_SCRIPT_BYTES = 8 << 20
_MAX_DETACHED_BYTES = 96 << 10  # Linux passes at most 128 KiB as one argument
_WRITE_AND_RUN = 'printf %s "$1" >"$0"; shift; exec "$@"'
_SANDBOXES = Resource("sandboxes", "sandbox", "Sandbox", namespaced=True)
_HOPELESS = ("NoDeviceDriver", "ImageRefused", "InvalidConfig")  # waiting does not help
_NO_IMAGE = ("ImagePullFailed", "ImageMissing", "ImageBuildFailed", "EgressImageMissing", "AgentImageMissing")
_WAIT_SECONDS = 60.0
_SHOWN_IMAGES = 12
_PROGRAM = re.compile("[a-z0-9_.-]+")
_HOSTLESS = ("NoHost", "HostNeeded")
_GPUS = re.compile(r'"?((count=)?(?P<count>[0-9]{1,4}|all)|device=(?P<ids>[^,"]+(,[^,"]+)*))"?')
_FATAL_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
_MOST_SECONDS = 86400
_LIFECYCLE = {
    "idleTimeoutSeconds": 60,
    "onIdle": "Delete",
    "activeDeadlineSeconds": _MOST_SECONDS,
    "ttlSecondsAfterFinished": 0,
    "shutdownGracePeriodSeconds": 0,
}
_END_SECONDS = 60.0  # from the end of the log to that of the sandbox
_TIMED_OUT = 124
_NOT_STARTED = (126, 127)  # of shells and of init, for a program that they can't execute or find
_KEPT_SECONDS = 86400  # after the end of a detached command: for its log and its exit code


@dataclass(frozen=True, slots=True)
class Runtime:
    """Command lines of a language: for a script, and for code."""

    script: tuple[str, ...]
    code: tuple[str, ...]


_PYTHON = Runtime(("python3",), ("python3", "-c"))
_RUNTIMES = {
    "node": Runtime(("node",), ("node", "--eval")),
    "bun": Runtime(("bun", "run"), ("bun", "--eval")),
    "deno": Runtime(("deno", "run", "--allow-all"), ("deno", "eval")),
}


@dataclass(frozen=True, slots=True)
class Job:
    """Command to run; `script` is copied into the sandbox as `path` first.

    `is_images_own`: the image's own program is run, with `command` as its arguments (none: the image's).
    """

    command: tuple[str, ...]
    path: str = ""
    script: bytes = b""
    is_images_own: bool = False

    @classmethod
    def of(cls, arguments: Sequence[str], file: str, code: str, runtime: Runtime | None = None) -> "Job":
        """Parse the command line. CliError for a file that can't be run."""
        if code:
            return cls((*(runtime or _PYTHON).code, code, *arguments))
        if not file:
            return cls(tuple(arguments))
        source = Path(file)
        if source.suffix in _JAVASCRIPT:
            interpreter = (runtime or _RUNTIMES[_JAVASCRIPT[source.suffix]]).script
        elif source.suffix in _INTERPRETERS:
            interpreter = (_INTERPRETERS[source.suffix],)
        else:
            suffixes = ", ".join((*_INTERPRETERS, *_JAVASCRIPT))
            raise UsageProblem(f"{file}: no interpreter for this suffix; rename it to one of {suffixes}")
        path = f"/tmp/{source.name}"  # noqa: S108 - in the sandbox, which has no other user
        return cls((*interpreter, path, *arguments), path, _read(source))

    def as_main(self) -> list[str]:
        """Return the command that does it all, script included. CliError for a script that is no such argument."""
        if not self.path:
            return list(self.command)
        if len(self.script) > _MAX_DETACHED_BYTES:
            limit = f"larger than {_MAX_DETACHED_BYTES >> 10} KiB, the limit of a detached script"
            raise CliError(f"{Path(self.path).name} is {limit}; leave -d out, or `paddock cp` it into a sandbox")
        try:
            text = self.script.decode()
        except UnicodeDecodeError as error:
            raise CliError(
                f"{Path(self.path).name} is not UTF-8 text, as a detached script must be; convert it"
            ) from error
        return ["sh", "-c", _WRITE_AND_RUN, self.path, text, *self.command]


def runtime_of(template: str, image: str) -> Runtime | None:
    """Return the JavaScript runtime that a template or an image is named after; None for others."""
    repository = image.partition("@")[0].rpartition("/")[2].partition(":")[0]
    return _RUNTIMES.get(template or repository)


def template_for(file: str) -> str:
    """Return the template of a script for which the user names none; "" for the default image."""
    return _JAVASCRIPT.get(Path(file).suffix, "")


@dataclass(frozen=True, slots=True)
class Gpus:
    """GPUs as `docker run --gpus` asks for them: a number, all of the host's, or particular ones."""

    count: int = 0
    all: bool = False
    ids: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Gpus":
        """Parse the option; "" is none. Raises UsageProblem."""
        match = _GPUS.fullmatch(text) if text else None
        if text and match is None:
            raise UsageProblem(f"--gpus {text}: not understood; write a number, all, or device=ID[,ID]")
        if match is None:
            return cls()
        if match["ids"]:
            return cls(ids=tuple(match["ids"].split(",")))
        return cls(all=True) if match["count"] == "all" else cls(int(match["count"]))

    def resources(self, client: Client) -> dict[str, Any]:
        """Return the sandbox's resources. Raises CliError if the host lists none of which to take all."""
        if self.ids:
            return {"gpuDeviceIds": list(self.ids)}
        count = self.count
        if self.all:
            hosts = client.get("hosts")["items"]
            if len(hosts) != 1:
                raise CliError("--gpus all: there are several hosts, with GPUs of their own; write a number")
            capacity = hosts[0].get("status", {}).get("capacity", {})
            count = capacity.get("gpus", 0)
            if not count:
                advice = "no GPU of this host is listed for sandboxes; write a number, or have the operator list them"
                raise CliError(f"--gpus all: {advice} (setting gpu_devices)")
        return {"limits": {"gpus": count}}


@dataclass(frozen=True, slots=True)
class SandboxRequest:
    """The sandbox that a command line asks for."""

    name: str = ""
    """Name; empty: a random one."""
    template: str = ""
    """SandboxTemplate that it comes from."""
    image: str = ""
    """Image, instead of a template; empty: the default one."""
    level: str = ""
    """Security level; empty: the default one."""
    gpus: Gpus = Gpus()
    """GPUs that it gets."""
    host: str = ""
    """Host to run on; empty: the daemon's only one, or the scheduler's choice."""
    limits: Mapping[str, Any] = field(default_factory=dict)
    """Limits, as in the spec."""
    user: str = ""
    """User, as uid or uid:gid."""
    working_dir: str = ""
    """Folder of the main command."""
    volumes: tuple[Volume, ...] = ()
    """Volumes, and folders of the host."""

    @property
    def changes_template(self) -> bool:
        """True if it is not a template as that is, so that no pool has such a sandbox."""
        return bool(self.level or self.user or self.volumes)


@contextlib.contextmanager
def temporary_sandbox(
    ctx: click.Context, namespace: str, request: SandboxRequest, seconds: float | None
) -> Iterator["Sandbox"]:
    """Create a sandbox and wait until it is Ready; remove it at the end, also after a signal."""
    client = connect(ctx)
    document = _document(client, namespace, request, _container_spec(client, namespace, request), _LIFECYCLE)
    name = document["metadata"]["name"]
    with _exit_on_signals():
        _create(client, namespace, document, request)
        try:
            _wait(client, namespace, name, seconds, request.image)
            yield sandbox_handle(ctx, client.server, namespace, name)
        finally:
            _remove(client, namespace, name)


def _create(client: Client, namespace: str, document: Mapping[str, Any], request: SandboxRequest) -> None:
    """Create the sandbox. An interrupted request may have made it, too.

    It is removed then, unless the user chose its name: that may be another sandbox's.
    """
    try:
        client.request("POST", _SANDBOXES.path(namespace), json=document)
    except BaseException as error:
        if not request.name and not isinstance(error, Refused):
            _remove(client, namespace, document["metadata"]["name"])
        raise


def create_sandbox(ctx: click.Context, namespace: str, request: SandboxRequest, command: Sequence[str]) -> None:
    """Create a sandbox that stays, with this command (none: the image's or the template's own). Raises Refused."""
    client = connect(ctx)
    container = _container_spec(client, namespace, request)
    if command and "template" not in container:
        container = {"template": _template(client, namespace, request)[0]}
    if command:
        container["template"] = {**container["template"], "command": list(command)}
    elif not request.template:
        container["template"].pop("command")
    metadata = {"name": request.name, "namespace": namespace}
    document = {"apiVersion": API_VERSION, "kind": "Sandbox", "metadata": metadata, "spec": container}
    client.request("POST", _SANDBOXES.path(namespace), json=document)


def start_detached(
    ctx: click.Context,
    namespace: str,
    request: SandboxRequest,
    job: Job,
    env: Mapping[str, str],
    seconds: float | None,
    timeout_seconds: float | None,
    *,
    rm: bool,
) -> str:
    """Create a sandbox whose main command is the job; return its name once that has begun.

    It stays for a day after its end, or with RM not at all. If it does not begin, it is removed.
    """
    client = connect(ctx)
    lifecycle = {"keepRunning": True, "ttlSecondsAfterFinished": 0 if rm else _KEPT_SECONDS}
    if timeout_seconds:
        lifecycle["activeDeadlineSeconds"] = math.ceil(timeout_seconds)
    template = _main_template(client, namespace, request, job, env)
    document = _document(client, namespace, request, {"template": template}, lifecycle)
    name: str = document["metadata"]["name"]
    with _exit_on_signals():
        _create(client, namespace, document, request)
        try:
            _wait(client, namespace, name, seconds, request.image, may_end=True)
        except BaseException:
            _remove(client, namespace, name)
            raise
    return name


def _main_template(
    client: Client, namespace: str, request: SandboxRequest, job: Job, env: Mapping[str, str]
) -> dict[str, Any]:
    """Return the template of a sandbox whose main command is the job."""
    template = _template(client, namespace, request)[0]
    for name in ("command", "args"):
        template.pop(name, None)
    if not job.is_images_own:
        template["command"] = job.as_main()
    elif job.command:
        template["args"] = list(job.command)
    if request.working_dir:
        template["workingDir"] = request.working_dir
    kept_variables = [variable for variable in template.get("env", ()) if variable["name"] not in env]
    template["env"] = [*kept_variables, *({"name": key, "value": value} for key, value in env.items())]
    return template


def run_main(
    ctx: click.Context,
    namespace: str,
    request: SandboxRequest,
    job: Job,
    env: Mapping[str, str],
    seconds: float | None,
    timeout_seconds: float | None,
    *,
    raw_output: bool,
) -> int:
    """Run the image's own program as the main command of a sandbox, show its log, and return its exit code."""
    client = connect(ctx)
    template = _main_template(client, namespace, request, job, env)
    lifecycle: dict[str, Any] = {"keepRunning": True, "ttlSecondsAfterFinished": 60, "shutdownGracePeriodSeconds": 0}
    lifecycle["activeDeadlineSeconds"] = math.ceil(timeout_seconds or _MOST_SECONDS)
    document = _document(client, namespace, request, {"template": template}, lifecycle)
    name = document["metadata"]["name"]
    with _exit_on_signals():
        _create(client, namespace, document, request)
        try:
            _wait(client, namespace, name, seconds, request.image, may_end=True)
            with (
                Output(sys.stdout.buffer, raw=raw_output) as out,
                opened_log(client, sandbox_path(namespace, name), follow=True) as pieces,
            ):
                for piece in pieces:
                    out.write(piece)
            return _exit_code(client, namespace, name)
        finally:
            _remove(client, namespace, name)


def _exit_code(client: Client, namespace: str, name: str) -> int:
    """Wait for the end of a main command; return its exit code. Raises CliError."""
    end: Mapping[str, Any] = {}

    def is_ended(_name: str, obj: Object | None) -> bool:
        nonlocal end
        if obj is None:
            raise CliError(f"sandbox {name} was deleted meanwhile; run it again")
        if _has_ended(obj):
            end = obj["status"]["lastTermination"]
        finished = condition_of(obj, "Suspended")
        return bool(end) or (finished is not None and finished["status"] == "True")

    if (
        until(client, _SANDBOXES, namespace, names=[name], done=is_ended, deadline=time.monotonic() + _END_SECONDS)
        or not end
    ):
        raise CliError(f"sandbox {name} did not end with its log; see `paddock why {name}`")
    if end.get("reason") == "DeadlineExceeded":
        note("error: command timed out and was killed; set another limit with --timeout, or 0 for none")
        return _TIMED_OUT
    return int(end["exitCode"])


def run_job(
    job: Job,
    sandbox: "Sandbox",
    env: Mapping[str, str],
    *,
    with_stdin: bool,
    tty: bool,
    timeout_seconds: float | None,
    raw_output: bool = False,
    working_dir: str = "",
) -> int:
    """Run the job with this process's streams; return its exit code."""
    if job.script:
        put = sandbox.exec(["sh", "-c", 'cat > "$0"', job.path], stdin=job.script)
        if put.exit_code:
            stderr = put.stderr.strip()
            raise CliError(f"the script can't be copied into the sandbox: {stderr or f'exit code {put.exit_code}'}")
    options: dict[str, Any] = {"env": env, "cwd": working_dir, "timeout": timeout_seconds}
    with sandbox.start(list(job.command), stdin=with_stdin, tty=tty, **options) as process:
        try:
            return relay_streams(process, with_stdin=with_stdin, tty=tty, raw_output=raw_output)
        except KeyboardInterrupt:
            return INTERRUPTED


def _document(
    client: Client, namespace: str, request: SandboxRequest, container: dict[str, Any], lifecycle: dict[str, Any]
) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "Sandbox",
        "metadata": {
            "name": request.name or f"run-{secrets.token_hex(5)}",
            "namespace": namespace,
            "labels": {"app": LABEL},
        },
        "spec": {
            **container,
            **({"host": request.host} if request.host else {}),
            **_resources(client, request),
            "restartPolicy": "Never",
            "lifecycle": lifecycle,
        },
    }


def _resources(client: Client, request: SandboxRequest) -> dict[str, Any]:
    """Return the resources of the spec, if any are asked for."""
    resources = request.gpus.resources(client) if request.gpus != Gpus() else {}
    if request.limits:
        resources["limits"] = {**resources.get("limits", {}), **request.limits}
    return {"resources": resources} if resources else {}


def _container_spec(client: Client, namespace: str, request: SandboxRequest) -> dict[str, Any]:
    """Return the spec of the container. Only a templateRef to an unchanged template can claim a pool member.

    A template of the namespace comes before Paddock's own of that name.
    """
    if request.template and not request.changes_template and own_template(request.template) is None:
        return {"templateRef": {"name": request.template}}
    template, stored = _template(client, namespace, request)
    return (
        {"templateRef": {"name": request.template}}
        if stored and not request.changes_template
        else {"template": template}
    )


def _template(client: Client, namespace: str, request: SandboxRequest) -> tuple[dict[str, Any], bool]:
    """Return the template at the level asked for, and whether it is a stored one. Raises Refused if there is none."""
    template: dict[str, Any] = {"image": request.image or IMAGE, "command": ["sleep", "infinity"]}
    stored = False
    if request.template:
        own_spec = own_template(request.template)
        try:
            template = client.get(f"namespaces/{segment(namespace)}/sandboxtemplates/{segment(request.template)}")[
                "spec"
            ]
            stored = True
        except Refused as error:
            if own_spec is None or error.code != 404:
                raise
            template = own_spec
    changes: dict[str, Any] = {"securityLevel": request.level, "user": request.user}
    changes["volumes"] = [
        *template.get("volumes", ()),
        *(_mount(client, namespace, volume) for volume in request.volumes),
    ]
    template = {**template, **{name: value for name, value in changes.items() if value}}
    if request.image:
        template = with_image_volumes(template, _image_volumes(client, request))
    return template, stored


def _image_volumes(client: Client, request: SandboxRequest) -> Sequence[str]:
    """Return the VOLUMEs of the request's image, which is pulled if it is missing; () if that is refused or fails.

    The sandbox then says why, or its host can pull it.
    """
    try:
        return image_volumes(client, request.image, host=request.host)
    except Refused:
        return ()


def _mount(client: Client, namespace: str, volume: Volume) -> dict[str, Any]:
    """Return the mount of a volume: as large as it is, or of the default size if it is new."""
    from controller.kinds.volume import DEFAULT_VOLUME

    size = DEFAULT_VOLUME
    try:
        size = client.get(f"namespaces/{segment(namespace)}/volumes/{segment(volume.name)}")["spec"]["size"]
    except Refused as error:
        if error.code != 404:
            raise
    return {"name": volume.name, "mountPath": volume.path, "size": size, "readOnly": volume.read_only}


def own_template(name: str) -> dict[str, Any] | None:
    """Return the spec of one of Paddock's own templates (specs/sandboxtemplate); None if there is none."""
    import yaml

    for file in (folder / file_name for folder in _SPECS for file_name in _OWN):
        for document in yaml.safe_load_all(file.read_text()) if file.is_file() else ():
            if document["kind"] == "SandboxTemplate" and document["metadata"]["name"] == name:
                spec: dict[str, Any] = document["spec"]
                return spec
    return None


def _wait(
    client: Client, namespace: str, name: str, seconds: float | None, image: str = "", *, may_end: bool = False
) -> None:
    """Wait until it is Ready, for `seconds` (None: the default, in which the time of an image's build does not count).

    Raises CliError.
    """
    limit = _WAIT_SECONDS if seconds is None else seconds
    last = Obstacle("Pending", "Pending: not reconciled yet")

    def ready(_name: str, obj: Object | None) -> bool:
        nonlocal last
        if may_end and (obj is None or _has_ended(obj)):
            if obj is not None and obj["status"]["lastTermination"]["exitCode"] in _NOT_STARTED:
                raise CliError(_not_started(obj))
            return True
        for type_, status in (("Accepted", "False"), ("Finished", "True")):
            condition = condition_of(obj or {}, type_)
            if condition is not None and condition["status"] == status:
                raise CliError(f"the sandbox failed: {condition['reason']}: {condition.get('message', '')}")
        condition = condition_of(obj or {}, "Ready")
        if condition is None or condition["status"] == "True":
            return condition is not None
        if condition["reason"] in _HOPELESS:
            raise CliError(f"the sandbox failed: {condition['message']}")
        if condition["reason"] in _NO_IMAGE:
            raise CliError(f"{condition['message']}; {_images_here(client)}{_as_program(image)}")
        if condition["reason"] in _HOSTLESS:
            raise CliError(f"the sandbox has no host: {condition['message']}; for `paddock run`, add --host NAME")
        last = obstacle_of(condition)
        waiting.report(f"sandbox {name}", last.reason, last.message, counts=last.counts)
        return False

    with waiting_for(f"sandbox {name}") as waiting, pulls_shown(client, waiting):
        late = until(client, _SANDBOXES, namespace, names=[name], done=ready, deadline=time.monotonic() + limit)
        while late and seconds is None and last.counts:
            late = until(client, _SANDBOXES, namespace, names=[name], done=ready, deadline=time.monotonic() + limit)
    if late:
        raise CliError(f"the sandbox was not Ready within {limit:g} s: {last.message}; raise --wait")


def _as_program(image: str) -> str:
    """Return how to run what may be the name of a program, for a message; "" for what looks like an image."""
    return f"; for a program of the default image write `paddock run -- {image}`" if _PROGRAM.fullmatch(image) else ""


def _images_here(client: Client) -> str:
    """Return the images that the caller may use, for a message."""
    try:
        names = sorted({name for image in Images(client).list() for name in image["names"]})
    except ClientError as error:
        return f"the images here are unknown: {error.message}"
    if not names:
        return "no image is here"
    remark = f" and {len(names) - _SHOWN_IMAGES} more (`paddock image list`)" if len(names) > _SHOWN_IMAGES else ""
    return f"images here: {', '.join(names[:_SHOWN_IMAGES])}{remark}"


def _not_started(obj: Object) -> str:
    """Describe the end of a main command whose program could not be started, with the last lines of its log."""
    finished = condition_of(obj, "Finished") or {}
    last = "".join(f"\n{line}" for line in obj["status"]["lastTermination"].get("logTail", ())[-3:])
    return f"the command ended at once: {finished.get('message', '')}; check its name and the image{last}"


def _has_ended(obj: Object) -> bool:
    """Say whether its command ran to an end of its own, whatever its exit code."""
    finished = condition_of(obj, "Finished")
    return finished is not None and finished["status"] == "True" and "lastTermination" in obj["status"]


def _remove(client: Client, namespace: str, name: str) -> None:
    try:
        client.request("DELETE", _SANDBOXES.path(namespace, name))
    except ClientError as error:
        if getattr(error, "reason", "") != "NotFound":
            note(f"warning: {name} was not removed: {error.message}; the daemon deletes it once it is idle")


@contextlib.contextmanager
def _exit_on_signals() -> Iterator[None]:
    """Turn fatal signals into SystemExit, so that cleanup runs."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _frame: object) -> None:
        for signal_number in _FATAL_SIGNALS:  # once is enough
            signal.signal(signal_number, signal.SIG_IGN)
        raise SystemExit(128 + number)

    earlier = {number: signal.signal(number, end) for number in _FATAL_SIGNALS}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


def _read(source: Path) -> bytes:
    try:
        with source.open("rb") as file:
            data = file.read(_MAX_SCRIPT_BYTES + 1)
    except OSError as error:
        raise CliError(f"{source}: {error.strerror}; name a script that you can read") from error
    if len(data) > _MAX_SCRIPT_BYTES:
        raise CliError(
            f"{source} is larger than {_MAX_SCRIPT_BYTES >> 20} MiB, the limit of a script; use `paddock cp`"
        )
    return data
