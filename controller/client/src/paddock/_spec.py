"""Documents of new sandboxes from keyword arguments."""

import math
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypedDict

from paddock._client.command import Secret
from paddock._version import API_VERSION

DEFAULT_IMAGE = "paddock/python:1"
_SLEEP = ("sleep", "infinity")


class SandboxOptions(TypedDict, total=False):
    """Keyword arguments of `sandboxes.create`; each is one field of a Sandbox's spec."""

    template: str
    """A SandboxTemplate of the namespace; a warm sandbox of its pools is claimed if there is one."""
    image: str
    """A container image; its sandbox runs `command`, or just waits for yours."""
    pool: str
    """A SandboxPool of the namespace: the sandbox is one of its warm members."""
    command: Sequence[str]
    """Main process. Default with `image`: one that waits. It can't be given with `template` or `pool`."""
    agent: bool
    """An agent in the sandbox, by which code keeps its variables (default with `image`); False: none."""
    env: Mapping[str, str]
    """Variables of the main process and of every command. With `template` or `pool`: of every command only."""
    level: str
    """Security level: full-isolation (default), development, build or production, or a SecurityProfile's name.

    Default with `allowed_hosts`: development; with `template` or `pool`: theirs.
    """
    cpu: str | float
    """CPU limit, such as "500m" or 2."""
    memory: str | int
    """Memory limit, such as "512Mi", or bytes."""
    pids: int
    """Limit of processes and threads."""
    disk: str | int
    """Disk reserved, such as "2Gi"."""
    gpus: int
    """Number of GPUs."""
    workspace: Mapping[str, Any]
    """Working folder: `{"hostPath": PATH}` or `{"volume": {"name": NAME, "size": "1Gi"}}`."""
    volumes: Sequence[Mapping[str, Any]]
    """Volumes: `{"name": NAME, "mountPath": PATH, "size": "1Gi"}` each. Only with `image`."""
    allowed_hosts: Sequence[str]
    """Host names that it may reach, through a proxy, and no others; `*.` in front stands for its subdomains."""
    restart: str
    """Always (default), OnFailure or Never."""
    idle_timeout: float
    """Seconds without use until it is suspended, or deleted with `on_idle`."""
    on_idle: str
    """Suspend (default) or Delete."""
    lifetime: float
    """Seconds after which it is stopped and deleted, whatever it does."""
    keep_running: bool
    """Never idle."""
    priority: int
    """Order in the queue when resources are short."""


_LIMITS = ("cpu", "memory", "pids", "disk", "gpus")
_IN_TEMPLATE = ("agent", "command", "volumes")
_AGENT_PIDS = 5  # the fewest beside an agent
_ISOLATED, _WITH_HOSTS = "full-isolation", "development"


def new_name() -> str:
    """Return a name that no other sandbox has."""
    return f"sb-{secrets.token_hex(5)}"


