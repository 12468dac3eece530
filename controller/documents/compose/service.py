"""One service of a Compose file as the spec of a Sandbox."""

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from controller.documents.compose import refused
from controller.documents.compose.build import Build, read_build
from controller.documents.compose.element import OURS, Element, list_node, mapping_node, read_pairs, scalar
from controller.documents.compose.env_file import read_variables
from controller.documents.compose.gpus import read_gpus
from controller.documents.compose.healthcheck import read_healthcheck
from controller.documents.compose.mounts import MountReader, Volume, as_list
from controller.documents.compose.networks import Joined, network_node, peer_names
from controller.documents.compose.order import Dependency, start_node
from controller.documents.compose.ports import Published, read_ports
from controller.documents.compose.texts import Secret, as_file, read_configs_of
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
    *("build", "configs", "env_file", "extends", "label_file", "profiles", "stdin_open", "tty"),
    *("cap_add", "cap_drop", "security_opt", "stop_grace_period", "container_name", "links", OURS),
)
_RESTART = {"no": "Never", "always": "Always", "unless-stopped": "Always", "on-failure": "OnFailure"}
_CONDITIONS = {"none": "Never", "on-failure": "OnFailure", "any": "Always"}
_OURS = ("securityLevel", "network", "lifecycle", "priority")
# The service's own key, the one below `deploy.resources.limits`, and the spec's.
_LIMITS = (("cpus", "cpus", "cpu"), ("mem_limit", "memory", "memory"), ("pids_limit", "pids", "pids"))
_WORD = r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_LABEL = re.compile(rf"([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?{_WORD}")
_LABEL_VALUE = re.compile(f"({_WORD})?")
_RESERVED = ("paddock/", "com.docker.")
_RETRIES = "restarts have no count here, but grow further apart"
_LEVEL = "development"  # of a service that names none: images expect root in them, and services each other
_RESERVATIONS = ("cpus", "memory", "pids", "generic_resources")
DEFAULT_MEMORY = "1Gi"  # of a service that names neither a limit nor a level: more than most need, and many fit a host
_LOW_PORTS = 1024
_SHELLS = ("sh", "bash", "ash", "dash", "zsh")
_JOINED_LEVELS = (_LEVEL, "build")  # levels whose sandboxes join others
_LEVEL_REMEDY = "remove it, or choose a level (`x-paddock: {securityLevel: ...}`)"
_LEVEL_CAPABILITIES = {_LEVEL: ("CHOWN", "SETGID", "SETUID")}


@dataclass(frozen=True, slots=True)
class Shared:
    """Facts that the services of one file share."""

    project: str
    """Name of the project."""
    sandboxes: Mapping[str, str]
    """Names of the services' sandboxes."""
    volumes: Mapping[str, Volume]
    """Volumes at the top of the file."""
    secrets: Mapping[str, Secret]
    """Secrets: names of the operator's, and texts as in `configs`."""
    joined: Mapping[str, Joined]
    """Part of each service in the networks."""
    dependencies: Mapping[str, tuple[Dependency, ...]]
    """Services that come before each service."""
    configs: Mapping[str, Node]
    """Configs at the top of the file."""
    folder: str = ""
    """Folder of the file."""
    defaults: Element | None = None
    """`x-paddock` at the top of the file; None: it has none."""
    own_names: frozenset[str] = frozenset()
    """Services with a `container_name`."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Texts of files beside this one."""
    image_volumes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """VOLUMEs of images, by the names that services have."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Values of the file's variables."""
    ports: list[Published] = field(default_factory=list)
    """Ports that were read so far."""
    builds: list[Build] = field(default_factory=list)
    """Image builds that were read so far."""


def read_service(
    service: str, element: Element, shared: Shared
) -> tuple[tuple[dict[str, Node], dict[str, Node]], Node]:
    """Return labels with annotations, and the spec of a service's sandbox; problems are in the element's report."""
    refused.check(element, _KNOWN, refused.SERVICE, refused.NOTED)
    reader = _Service(service, element, shared)
    return reader.labels(), reader.spec()


