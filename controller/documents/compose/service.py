"""One service of a Compose file as the spec of a Sandbox."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from controller.documents.compose import refused
from controller.documents.compose.gpus import read_gpus
from controller.documents.compose.mounts import MountReader, Volume, as_list
from controller.documents.compose.part import OURS, Part, listed, mapping, read_pairs, scalar
from controller.documents.compose.ports import read_ports
from controller.documents.compose.values import arguments, number, quantity, seconds
from controller.documents.yaml_tree import Node

_KNOWN = (
    *("image", "command", "entrypoint", "environment", "working_dir", "user", "runtime", "secrets", "labels"),
    *("volumes", "tmpfs", "read_only", "ports", "expose", "networks", "depends_on"),
    *(
        "mem_limit",
        "memswap_limit",
        "shm_size",
        "cpus",
        "cpu_shares",
        "pids_limit",
        "gpus",
        "deploy",
        "restart",
        "healthcheck",
    ),
    *("cap_drop", "security_opt", "stop_grace_period", "container_name", OURS),
)
_RESTART = {"no": "Never", "always": "Always", "unless-stopped": "Always", "on-failure": "OnFailure"}
_CONDITIONS = {"none": "Never", "on-failure": "OnFailure", "any": "Always"}
_OURS = ("securityLevel", "network", "lifecycle", "priority")
# The service's own key, the one below `deploy.resources.limits`, and the spec's.
_LIMITS = (("cpus", "cpus", "cpu"), ("mem_limit", "memory", "memory"), ("pids_limit", "pids", "pids"))
_RESERVED = ("paddock/", "com.docker.")
_NO_ORDER = "sandboxes start together: its command must wait for the others itself, or fail and be started again"
_WAITS = "Paddock starts the services together; write `condition: service_started`, and let its command wait or retry"
_IDLE = (
    "it is suspended after 30 minutes without use; write `x-paddock: {lifecycle: {keepRunning: true}}` to keep it on"
)
_RETRIES = "restarts have no count, but grow further apart; write `on-failure`"


@dataclass(frozen=True, slots=True)
class Shared:
    """Facts that the services of one file share. `defaults` is `x-paddock` at its top; `secrets` are the operator's."""

    project: str
    services: Sequence[str]
    volumes: Mapping[str, Volume]
    networks: Sequence[str]
    secrets: Mapping[str, Node]
    folder: str = ""
    defaults: Part | None = None


def read_service(sandbox: str, part: Part, shared: Shared) -> tuple[Node | None, Node]:
    """Return the labels and the spec of a service's sandbox; problems and notes are in the part's report."""
    refused.check(part, _KNOWN, refused.SERVICE)
    reader = _Service(sandbox, part, shared)
    return reader.labels(), reader.spec()


