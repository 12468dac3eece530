"""`paddock compose`: a Compose file as people run it; `paddock up` and `down` beside one."""

import contextlib
import json
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from controller.cli.calls.images import Images
from controller.cli.client import Client, connect
from controller.cli.commands.inside import exec, logs  # noqa: A004 - the command of this name
from controller.cli.commands.objects import delete
from controller.cli.commands.sandbox import restart
from controller.cli.compose import ports as compose_ports
from controller.cli.compose.file import ComposeFile, allow_outside_option
from controller.cli.errors import CliError
from controller.cli.objects.kinds import Resource
from controller.cli.objects.watch import Object, until
from controller.cli.options import DEFAULT_NAMESPACE, DURATION, Group, Target, located, namespace_option
from controller.cli.text.output import columns, json_text, note, say, yaml_text
from controller.cli.text.progress import image_work, waiting_for
from controller.kinds.common.apply_set import LABEL
from paddock._client.errors import Refused

F = TypeVar("F", bound=Callable[..., Any])
_FILES = ("compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml")
_OVERRIDES = (
    "compose.override.yaml",
    "compose.override.yml",
    "docker-compose.override.yaml",
    "docker-compose.override.yml",
)
_MERGE = "application/merge-patch+json"
_META = "paddock.compose"
_STOP_SECONDS = 60.0
_SANDBOXES = Resource("sandboxes", "sandbox", "Sandbox", namespaced=True)
_OPTIONS = ("files_", "project", "env_files", "profiles", "variables", "allow_outside")


def _file_options(command: F) -> F:
    """Add -f, -p and the like."""
    options = (
        click.option(
            "-f", "--file", "files_", multiple=True, metavar="FILE", help="Compose file; further ones are merged."
        ),
        click.option("-p", "--project-name", "--project", "project", metavar="NAME", help="Name of the project."),
        click.option("--env-file", "env_files", multiple=True, metavar="FILE", help="Variables, instead of `.env`."),
        click.option(
            "--profile", "profiles", multiple=True, metavar="NAME", help="Run the services of this profile, too."
        ),
        click.option("--var", "variables", multiple=True, metavar="NAME=VALUE", help="A variable of the Compose file."),
        allow_outside_option,
    )
    for option in reversed(options):
        command = option(command)
    return command


class _Project:
    """The project that a command is about, and its daemon."""

    def __init__(self, ctx: click.Context, namespace: str | None, options: Mapping[str, Any]) -> None:
        group_options = ctx.find_root().meta.get(_META, {})
        self._options = {name: options.get(name) or group_options.get(name) or () for name in _OPTIONS}
        self.ctx, self._namespace = ctx, namespace

    @property
    def namespace(self) -> str:
        return self._namespace or DEFAULT_NAMESPACE

    def file(self, services: Sequence[str] = ()) -> ComposeFile:
        """Read the file: that of -f, else that of this folder or of one above."""
        names = [*self._options["files_"]] or list(_files_here())
        if not names:
            raise CliError(f"there is no Compose file here or above; name one (-f FILE), or add {_FILES[0]}")
        return ComposeFile.read(
            names,
            self._options["project"] or None,
            self._options["variables"],
            env_files=self._options["env_files"],
            profiles=self._options["profiles"],
            services=services,
            allow_outside=bool(self._options["allow_outside"]),
        )

    def name(self) -> str:
        """Return the project's name: that of -p, else that of its file."""
        from controller.documents.compose.compose import project_name

        if self._options["project"]:
            return str(self._options["project"])
        file = self.file()
        name = project_name(file.file, file.text, file.project)
        if not isinstance(name, str):
            raise CliError(str(name))
        return name

    def ports_file(self, name: str) -> Path:
        return compose_ports.state_file(located(self.ctx).url, self.namespace, name)

    def environment(self) -> dict[str, str]:
        """Return the variables by which a process of ours finds the same daemon."""
        target: Target = self.ctx.find_root().obj
        pairs = {"PADDOCK_SERVER": target.address, "PADDOCK_CONTEXT": target.context}
        return {name: value for name, value in pairs.items() if value}