def document(
    name: str, namespace: str, labels: Mapping[str, str], annotations: Mapping[str, str], spec: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a Sandbox document. `spec` may be a whole document, whose metadata is kept. Without a name it gets one."""
    body = spec if "kind" in spec or "spec" in spec else {"spec": spec}
    metadata: dict[str, Any] = {"namespace": namespace, **body.get("metadata", {})}
    metadata["name"] = name or metadata.get("name") or new_name()
    if labels:
        metadata["labels"] = {**metadata.get("labels", {}), **labels}
    if annotations:
        metadata["annotations"] = {**metadata.get("annotations", {}), **annotations}
    return {"apiVersion": API_VERSION, "kind": "Sandbox", **body, "metadata": metadata}


def spec_of(options: SandboxOptions, pool_template: str = "") -> dict[str, Any]:
    """Return a Sandbox's spec. `pool_template` is that of the option `pool`. Raises TypeError with all faults."""
    _check(options)
    template = pool_template or options.get("template", "")
    spec: dict[str, Any] = {"templateRef": {"name": template}} if template else {"template": _template(options)}
    if pool_template:
        spec["poolPolicy"] = "Require"
    if options.get("allowed_hosts") and not template and not options.get("level"):
        spec["securityLevel"] = _WITH_HOSTS
    for option, field in (("level", "securityLevel"), ("workspace", "workspace"), ("restart", "restartPolicy")):
        if option in options:
            spec[field] = options[option]  # type: ignore[literal-required] # the names above
    if "priority" in options:
        spec["priority"] = options["priority"]
    limits = {key: _quantity(options[key]) for key in _LIMITS if key in options}  # type: ignore[literal-required]
    if limits:
        spec["resources"] = {"limits": limits}
    if "allowed_hosts" in options:
        spec["network"] = {"allowedHosts": list(options["allowed_hosts"])}
    lifecycle = _lifecycle(options)
    if lifecycle:
        spec["lifecycle"] = lifecycle
    return spec


def _check(options: SandboxOptions) -> None:
    known_options = SandboxOptions.__annotations__
    faults = [f"unknown option `{option}`" for option in options if option not in known_options]
    sources = [source for source in ("template", "image", "pool") if options.get(source)]
    if len(sources) > 1:
        faults.append(f"{' and '.join(f'`{source}`' for source in sources)} exclude each other; give one")
    if sources and sources[0] != "image":
        faults += [
            f"`{option}` is part of a container, which `{sources[0]}` defines; change the template, or use `image`"
            for option in _IN_TEMPLATE
            if option in options
        ]
    if options.get("allowed_hosts") and options.get("level") == _ISOLATED:
        faults.append(
            f"level {_ISOLATED} has no network, so `allowed_hosts` can't apply; leave out `level` (then it is "
            f"{_WITH_HOSTS}), or leave out `allowed_hosts`"
        )
    if isinstance(options.get("allowed_hosts"), str):
        faults.append('`allowed_hosts` must be a list of strings; write ["HOST"] for one')
    if isinstance(options.get("command"), str):
        faults.append('`command` must be a list of strings; write ["sh", "-c", LINE] for a shell line')
    if faults:
        raise TypeError(f"create: {'; '.join(faults)}")


def _template(options: SandboxOptions) -> dict[str, Any]:
    template: dict[str, Any] = {"image": options.get("image", DEFAULT_IMAGE), "command": list(_SLEEP)}
    if options.get("agent", True) and options.get("pids", _AGENT_PIDS) >= _AGENT_PIDS:
        template["agent"] = {}
    if "command" in options:
        template["command"] = list(options["command"])
    # A secret goes into commands only: everybody who may inspect the container reads its own variables.
    plain = {name: value for name, value in options.get("env", {}).items() if not isinstance(value, Secret)}
    if plain:
        template["env"] = [{"name": name, "value": value} for name, value in plain.items()]
    if "volumes" in options:
        template["volumes"] = [dict(volume) for volume in options["volumes"]]
    return template


def _lifecycle(options: SandboxOptions) -> dict[str, Any]:
    lifecycle: dict[str, Any] = {}
    if "idle_timeout" in options:
        lifecycle["idleTimeoutSeconds"] = _seconds(options["idle_timeout"])
    if "on_idle" in options:
        lifecycle["onIdle"] = options["on_idle"]
    if "keep_running" in options:
        lifecycle["keepRunning"] = options["keep_running"]
    if "lifetime" in options:
        lifecycle |= _lifetime(options["lifetime"])
    return lifecycle


def lifetime_from(now: float, sandbox: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """Return the `lifecycle` with which a sandbox is deleted `seconds` after `now`, a Unix time of the daemon's."""
    status = sandbox.get("status", {})
    started = status.get("firstStartTime") or status.get("startTime")  # without a deadline it has no first start
    elapsed = now - datetime.fromisoformat(started).timestamp() if started else 0.0
    return _lifetime(math.ceil(max(0.0, elapsed) + seconds))


def deadline_seconds(sandbox: Mapping[str, Any]) -> int:
    """Return its `activeDeadlineSeconds`, 0 if it has none."""
    return int(sandbox["spec"].get("lifecycle", {}).get("activeDeadlineSeconds") or 0)


def _lifetime(seconds: float) -> dict[str, Any]:
    return {"activeDeadlineSeconds": _seconds(seconds), "ttlSecondsAfterFinished": 0}


def _quantity(value: Any) -> Any:
    return value if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)) else str(value)


def _seconds(value: float) -> int:
    return max(1, round(value))