class _Service:
    def __init__(self, service: str, element: Element, shared: Shared) -> None:
        self._service, self._element, self._shared = service, element, shared
        self._place = element.key or element.node

    def spec(self) -> Node:
        element = self._element
        reader = MountReader(self._shared.volumes, self._shared.folder, self._shared.files, self._volume_prefix)
        self._with("volumes", reader.volumes)
        self._with("tmpfs", reader.tmpfs)
        self._with("ports", self._ports)
        ours = self._ours()
        level = ours.get("securityLevel") or self._default_level(ours)
        user, folder = element.child("user"), element.child("working_dir")
        image = self._image()
        self._terminal()
        operator_secrets, secret_files = self._secrets()
        files = [*reader.mounts.files, *secret_files, *read_configs_of(element.child("configs"), self._shared.configs)]
        self._cover_image_volumes(reader, image, [*files, *operator_secrets])
        mounts = reader.mounts
        template = {
            "image": image,
            **self._command(),
            "user": self._user(user),
            "workingDir": self._text(folder),
            "env": self._environment(),
            "tmpfs": as_list(mounts.tmpfs, self._at("tmpfs")),
            "shmSize": self._shared_memory(),
            "workspace": mounts.workspace,
            "secrets": list_node(operator_secrets, self._at("secrets")) if operator_secrets else None,
            "volumes": as_list(mounts.volumes, self._at("volumes")),
            "securityLevel": level,
            "security": self._security(str(level.value)),
            "runtime": self._text(element.child("runtime")),
            "readiness": read_healthcheck(element.child("healthcheck")),
        }
        spec = {
            "template": mapping_node(template, self._place),
            "workspace": mounts.source,
            "hostFolders": as_list(mounts.folders, self._at("volumes")),
            "files": as_list(files, self._place),
            "resources": self._resources(),
            "restartPolicy": self._restart(),
            "lifecycle": self._lifecycle(ours.get("lifecycle")),
            "network": self._network(ours.get("network"), str(level.value)),
            "startAfter": start_node(
                self._shared.dependencies[self._service], self._shared.sandboxes, self._at("depends_on")
            ),
            "priority": ours.get("priority"),
        }
        return mapping_node(spec, self._place)

    def _cover_image_volumes(self, reader: MountReader, image: Node | None, files: Sequence[Node]) -> None:
        """Mount a volume at each VOLUME of the image where the service mounts nothing."""
        place = self._element.child("image") or self._element.child("build")
        if image is not None and place is not None:
            reader.cover(place, self._shared.image_volumes.get(image.text, ()), files)

    def labels(self) -> tuple[dict[str, Node], dict[str, Node]]:
        """Return the labels, and those that can only be annotations: longer ones, with other characters."""
        element = self._element.child("labels")
        labels: dict[str, Node] = {}
        annotations: dict[str, Node] = {}
        for name, label, has_value in read_pairs(element) if element is not None else ():
            if name.startswith(_RESERVED):
                label.refuse(f"`{name}` is not yours to set; remove it", at_key=True)
            text = (label.text_or_flag() if has_value else "") or ""
            if not _LABEL.fullmatch(name):
                label.note(f"`{name}` can't be a label here, and is left out")
            elif _LABEL_VALUE.fullmatch(text):
                labels[name] = scalar(text, label.node)
            else:
                annotations[name] = scalar(text, label.node)
        return labels, annotations

    def _with(self, name: str, read: Callable[[Element], object]) -> None:
        if (element := self._element.child(name)) is not None:
            read(element)

    def _at(self, name: str) -> Node:
        element = self._element.child(name)
        return element.node if element is not None else self._place

    def _text(self, element: Element | None) -> Node | None:
        text = element.text() if element is not None else None
        return scalar(text, element.node) if element is not None and text is not None else None

    def _user(self, element: Element | None) -> Node | None:
        user = self._text(element)
        if element is not None and user is not None and user.text in ("root", "root:root"):
            return scalar("0:0", element.node)
        if (
            element is not None
            and user is not None
            and not all(numeric_id.isdigit() for numeric_id in user.text.split(":"))
        ):
            element.refuse(f'`{user.text}` must be numeric, as names are the image\'s; write "UID:GID" ("1000:1000")')
            return None
        return user

    def _command(self) -> dict[str, Node | None]:
        """Return the template's command and arguments.

        `command` is arguments of the image's entry point, or of the service's own `entrypoint`, which replaces both.
        """
        entry, command = self._element.child("entrypoint"), self._element.child("command")
        program, args = (_command_nodes(child) if child is not None else None for child in (entry, command))
        if entry is None and args is not None and command is not None and not args.items:
            command.refuse("an empty list drops the image's own arguments; write `entrypoint:` with its program, too")
        elif entry is not None and program is not None:
            command_nodes = [*(program.items or ()), *((args.items if args is not None else None) or ())]
            if not command_nodes:
                entry.refuse("names no program; write one, or remove it")
            return {"command": list_node(command_nodes, entry.node)}
        return {"args": args}

    def _shared_memory(self) -> Node | None:
        element = self._element.child("shm_size")
        amount = quantity(element) if element is not None else None
        return scalar(amount, element.node) if element is not None and amount is not None else None

    @property
    def _volume_prefix(self) -> str:
        return f"{self._shared.project}-{self._service}"

    def _image(self) -> Node | None:
        """Return the image's name: the file's, or that of the one that is built."""
        image, build = self._text(self._element.child("image")), self._element.child("build")
        if build is None:
            if image is None:
                self._element.refuse("needs `image:` or `build:`", at_key=True)
            return image
        name = image.text if image is not None else f"{self._shared.project}-{self._service}".lower()
        name = name if ":" in name.rpartition("/")[2] or "@" in name else f"{name}:latest"
        self._shared.builds.append(read_build(build, self._service, name))
        build.note(f"`paddock compose up` builds {name} if it is not there, `paddock compose build` in any case")
        return scalar(name, build.node)

    def _terminal(self) -> None:
        """Refuse a service that is a shell alone: it would end at once, as no sandbox has a terminal of its own."""
        element = next(filter(None, map(self._element.child, ("tty", "stdin_open"))), None)
        if element is None or not element.flag():
            return
        command, entry = self._element.child("command"), self._element.child("entrypoint")
        names = arguments(command) if command is not None else None
        is_shell = entry is None and (not names or (posixpath.basename(names[0]) in _SHELLS and len(names) == 1))
        if is_shell and self._element.child("build") is None:
            remedy = "write `command: sleep infinity`, and use `paddock compose exec`"
            element.refuse(f"a sandbox has no terminal of its own, and a shell would end at once; {remedy}")

    def _environment(self) -> Node | None:
        element = self._element.child("environment")
        variables = self._env_files()
        for name, variable, has_value in read_pairs(element) if element is not None else ():
            text = variable.text_or_flag() if has_value else self._shared.variables.get(name)
            if text is None:
                if not has_value:
                    variable.note(f"`{name}` has no value where this command runs, so it is left out")
                continue
            variables[name] = mapping_node(
                {"name": scalar(name, variable.key or variable.node), "value": scalar(text, variable.node)},
                variable.node,
            )
        return list_node([*variables.values()], self._at("environment")) if variables else None

    def _env_files(self) -> dict[str, Node]:
        """Return the variables of the service's files, each where the file is named."""
        variables: dict[str, Node] = {}
        for element, path, is_required in read_env_files(self._element.child("env_file")):
            if path not in self._shared.files:
                if is_required:
                    element.refuse(f"`{path}` is not there, or not read here; add it, or write `environment:`")
                continue
            values, wrong = read_variables(self._shared.files[path], self._shared.variables)
            if wrong:
                element.refuse(f"{path}:{wrong[0]}: must be NAME=VALUE")
            for name, value in values.items():
                variables[name] = mapping_node(
                    {"name": scalar(name, element.node), "value": scalar(value, element.node)}, element.node
                )
        return variables

    def _secrets(self) -> tuple[list[Node], list[Node]]:
        """Return the operator's secrets, and files with the texts of others."""
        element = self._element.child("secrets")
        secrets: list[Node] = []
        files: list[Node] = []
        for secret in element.items() if element is not None else ():
            long = secret.node.fields is not None
            if long:
                secret.check_keys("source", "target", "uid", "gid", "mode")
            source, target = (secret.child("source"), secret.child("target")) if long else (secret, None)
            name = source.text() if source is not None else None
            shared_secret = self._shared.secrets.get(name or "")
            if source is None or name is None or shared_secret is None:
                secret.refuse(
                    f"there is no secret `{name}` in this file; add `secrets: {{{name}: {{external: true}}}}`"
                )
                continue
            path = (target.text() if target is not None else None) or name
            path = path if path.startswith("/") else f"/run/secrets/{path}"
            if shared_secret.text is not None:
                files.append(as_file(path, shared_secret.text, secret.node))
            elif shared_secret.name is not None:
                fields = {"name": shared_secret.name, "mountPath": scalar(path, secret.node)}
                secrets.append(mapping_node(fields, secret.node))
        return secrets, files

    def _security(self, level: str) -> Node | None:
        """Return what narrows the level. Nothing here ever widens it."""
        fields: dict[str, Node | None] = {}
        read_only, options = self._element.child("read_only"), self._element.child("security_opt")
        mode = self._element.child("network_mode")
        if read_only is not None and read_only.flag():
            fields["readOnlyRootFilesystem"] = scalar(True, read_only.node)
        fields["capabilities"] = self._capabilities(level)
        for option in options.items() if options is not None else ():
            if option.text() in ("no-new-privileges:true", "no-new-privileges", "no-new-privileges=true"):
                fields["noNewPrivileges"] = scalar(True, option.node)
            else:
                option.refuse("profiles are the security level's (`x-paddock: {securityLevel: ...}`); remove it")
        if mode is not None and mode.node.value == "none":
            fields["network"] = mapping_node({"mode": scalar("none", mode.node)}, mode.node)
        return mapping_node(fields, self._place) if any(fields.values()) else None

    def _capabilities(self, level: str) -> Node | None:
        """Return the capabilities that remain of the level's; None: all of them."""
        drop, add = self._element.child("cap_drop"), self._element.child("cap_add")
        granted = _LEVEL_CAPABILITIES.get(level, ())
        needless = (*granted, "NET_BIND_SERVICE")  # every port may be bound at these levels
        for capability in add.items() if add is not None else ():
            if (name := _capability(capability)) and name not in needless:
                capability.refuse(f"a sandbox of level {level} has no {name}; {_LEVEL_REMEDY}")
        if drop is None or not drop.items():
            return None
        dropped = {_capability(capability) for capability in drop.items()}
        added = {_capability(capability) for capability in add.items()} if add is not None else set()
        if "ALL" in dropped:
            remaining = [name for name in granted if name in added]
        elif granted:
            remaining = [name for name in granted if name not in dropped]
        else:
            drop.refuse("write `cap_drop: [ALL]`: capabilities are the level's, all or none of them")
            return None
        return list_node([scalar(name, drop.node) for name in remaining], drop.node)

    def _resources(self) -> Node | None:
        """Return the limits of a service, from its own keys and those of `deploy`; None if it sets none."""
        element, deploy = self._element, self._deploy()
        limits: dict[str, Node | None] = {}
        for service_key, deploy_key, limit in (
            ("cpus", "cpus", "cpu"),
            ("mem_limit", "memory", "memory"),
            ("pids_limit", "pids", "pids"),
        ):
            mine, shared = element.child(service_key), deploy.child(deploy_key) if deploy is not None else None
            if mine is not None and shared is not None:
                shared.refuse(f"is set as `{service_key}`, too; keep one", at_key=True)
            limits[limit] = self._limit(limit, mine or shared)
        if limits["memory"] is None and "securityLevel" not in self._ours():
            limits["memory"] = scalar(DEFAULT_MEMORY, self._place)
        both = element.child("memswap_limit")
        if both is not None and (limits["memory"] is None or quantity(both) != limits["memory"].value):
            both.refuse("a sandbox has no swap; remove it, or write the same as `mem_limit`")
        shares = element.child("cpu_shares")
        weight = number(shares) if shares is not None else None
        limits["gpus"], devices = self._gpus()
        fields = {
            "limits": mapping_node(limits, self._place) if any(limits.values()) else None,
            "gpuDeviceIds": devices,
            "cpuShares": scalar(weight, shares.node) if shares is not None and weight is not None else None,
        }
        return mapping_node(fields, self._place) if any(fields.values()) else None

    def _gpus(self) -> tuple[Node | None, Node | None]:
        """Return the number of GPUs, or the particular ones."""
        gpus = self._element.child("gpus")
        element = self._element
        for name in ("deploy", "resources", "reservations", "devices"):
            below = element.child(name)
            if below is None:
                return read_gpus(gpus) if gpus is not None else (None, None)
            element = below
        if gpus is not None:
            gpus.refuse("is set in `deploy: {resources: {reservations: ...}}`, too; keep one", at_key=True)
        return read_gpus(element, needs_capability=True)

    def _limit(self, field: str, element: Element | None) -> Node | None:
        if element is None:
            return None
        if field == "memory":
            amount = quantity(element)
            if amount == "0":
                element.refuse("a sandbox always has a limit; write one, such as 512m")
                return None
            return scalar(amount, element.node) if amount is not None else None
        text = element.text()
        if text is None:
            return None
        if field == "cpu":
            return scalar(text, element.node)
        count = number(element)
        if count is not None and count < 1:
            element.refuse("a sandbox always has a limit; write one, such as 128")
            return None
        return scalar(count, element.node) if count is not None else None

    def _deploy(self) -> Element | None:
        """Return the limits below `deploy:`; problems for all else there."""
        element = self._element.child("deploy")
        if element is None:
            return None
        swarm = ("placement", "update_config", "rollback_config", "endpoint_mode", "labels")
        element.check_keys("resources", "replicas", "mode", "restart_policy", *swarm)
        for name in swarm:
            if (child := element.child(name)) is not None:
                child.note("changes nothing: placement and updates are Paddock's")
        replicas, mode, resources = element.child("replicas"), element.child("mode"), element.child("resources")
        if replicas is not None and number(replicas) != 1:
            replicas.refuse("a service is one sandbox; write a SandboxPool for more")
        if mode is not None and mode.text() != "replicated":
            mode.refuse("a service is one sandbox; remove it")
        if resources is None:
            return None
        resources.check_keys("limits", "reservations")
        limits, reservations = resources.child("limits"), resources.child("reservations")
        if reservations is not None:
            reservations.check_keys("devices", *_RESERVATIONS)
            if any(map(reservations.child, _RESERVATIONS)):
                reservations.note("changes nothing: a sandbox's limit is what it is sure to have")
        if limits is not None:
            limits.check_keys("cpus", "memory", "pids")
        return limits

    def _restart(self) -> Node:
        element, deploy = self._element.child("restart"), self._element.child("deploy")
        policy = deploy.child("restart_policy") if deploy is not None else None
        if policy is not None:
            policy.check_keys("condition", "delay", "max_attempts", "window")
            if attempts := policy.child("max_attempts"):
                attempts.note(_RETRIES)
            if element is not None:
                element.refuse("is set in `deploy: {restart_policy: ...}`, too; keep one", at_key=True)
            condition = policy.child("condition")
            return self._choose(condition, _CONDITIONS) if condition is not None else scalar("Always", policy.node)
        if element is None:
            return scalar("Never", self._place)
        if element.node.text.startswith("on-failure:"):
            element.note(_RETRIES)
        elif element.node.value is False:  # YAML 1.1 parsers read a plain `no` so
            return scalar("Never", element.node)
        else:
            return self._choose(element, _RESTART)
        return scalar("OnFailure", element.node)

    def _choose(self, element: Element, choices: Mapping[str, str]) -> Node:
        text = element.text()
        if text is not None and text not in choices:
            element.refuse(f"`{text}` is not supported; write {', '.join(choices)}")
        return scalar(choices.get(text or "", "Never"), element.node)

    def _ours(self) -> dict[str, Node]:
        """Return the fields of `x-paddock`, the service's before the file's."""
        nodes: dict[str, Node] = {}
        for element in (self._shared.defaults, self._element.child(OURS)):
            if element is not None:
                nodes |= {name: child.node for name, child in element.fields().items() if not child.unset}
        service_fields = self._element.child(OURS)
        if service_fields is not None:
            service_fields.check_keys(*_OURS)
        return nodes

    def _ports(self, element: Element) -> None:
        sandbox = self._shared.sandboxes[self._service]
        self._shared.ports.extend(read_ports(element, self._service, sandbox))

    def _default_level(self, ours: dict[str, Node]) -> Node:
        """Return the level of a service that names none. Ports below 1024 need a capability that development lacks."""
        ports = [port.remote for port in self._shared.ports if port.service == self._service]
        expose = self._element.child("expose")
        for port in expose.items() if expose is not None else ():
            first = (port.text() or "").partition("/")[0].partition("-")[0]
            ports += [int(first)] if first.isdigit() else []
        low = min(ports, default=_LOW_PORTS)
        if low >= _LOW_PORTS:
            return scalar(_LEVEL, self._place)
        element = self._element.child("ports") or expose or self._element
        element.note(f"port {low} can't be opened at level development: the service gets build, without its hosts")
        network = ours.get("network")
        if network is None or network.fields is not None:  # anything else is refused by the schema
            ours["network"] = _without_hosts(network, element.node)
        return scalar("build", element.node)

    def _network(self, ours: Node | None, level: str) -> Node | None:
        """Return the network: with the other services, at the levels that allow it or where the file asks for it."""
        element, joined = self._element.child("networks"), self._shared.joined
        if element is None and level not in _JOINED_LEVELS:
            return ours
        names = peer_names(self._service, joined, self._shared.sandboxes, self._shared.own_names)
        return network_node(names, ours, element.node if element is not None else self._place)

    def _lifecycle(self, ours: Node | None) -> Node | None:
        """Return the lifecycle. Services run until they are taken down, as others reach them unnoticed."""
        element = self._element.child("stop_grace_period")
        ours = ours or mapping_node({"keepRunning": scalar(True, self._place)}, self._place)
        if element is None:
            return ours
        grace = seconds(element)
        fields = dict((ours.fields if ours is not None else None) or {})
        if "shutdownGracePeriodSeconds" in fields:
            element.refuse("is set in `x-paddock: {lifecycle: ...}`, too; keep one", at_key=True)
        nodes = {name: node for name, (_, node) in fields.items()}
        return mapping_node({**nodes, "shutdownGracePeriodSeconds": scalar(grace or 0, element.node)}, element.node)