def _files_here() -> Iterator[str]:
    for folder in (Path.cwd(), *Path.cwd().parents):
        for name in _FILES:
            if (folder / name).is_file():
                yield str(folder / name)
                yield from (str(folder / other) for other in _OVERRIDES if (folder / other).is_file())
                return


def _sandboxes(client: Client, project: _Project, name: str, services: Sequence[str] = ()) -> list[Object]:
    """Return the project's sandboxes, or those of these services. Raises CliError for a service that has none."""
    from controller.documents.compose.compose import PROJECT_LABEL, SERVICE_LABEL
    from controller.documents.compose.mounts import like_name

    path = f"namespaces/{project.namespace}/sandboxes"
    items: list[Object] = client.get(path, labelSelector=f"{PROJECT_LABEL}={name}")["items"]
    by_service = {sandbox["metadata"]["labels"][SERVICE_LABEL]: sandbox for sandbox in items}
    missing = [service for service in services if like_name(service) not in by_service]
    if missing:
        have = f"there are {', '.join(by_service)}" if by_service else "run `paddock compose up -d` first"
        raise CliError(f"service {missing[0]}: project {name} runs none of that name; {have}")
    return [by_service[like_name(service)] for service in services] if services else items


@click.group("compose", cls=Group)
@_file_options
@click.pass_context
def compose_(ctx: click.Context, /, **options: Any) -> None:
    """Run a Compose file: each service is a sandbox, and they reach each other by name.

    The file is that of -f, else compose.yaml or docker-compose.yml in this folder or one above, with its override file.
    What a sandbox can't have is refused, with its line and what to write instead.

    \b
    paddock compose up -d
    paddock compose -f shop.yaml -p shop logs -f web
    """
    ctx.find_root().meta[_META] = options


def _up_options(command: F) -> F:
    options = (
        click.argument("services", nargs=-1, metavar="[SERVICE ...]"),
        _file_options,
        namespace_option,
        click.option(
            "-d", "--detach", is_flag=True, help="Return once the services are ready, and leave them running."
        ),
        click.option("--build", is_flag=True, help="Build images that are there already, too."),
        click.option("--no-build", is_flag=True, help="Build no image."),
        click.option("--remove-orphans", is_flag=True, help="Delete sandboxes of services that the file lacks."),
        click.option("--timeout", type=DURATION, default="300s", help="How long to wait for them. [default: 300s]"),
        click.option("--wait", is_flag=True, hidden=True, expose_value=False, help="As without: they are waited for."),
        click.option("--quiet-pull", "--no-recreate", "--no-color", is_flag=True, hidden=True, expose_value=False),
    )
    for option in reversed(options):
        command = option(command)
    return command