class _Service:
    def __init__(self, sandbox: str, part: Part, shared: Shared) -> None:
        self._sandbox, self._part, self._shared = sandbox, part, shared
        self._place = part.key or part.node

    def spec(self) -> Node:
        part = self._part
        mounts = MountReader(self._shared.volumes, self._shared.folder)
        self._with("volumes", mounts.volumes)
        self._with("tmpfs", mounts.tmpfs)
        self._with("ports", lambda each: read_ports(each, self._sandbox))
        self._with("expose", lambda each: [number(one) for one in each.items()])
        self._with("depends_on", self._order)
        ours = self._ours()
        image, user, folder = part.child("image"), part.child("user"), part.child("working_dir")
        if image is None:
            part.refuse("needs `image:`", at_key=True)
        found, restart = mounts.found, self._restart()
        if restart.value == "Always" and "lifecycle" not in ours:
            (part.child("restart") or part).note(_IDLE)
        template = {
            "image": self._text(image),
            **self._command(),
            "user": self._user(user),
            "workingDir": self._text(folder),
            "env": self._environment(),
            "tmpfs": as_list(found.tmpfs, self._at("tmpfs")),
            "shmSize": self._shared_memory(),
            "workspace": found.workspace,
            "secrets": self._secrets(),
            "volumes": as_list(found.volumes, self._at("volumes")),
            "securityLevel": ours.get("securityLevel"),
            "security": self._security(),
            "runtime": self._text(part.child("runtime")),
            "readiness": self._readiness(),
        }
        spec = {
            "template": mapping(template, self._place),
            "workspace": found.source,
            "resources": self._resources(),
            "restartPolicy": restart,
            "lifecycle": self._lifecycle(ours.get("lifecycle")),
            "network": self._network(ours.get("network")),
            "priority": ours.get("priority"),
        }
        return mapping(spec, self._place)

    def labels(self) -> Node | None:
        part = self._part.child("labels")
        found: dict[str, Node | None] = {}
        for name, each, given in read_pairs(part) if part is not None else ():
            if name.startswith(_RESERVED):
                each.refuse(f"`{name}` is not yours to set; remove it", at_key=True)
            text = each.text_or_flag() if given else ""
            found[name] = scalar(text or "", each.node)
        return mapping(found, part.node) if part is not None and found else None

    def _with(self, name: str, read: Callable[[Part], object]) -> None:
        if (part := self._part.child(name)) is not None:
            read(part)

    def _at(self, name: str) -> Node:
        part = self._part.child(name)
        return part.node if part is not None else self._place

    def _text(self, part: Part | None) -> Node | None:
        text = part.text() if part is not None else None
        return scalar(text, part.node) if part is not None and text is not None else None

    def _user(self, part: Part | None) -> Node | None:
        found = self._text(part)
        if part is not None and found is not None and not all(each.isdigit() for each in found.text.split(":")):
            part.refuse(f'`{found.text}` must be numeric, as names are the image\'s; write "UID:GID" ("1000:1000")')
            return None
        return found

    def _command(self) -> dict[str, Node | None]:
        """Return the template's command and arguments.

        `command` is arguments of the image's entry point, or of the service's own `entrypoint`, which replaces both.
        """
        entry, command = self._part.child("entrypoint"), self._part.child("command")
        program, args = (_words(each) if each is not None else None for each in (entry, command))
        if entry is None and args is not None and command is not None and not args.items:
            command.refuse("an empty list drops the image's own arguments; write `entrypoint:` with its program, too")
        elif entry is not None and program is not None:
            words = [*(program.items or ()), *((args.items if args is not None else None) or ())]
            if not words:
                entry.refuse("names no program; write one, or remove it")
            return {"command": listed(words, entry.node)}
        return {"args": args}

    def _shared_memory(self) -> Node | None:
        part = self._part.child("shm_size")
        amount = quantity(part) if part is not None else None
        return scalar(amount, part.node) if part is not None and amount is not None else None

    def _environment(self) -> Node | None:
        part = self._part.child("environment")
        found = []
        for name, each, given in read_pairs(part) if part is not None else ():
            if not given:
                each.refuse(
                    f"`{name}` has no value, and Paddock passes none of its own on; write `{name}: ${{{name}}}`"
                )
                continue
            text = each.text_or_flag()
            found.append(
                mapping(
                    {"name": scalar(name, each.key or each.node), "value": scalar(text or "", each.node)}, each.node
                )
            )
        return listed(found, part.node) if part is not None and found else None

    def _secrets(self) -> Node | None:
        part, found = self._part.child("secrets"), []
        for each in part.items() if part is not None else ():
            long = each.node.fields is not None
            if long:
                each.known("source", "target")
            named, target = (each.child("source"), each.child("target")) if long else (each, None)
            name = named.text() if named is not None else None
            known = self._shared.secrets.get(name or "")
            if named is None or name is None or known is None:
                each.refuse(f"there is no secret `{name}` in this file; add `secrets: {{{name}: {{external: true}}}}`")
                continue
            path = (target.text() if target is not None else None) or name
            path = path if path.startswith("/") else f"/run/secrets/{path}"
            found.append(mapping({"name": known, "mountPath": scalar(path, each.node)}, each.node))
        return listed(found, part.node) if part is not None and found else None

    def _security(self) -> Node | None:
        """Return what narrows the level. Nothing here ever widens it."""
        fields: dict[str, Node | None] = {}
        read_only, drop = self._part.child("read_only"), self._part.child("cap_drop")
        options, mode = self._part.child("security_opt"), self._part.child("network_mode")
        if read_only is not None and read_only.flag():
            fields["readOnlyRootFilesystem"] = scalar(True, read_only.node)
        if drop is not None and drop.items():
            if [each.text() for each in drop.items()] == ["ALL"]:
                fields["capabilities"] = listed([], drop.node)
            else:
                drop.refuse("write `cap_drop: [ALL]`: capabilities are the level's, all or none of them")
        for each in options.items() if options is not None else ():
            if each.text() in ("no-new-privileges:true", "no-new-privileges", "no-new-privileges=true"):
                fields["noNewPrivileges"] = scalar(True, each.node)
            else:
                each.refuse("profiles are the security level's (`x-paddock: {securityLevel: ...}`); remove it")
        if mode is not None and mode.node.value == "none":
            fields["network"] = mapping({"mode": scalar("none", mode.node)}, mode.node)
        return mapping(fields, self._place) if fields else None

    def _resources(self) -> Node | None:
        part, deploy = self._part, self._deploy()
        limits: dict[str, Node | None] = {}
        for own, other, field in (
            ("cpus", "cpus", "cpu"),
            ("mem_limit", "memory", "memory"),
            ("pids_limit", "pids", "pids"),
        ):
            mine, shared = part.child(own), deploy.child(other) if deploy is not None else None
            if mine is not None and shared is not None:
                shared.refuse(f"is set as `{own}`, too; keep one", at_key=True)
            limits[field] = self._limit(field, mine or shared)
        both = part.child("memswap_limit")
        if both is not None and (limits["memory"] is None or quantity(both) != limits["memory"].value):
            both.refuse("a sandbox has no swap; remove it, or write the same as `mem_limit`")
        shares = part.child("cpu_shares")
        weight = number(shares) if shares is not None else None
        limits["gpus"], devices = self._gpus()
        fields = {
            "limits": mapping(limits, self._place) if any(limits.values()) else None,
            "gpuDeviceIds": devices,
            "cpuShares": scalar(weight, shares.node) if shares is not None and weight is not None else None,
        }
        return mapping(fields, self._place) if any(fields.values()) else None

    def _gpus(self) -> tuple[Node | None, Node | None]:
        """Return the number of GPUs, or the particular ones."""
        own, part = self._part.child("gpus"), self._part
        for name in ("deploy", "resources", "reservations", "devices"):
            below = part.child(name)
            if below is None:
                return read_gpus(own) if own is not None else (None, None)
            part = below
        if own is not None:
            own.refuse("is set in `deploy: {resources: {reservations: ...}}`, too; keep one", at_key=True)
        return read_gpus(part, needs_capability=True)

    def _limit(self, field: str, part: Part | None) -> Node | None:
        if part is None:
            return None
        if field == "memory":
            amount = quantity(part)
            if amount == "0":
                part.refuse("a sandbox always has a limit; write one, such as 512m")
                return None
            return scalar(amount, part.node) if amount is not None else None
        text = part.text()
        if text is None:
            return None
        if field == "cpu":
            return scalar(text, part.node)
        count = number(part)
        if count is not None and count < 1:
            part.refuse("a sandbox always has a limit; write one, such as 128")
            return None
        return scalar(count, part.node) if count is not None else None

    def _deploy(self) -> Part | None:
        """Return the limits below `deploy:`; problems for all else there."""
        part = self._part.child("deploy")
        if part is None:
            return None
        swarm = "placement and updates are Paddock's; remove it"
        part.known(
            "resources", "replicas", "mode", "restart_policy",
            **dict.fromkeys(("placement", "update_config", "rollback_config", "endpoint_mode", "labels"), swarm),
        )  # fmt: skip
        replicas, mode, resources = part.child("replicas"), part.child("mode"), part.child("resources")
        if replicas is not None and number(replicas) != 1:
            replicas.refuse("a service is one sandbox; write a SandboxPool for more")
        if mode is not None and mode.text() != "replicated":
            mode.refuse("a service is one sandbox; remove it")
        if resources is None:
            return None
        resources.known("limits", "reservations")
        limits, reservations = resources.child("limits"), resources.child("reservations")
        if reservations is not None:
            same = "a sandbox's limit is what is reserved for it; write `limits:` alone"
            reservations.known("devices", **dict.fromkeys(("cpus", "memory", "pids", "generic_resources"), same))
        if limits is not None:
            limits.known("cpus", "memory", "pids")
        return limits

    def _restart(self) -> Node:
        part, deploy = self._part.child("restart"), self._part.child("deploy")
        policy = deploy.child("restart_policy") if deploy is not None else None
        if policy is not None:
            policy.known("condition", **dict.fromkeys(("delay", "max_attempts", "window"), _RETRIES))
            if part is not None:
                part.refuse("is set in `deploy: {restart_policy: ...}`, too; keep one", at_key=True)
            condition = policy.child("condition")
            return self._chosen(condition, _CONDITIONS) if condition is not None else scalar("Always", policy.node)
        if part is None:
            return scalar("Never", self._place)
        if part.node.text.startswith("on-failure:"):
            part.refuse(_RETRIES)
        elif part.node.value is False:  # YAML 1.1 parsers read a plain `no` so
            return scalar("Never", part.node)
        else:
            return self._chosen(part, _RESTART)
        return scalar("OnFailure", part.node)

    def _chosen(self, part: Part, words: Mapping[str, str]) -> Node:
        text = part.text()
        if text is not None and text not in words:
            part.refuse(f"`{text}` is not supported; write {', '.join(words)}")
        return scalar(words.get(text or "", "Never"), part.node)

    def _readiness(self) -> Node | None:
        part = self._part.child("healthcheck")
        if part is None:
            return None
        start = "the sandbox is not Ready before its first success anyway; remove it"
        part.known("test", "interval", "timeout", "retries", "disable", "start_period", start_interval=start)
        off, test = part.child("disable"), part.child("test")
        if off is not None and off.flag():
            return None
        if test is None:
            part.refuse("needs `test:`; the image's own health check is never run")
            return None
        command = self._test(test)
        if command is None:
            return None
        given = {name: part.child(name) for name in ("interval", "timeout", "retries", "start_period")}
        interval, timeout = given["interval"], given["timeout"]
        retries = given["retries"]
        if given["start_period"] is not None:
            seconds(given["start_period"])  # failures before the first success never count
        period = (seconds(interval) if interval is not None else None) or 30
        limit = (seconds(timeout) if timeout is not None else None) or 30
        count = number(retries) if retries is not None else 3
        fields = {
            "exec": mapping({"command": command}, test.node),
            "periodSeconds": scalar(period, interval.node if interval is not None else part.node),
            "timeoutSeconds": scalar(limit, timeout.node if timeout is not None else part.node),
            "failureThreshold": scalar(count, retries.node if retries is not None else part.node),
        }
        return mapping(fields, part.node)

    def _test(self, part: Part) -> Node | None:
        """Return the command of a health check; None for none, or for a problem."""
        if part.is_text:
            return self._shell(part, part.node.text)
        words = [each.text() for each in part.items()]
        if None in words or words == ["NONE"]:
            return None
        if len(words) == 2 and words[0] == "CMD-SHELL":
            return self._shell(part, words[1] or "")
        if len(words) > 1 and words[0] == "CMD":
            return listed([scalar(each, part.node) for each in words[1:]], part.node)
        part.refuse('must be ["CMD", PROGRAM, ...], ["CMD-SHELL", LINE] or ["NONE"]')
        return None

    def _shell(self, part: Part, line: str) -> Node:
        return listed([scalar(each, part.node) for each in ("/bin/sh", "-c", line)], part.node)

    def _order(self, part: Part) -> None:
        names: list[Part] = []
        if part.node.items is not None:
            names = [each for each in part.items() if each.text() is not None]
        else:
            for name, each in part.fields().items():
                names.append(Part(scalar(name, each.key or each.node), each.report, each.path, each.key))
                each.known("condition", "required", restart="services are restarted alone; remove it")
                condition = each.child("condition")
                if condition is not None and condition.text() != "service_started":
                    condition.refuse(_WAITS)
        for each in names:
            if each.node.text not in self._shared.services:
                each.refuse(f"there is no service `{each.node.text}` in this file; add it, or remove this")
        if names:
            part.note(_NO_ORDER)

    def _ours(self) -> dict[str, Node]:
        """Return the fields of `x-paddock`, the service's before the file's."""
        found: dict[str, Node] = {}
        for part in (self._shared.defaults, self._part.child(OURS)):
            if part is not None:
                found |= {name: each.node for name, each in part.fields().items() if not each.unset}
        own = self._part.child(OURS)
        if own is not None:
            own.known(*_OURS)
        return found

    def _lifecycle(self, ours: Node | None) -> Node | None:
        part = self._part.child("stop_grace_period")
        if part is None:
            return ours
        grace = seconds(part)
        fields = dict((ours.fields if ours is not None else None) or {})
        if "shutdownGracePeriodSeconds" in fields:
            part.refuse("is set in `x-paddock: {lifecycle: ...}`, too; keep one", at_key=True)
        own = {name: node for name, (_, node) in fields.items()}
        return mapping({**own, "shutdownGracePeriodSeconds": scalar(grace or 0, part.node)}, part.node)

    def _network(self, ours: Node | None) -> Node | None:
        part = self._part.child("networks")
        if part is None:
            return ours
        if part.node.fields is not None:
            joined = list(part.fields().items())
        else:
            joined = [(each.node.text, each) for each in part.items() if each.text() is not None]
        for name, each in joined:
            if each.node.fields is not None:
                each.refuse("a service has no address or alias of its own in a network; write the name alone")
            if name not in ("default", *self._shared.networks):
                words = f"there is no network `{name}` in this file; add it at the end: `networks: {{{name}: {{}}}}`"
                each.refuse(words)
        mode = self._part.child("network_mode")
        if mode is not None:
            mode.refuse("`networks:` is set, too; keep one", at_key=True)
        if not joined:
            return ours
        fields = {name: node for name, (_, node) in ((ours.fields if ours is not None else None) or {}).items()}
        others = f"{self._shared.project}-SERVICE.peers.internal here (or NAME with a `container_name`)"
        part.note(f"another service is {others}, and sandboxes of other projects in the namespace can join, too")
        return mapping({"peers": scalar("Allowed", part.node), **fields}, part.node)


def _words(part: Part) -> Node | None:
    """Return the words of a command; None for a problem."""
    words = arguments(part)
    is_command = words is not None and (part.is_text or part.node.items is not None)
    return listed([scalar(each, part.node) for each in words or ()], part.node) if is_command else None


def check_defaults(part: Part | None) -> None:
    """Add problems for unknown fields of the file's own `x-paddock`."""
    if part is not None:
        part.known(*_OURS)