def read_env_files(element: Element | None) -> Iterator[tuple[Element, str, bool]]:
    """Yield (place, path, is_required) of the files of variables that a service names."""
    if element is None:
        return
    for entry in [element] if element.is_text else element.items():
        if entry.node.fields is not None:
            entry.check_keys("path", "required", "format")
            path, required = entry.child("path"), entry.child("required")
            if path is not None and (text := path.text()) is not None:
                yield path, text, required is None or bool(required.flag())
        elif (text := entry.text()) is not None:
            yield entry, text, True


def _without_hosts(network: Node | None, at: Node) -> Node:
    """Return the network with no hosts allowed, unless it names them itself."""
    nodes = {name: node for name, (_, node) in ((network.fields if network is not None else None) or {}).items()}
    hosts = nodes.get("allowedHosts")
    if hosts is None or (hosts.items is None and hosts.fields is None and hosts.value is None):
        nodes["allowedHosts"] = list_node([], at)
    return mapping_node(nodes, network if network is not None else at)


def _capability(element: Element) -> str:
    return (element.text() or "").upper().removeprefix("CAP_")


def _command_nodes(element: Element) -> Node | None:
    """Return the words of a command; None for a problem."""
    command_words = arguments(element)
    is_command = command_words is not None and (element.is_text or element.node.items is not None)
    return list_node([scalar(word, element.node) for word in command_words or ()], element.node) if is_command else None


def check_defaults(element: Element | None) -> None:
    """Add problems for unknown fields of the file's own `x-paddock`."""
    if element is not None:
        element.check_keys(*_OURS)