@compose_.command("up")
@_up_options
@click.pass_context
def up(
    ctx: click.Context,
    /,
    services: Sequence[str],
    namespace: str | None,
    detach: bool,
    build: bool,
    no_build: bool,
    remove_orphans: bool,
    timeout: float,
    **options: Any,
) -> None:
    """Build what is missing, start the services in their order, and open their ports at 127.0.0.1.

    Without -d their logs are shown until Ctrl-C, which stops them. With -d a process in the background forwards the
    ports until `paddock compose down` or `stop`.

    \b
    paddock compose up -d
    paddock compose up --build web
    """
    project = _Project(ctx, namespace, options)
    file, client = project.file(services), connect(ctx)
    if remove_orphans and services:
        raise click.UsageError("--remove-orphans is about all services; name none, or leave it out")
    start = time.monotonic()
    composed = file.composed(namespace)
    if not no_build:
        _build(client, file, composed.builds, always=build)
    as_set: dict[str, Any] = {"applyset": None, "prune": remove_orphans}
    file, _ = file.prepare(as_set, namespace, client, pulls=True)
    body = {
        "documents": [file.body()],
        "namespace": namespace,
        "applySet": as_set["applyset"],
        "prune": remove_orphans,
    }
    finished = _finished(client, project, set(composed.sandboxes.values()), composed.project)
    if finished:
        client.request("POST", "apply", json={**body, "dryRun": True})  # a refusal must not cost them
        note(f"these have ended, and run once more: {', '.join(finished)}")
        _call(ctx, delete.delete_, ["sandboxes", *finished, "-n", project.namespace])
    for outcome in client.request("POST", "apply", json=body)["items"]:
        say(f"{outcome['resource']}/{outcome['metadata']['name']} {outcome['result']}")
    sandboxes = list(composed.sandboxes.values())
    _set_run_state(client, project.namespace, sandboxes, "Running")
    try:
        _wait(client, project.namespace, sandboxes, timeout)
    except KeyboardInterrupt:
        if not detach:
            _stop_interrupted(client, project.namespace, sandboxes)
        raise
    ports = [(port.sandbox, port.local, port.remote) for port in composed.ports]
    if detach:
        _forward_beside(project, composed.project, ports)
        return
    _attend(client, project, sandboxes, ports, start)


def _finished(client: Client, project: _Project, names: Collection[str], project_name: str) -> list[str]:
    """Return the services that have ended for good; deleted, they run once more: a finished sandbox stays so."""
    sandboxes = _sandboxes(client, project, project_name)
    finished = {sandbox["metadata"]["name"] for sandbox in sandboxes if restart.is_finished(sandbox)}
    return sorted(finished & {*names})


def _forward_beside(project: _Project, name: str, ports: Sequence[compose_ports.Port]) -> None:
    path = project.ports_file(name)
    if not ports:
        compose_ports.stop(path)
        return
    _say_ports(compose_ports.start(path, project.namespace, ports, project.environment()))


def _say_ports(state: Mapping[str, Any]) -> None:
    for name, local, remote in state["ports"]:
        say(f"127.0.0.1:{local} -> {name}:{remote}")
    if state["errors"]:
        raise CliError("\n".join(f"port {error}; the services run on" for error in state["errors"]))


def _attend(
    client: Client,
    project: _Project,
    sandboxes: Sequence[str],
    ports: Sequence[compose_ports.Port],
    start: float,
) -> None:
    """Forward ports and show logs until all services have ended, or until interrupted, and stop them then."""
    with compose_ports.listening(client, project.namespace, ports) as (opened, errors):
        for name, local, remote in opened:
            say(f"127.0.0.1:{local} -> {name}:{remote}")
        for error in errors:
            note(f"error: port {error}")
        try:
            logs.follow_to_their_ends(client, project.namespace, sandboxes, time.monotonic() - start)
        except KeyboardInterrupt:
            pass
        except BaseException:
            _stop(client, project.namespace, sandboxes, 0)
            raise
        else:
            note("all services have ended; `paddock compose down` deletes them")
            return
    _stop_interrupted(client, project.namespace, sandboxes)


def _stop_interrupted(client: Client, namespace: str, names: Sequence[str]) -> None:
    """Stop services after a Ctrl-C; a second one ends the wait for that."""
    note("stopping the services (Ctrl-C: not waiting for them); `paddock compose down` deletes them")
    with contextlib.suppress(KeyboardInterrupt):
        _stop(client, namespace, names, _STOP_SECONDS)


def _stop(client: Client, namespace: str, names: Sequence[str], timeout: float) -> None:
    """Stop services, and wait until they are. A second Ctrl-C ends the wait, and no sooner."""
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        _set_run_state(client, namespace, names, "Suspended")
    finally:
        signal.signal(signal.SIGINT, handler)

    def done(_name: str, sandbox: Object | None) -> bool:
        conditions = {
            entry["type"]: entry["status"] for entry in (sandbox or {}).get("status", {}).get("conditions", ())
        }
        return sandbox is None or "True" in (conditions.get("Suspended"), conditions.get("Finished"))

    late = until(client, _SANDBOXES, namespace, names=names, done=done, deadline=time.monotonic() + timeout)
    if late and timeout:
        raise CliError(f"not stopped within {timeout:g} s: {', '.join(late)}; see `paddock why NAME`")


def _build(client: Client, file: ComposeFile, builds: Sequence[Any], *, always: bool) -> None:
    """Build the images that are not there, or all of them."""
    images = Images(client)
    names = {name for image in images.list() for name in image["names"]} if builds and not always else set()
    missing = [build for build in {build.image: build for build in builds}.values() if build.image not in names]
    for build, folder in [(build, file.build_folder(build)) for build in missing]:
        with image_work(f"building {build.image}") as progress:
            images.build(
                build.image, str(folder), dockerfile=build.dockerfile, arguments=build.arguments, progress=progress
            )
        say(f"{build.image} built")


def _set_run_state(client: Client, namespace: str, names: Sequence[str], state: str) -> None:
    for name in names:
        path = f"namespaces/{namespace}/sandboxes/{name}"
        try:
            sandbox = client.get(path)
            is_over = state == "Suspended" and restart.is_finished(sandbox)
            if not is_over and sandbox["spec"].get("runState", "Running") != state:
                change = {"spec": {"runState": state}}
                client.request("PATCH", path, json=change, content_type=_MERGE)
        except Refused as error:
            if error.reason != "NotFound":
                raise


def _wait(client: Client, namespace: str, names: Sequence[str], timeout: float) -> None:
    """Wait until each sandbox is Ready, or has succeeded. One that fails ends the wait."""
    failures: dict[str, str] = {}
    count, settled = len(names), set[str]()
    with waiting_for(f"{count} services: 0/{count} up") as waiting:

        def done(name: str, sandbox: Object | None) -> bool:
            conditions = {entry["type"]: entry for entry in (sandbox or {}).get("status", {}).get("conditions", ())}
            ready, finished = conditions.get("Ready", {}), conditions.get("Finished", {})
            accepted = conditions.get("Accepted", {})
            if ready.get("status") == "True" or finished.get("reason") == "Completed":
                settled.add(name)
                waiting.count(f"{count} services: {len(settled)}/{count} up")
            elif finished.get("status") == "True" or accepted.get("status") == "False":
                cause = finished if finished.get("status") == "True" else accepted
                failures[name] = f"{cause['reason']}: {cause['message']}"
            elif ready.get("reason"):
                waiting.report(f"sandbox {name}", ready["reason"], ready.get("message", ""), counts=False)
            return name in settled or bool(failures)

        late = until(client, _SANDBOXES, namespace, names=names, done=done, deadline=time.monotonic() + timeout)
    if failures:
        raise CliError("\n".join(f"{name}: {why}; see `paddock logs {name}`" for name, why in failures.items()))
    if late:
        raise CliError(f"not up within {timeout:g} s: {', '.join(late)}; see `paddock why NAME`")


def _down_options(command: F) -> F:
    options = (
        _file_options,
        namespace_option,
        click.option(
            "-v", "--volumes", is_flag=True, help="Delete its volumes, too; not those with a `name:` in the file."
        ),
        click.option("-t", "--timeout", type=DURATION, default="60s", help="How long to wait. [default: 60s]"),
        click.option("--remove-orphans", is_flag=True, hidden=True, expose_value=False, help="As without."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@compose_.command("down")
@_down_options
@click.pass_context
def down(ctx: click.Context, /, namespace: str | None, volumes: bool, timeout: float, **options: Any) -> None:
    """Delete the project's sandboxes and close its ports. Volumes stay, unless -v is given."""
    from controller.documents.compose.compose import apply_set_name

    project = _Project(ctx, namespace, options)
    name, client = project.name(), connect(ctx)
    # The file alone says which volumes others may use.
    composed = project.file().composed_to_delete(client, namespace) if volumes else None
    compose_ports.stop(project.ports_file(name))
    members = f"{LABEL}={apply_set_name(project.namespace, name)}"
    path = f"namespaces/{project.namespace}/sandboxes"
    sandboxes: list[Object] = client.get(path, labelSelector=members)["items"]
    waiting = ["--timeout", f"{timeout:g}s", "-n", project.namespace]
    if sandboxes:
        _call(ctx, delete.delete_, ["sandboxes", "-l", members, *waiting])
    else:
        note(f"project {name} runs nothing in namespace {project.namespace}")
    if composed is not None:
        nameless = {volume for sandbox in sandboxes for volume in _nameless_volumes(name, sandbox)}
        names = sorted((composed.volumes | nameless) - composed.named_volumes)
        if names:
            _call(ctx, delete.delete_, ["volume", *names, "--ignore-not-found", *waiting])


def _nameless_volumes(project_name: str, sandbox: Object) -> Iterator[str]:
    """Yield the volumes that have their names from where they are mounted; the file may lack their service by now."""
    from controller.documents.compose.compose import SERVICE_LABEL
    from controller.documents.compose.mounts import is_nameless

    service = sandbox["metadata"]["labels"].get(SERVICE_LABEL, "")
    for volume in (sandbox["spec"].get("template") or {}).get("volumes") or ():
        if is_nameless(volume["name"], f"{project_name}-{service}", volume["mountPath"]):
            yield str(volume["name"])


@compose_.command("ps")
@click.argument("services", nargs=-1, metavar="[SERVICE ...]")
@_file_options
@namespace_option
@click.option("-a", "--all", is_flag=True, expose_value=False, help="As without: stopped ones are shown, too.")
@click.option("-q", "--quiet", is_flag=True, help="Print the names of the sandboxes alone.")
@click.option("--services", "services_only", is_flag=True, help="Print the names of the services alone.")
@click.option("--format", "format_", type=click.Choice(["table", "json"]), default="table", help="Format.")
@click.pass_context
def ps(
    ctx: click.Context,
    /,
    services: Sequence[str],
    namespace: str | None,
    quiet: bool,
    services_only: bool,
    format_: str,
    **options: Any,
) -> None:
    """List the project's sandboxes, with their state and ports."""
    from controller.documents.compose.compose import SERVICE_LABEL

    project = _Project(ctx, namespace, options)
    name, client = project.name(), connect(ctx)
    open_ports = compose_ports.running(project.ports_file(name)).get("ports", ())
    sandboxes = _sandboxes(client, project, name, services)
    rows = []
    for sandbox in sandboxes:
        sandbox_name = sandbox["metadata"]["name"]
        conditions = {entry["type"]: entry for entry in sandbox.get("status", {}).get("conditions", ())}
        ready, finished = conditions.get("Ready", {}), conditions.get("Finished", {})
        status = "Running" if ready.get("status") == "True" else ready.get("reason", "Pending")
        status = finished["reason"] if finished.get("status") == "True" else status
        shown = ", ".join(
            f"127.0.0.1:{local}->{remote}" for owner, local, remote in open_ports if owner == sandbox_name
        )
        image = (sandbox["spec"].get("template") or {}).get("image", "-")
        rows.append([sandbox_name, image, sandbox["metadata"]["labels"][SERVICE_LABEL], status, shown or "-"])
    if quiet or services_only:
        for row in rows:
            say(row[2] if services_only else row[0])
    elif format_ == "json":
        titles = ("name", "image", "service", "status", "ports")
        say(json_text([dict(zip(titles, row, strict=True)) for row in rows]))
    else:
        say(columns([["NAME", "IMAGE", "SERVICE", "STATUS", "PORTS"], *rows]))


@compose_.command("logs", cls=logs.LogsCommand)
@click.argument("services", nargs=-1, metavar="[SERVICE ...]")
@namespace_option
@click.option("-f", "--follow", is_flag=True, help="Show new output as it is written.")
@click.option("--tail", metavar="LINES", help="Only the last lines.")
@click.option("-t", "--timestamps", is_flag=True, help="Prefix each line with its time.")
@click.option("--since", metavar="DURATION", help="Only output newer than this: 30s, 10m, 2h.")
@click.option("--no-log-prefix", is_flag=True, help="Of one service: no name in front of each line.")
@click.option("--no-color", is_flag=True, hidden=True, expose_value=False)
@click.pass_context
def logs_of(
    ctx: click.Context,
    services: Sequence[str],
    namespace: str | None,
    follow: bool,
    tail: str | None,
    timestamps: bool,
    since: str | None,
    no_log_prefix: bool,
) -> None:
    """Show the logs of the project's services, each line with its sandbox in front."""
    project = _Project(ctx, namespace, {})
    names = [sandbox["metadata"]["name"] for sandbox in _sandboxes(connect(ctx), project, project.name(), services)]
    if not names:
        raise CliError("the project runs nothing; start it with `paddock compose up -d`")
    flags = [flag for flag, is_set in (("-f", follow), ("-t", timestamps), ("--prefix", not no_log_prefix)) if is_set]
    values = [word for option, value in (("--tail", tail), ("--since", since)) if value for word in (option, value)]
    _call(ctx, logs.logs_, [*names, *flags, *values, "-n", project.namespace])


@compose_.command("exec", context_settings={"allow_interspersed_args": False})
@click.argument("service")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="COMMAND [ARG ...]")
@namespace_option
@click.option("-d", "--detach", is_flag=True, help="Run it in the background.")
@click.option("-e", "--env", multiple=True, metavar="NAME=VALUE", help="Environment variable; repeatable.")
@click.option("-w", "--workdir", metavar="FOLDER", help="Working directory of the command.")
@click.option("-T", "--no-tty", is_flag=True, help="No terminal, even where there is one.")
@click.option("-i", "--interactive", "-t", "--tty", is_flag=True, hidden=True, expose_value=False)
@click.pass_context
def exec_of(
    ctx: click.Context,
    service: str,
    command: Sequence[str],
    namespace: str | None,
    detach: bool,
    env: Sequence[str],
    workdir: str | None,
    no_tty: bool,
) -> None:
    """Run a command in a service; at a terminal it gets one.

    \b
    paddock compose exec web sh
    paddock compose exec -T db pg_dump shop
    """
    project = _Project(ctx, namespace, {})
    (sandbox,) = _sandboxes(connect(ctx), project, project.name(), [service])
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty() and not no_tty and not detach
    flags = ["-it"] if is_terminal else ["-d"] if detach else ["-i"]
    flags += [word for variable in env for word in ("-e", variable)] + (["-w", workdir] if workdir else [])
    words = [sandbox["metadata"]["name"], *flags, "-n", project.namespace, "--", *command]
    _call(ctx, exec.exec_, words)


@compose_.command("build")
@click.argument("services", nargs=-1, metavar="[SERVICE ...]")
@_file_options
@click.pass_context
def build_(ctx: click.Context, /, services: Sequence[str], **options: Any) -> None:
    """Build the images of services with `build:`. Needs the role admin, and the setting image_build."""
    file = _Project(ctx, None, options).file(services)
    builds = file.composed(None).builds
    if not builds:
        note("no service of the file has `build:`")
    _build(connect(ctx), file, builds, always=True)


@compose_.command("config")
@_file_options
@namespace_option
@click.option("--services", "services_only", is_flag=True, help="Print the names of the services alone.")
@click.option("--images", "images_only", is_flag=True, help="Print the names of the images alone.")
@click.option("-q", "--quiet", is_flag=True, help="Check the file, and print nothing.")
@click.pass_context
def config(
    ctx: click.Context, /, namespace: str | None, services_only: bool, images_only: bool, quiet: bool, **options: Any
) -> None:
    """Check the file, and print the sandboxes that it becomes. No daemon is asked."""
    composed = _Project(ctx, namespace, options).file().composed(namespace)
    for remark in composed.notes:
        note(f"note: {remark}")
    if quiet:
        return
    if services_only or images_only:
        images = dict.fromkeys(str(document.spec["template"]["image"]) for document in composed.documents)
        for line in composed.sandboxes if services_only else images:
            say(line)
        return
    for document in composed.documents:
        metadata = {"name": document.name, "labels": dict(document.labels)}
        kind = {"apiVersion": "paddock/v1alpha1", "kind": "Sandbox"}
        say("---\n" + yaml_text({**kind, "metadata": metadata, "spec": document.spec}).rstrip("\n"), exact=False)


def _run_state_command(name: str, state: str, summary: str) -> None:
    @compose_.command(name, help=summary)
    @click.argument("services", nargs=-1, metavar="[SERVICE ...]")
    @_file_options
    @namespace_option
    @click.option("-t", "--timeout", type=DURATION, default="60s", help="How long to wait. [default: 60s]")
    @click.pass_context
    def command(
        ctx: click.Context, /, services: Sequence[str], namespace: str | None, timeout: float, **options: Any
    ) -> None:
        project = _Project(ctx, namespace, options)
        project_name, client = project.name(), connect(ctx)
        sandboxes = [sandbox["metadata"]["name"] for sandbox in _sandboxes(client, project, project_name, services)]
        if state == "Suspended" and not services:
            compose_ports.stop(project.ports_file(project_name))
        if state == "Suspended":
            _stop(client, project.namespace, sandboxes, timeout)
        else:
            _set_run_state(client, project.namespace, sandboxes, state)
            _wait(client, project.namespace, sandboxes, timeout)
        for sandbox in sandboxes:
            say(f"sandbox.paddock/{sandbox} {state.lower()}")


_run_state_command("stop", "Suspended", "Stop services; files in memory are kept, too.")
_run_state_command("start", "Running", "Start stopped services again; `up -d` opens their ports, too.")


@compose_.command("restart")
@click.argument("services", nargs=-1, metavar="[SERVICE ...]")
@_file_options
@namespace_option
@click.option("-t", "--timeout", type=DURATION, default="120s", help="How long to wait. [default: 120s]")
@click.pass_context
def restart_of(
    ctx: click.Context, /, services: Sequence[str], namespace: str | None, timeout: float, **options: Any
) -> None:
    """Stop services and start them again, and wait until they are Ready."""
    project = _Project(ctx, namespace, options)
    client = connect(ctx)
    sandboxes = _sandboxes(client, project, project.name(), services)
    names = [sandbox["metadata"]["name"] for sandbox in sandboxes if services or not restart.is_finished(sandbox)]
    if not names:
        raise CliError("the project runs nothing; start it with `paddock compose up -d`")
    restart.restart(client, names, project.namespace, "", timeout)


@compose_.command("forward", hidden=True)
@click.argument("path", type=click.Path(path_type=Path))
@click.pass_context
def forward(ctx: click.Context, path: Path) -> None:
    """Forward the ports that stdin names, until SIGTERM. What it opened is one line of JSON on stdout."""

    def tell(line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    compose_ports.forward(connect(ctx), path, json.load(sys.stdin), tell)


def _call(ctx: click.Context, command: click.Command, arguments: list[str]) -> None:
    """Run another command with these arguments; its failure is this one's."""
    with command.make_context(command.name, arguments, parent=ctx) as below:
        try:
            command.invoke(below)
        except click.exceptions.Exit as end:
            if end.exit_code:
                raise
