"""Admission of a Sandbox, and the container config of its spec. Pure: (spec, policy) in, data out."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from controller.kinds.base import live_fields
from controller.kinds.common.exec_paths import in_kernel_paths
from controller.kinds.common.labels import container_name
from controller.kinds.common.quantity import FOR_HASH, format_bytes, format_cpu
from controller.kinds.envelope import DEFAULT_NAMESPACE
from controller.kinds.runtime.agent import Agent
from controller.kinds.runtime.container import ContainerConfig, Limits, Tmpfs, stable_hash
from controller.kinds.runtime.disk import DiskAbility
from controller.kinds.runtime.mount import Mount
from controller.kinds.runtime.probe import NO_PROBES, ProbeSet
from controller.kinds.runtime.snapshot import restore_key
from controller.kinds.sandbox import Resources, SandboxSpec, Template, at_own_level, restore_source
from controller.kinds.securityprofile import ALIASES
from controller.policy import exec_paths, images
from controller.policy.container import agent, credentials, disk, gpus, mounts
from controller.policy.host import binding
from controller.policy.levels import confinement
from controller.policy.levels.allowed_hosts import network_refused, reachable
from controller.policy.levels.exec_deadline import exec_deadline_refused
from controller.policy.levels.levels import SHARED_USER, Level, Policy
from controller.policy.levels.narrow import level_of, widened
from controller.policy.network import bridge, egress
from controller.policy.network.bridge import Open
from controller.policy.network.egress import Sealed
from controller.policy.refusal import Refusal

NO_LIMITS = Limits(0, 0, 0)
_NO_NEW_PRIVILEGES = ("no-new-privileges:true",)
_SHM_PATH, _SHM_BYTES = "/dev/shm", 16 << 20  # noqa: S108 - inside the sandbox
# Bounds of execve(2): one string with its NUL, and all strings with 8 bytes of pointer each (a quarter of the usual
# 8 MiB of stack, less a page for the engine's additions). Beyond that a container dies at each start without a message.
_ONE_STRING_BYTES = 128 << 10
_ALL_STRINGS_BYTES = (2 << 20) - 4096
# Mounting over these would hide or fake what the kernel and the engine put there.
# Fields that reach a running container: a volume's size and its reclaim policy.
_LIVE: Mapping[str, Any] = {
    **dict.fromkeys(live_fields(Template), True),
    **{field: {"__all__": {"size", "reclaim_policy"}} for field in ("volumes", "volume_claim_templates")},
}
# What `render` says of each sandbox anew.
_OWN = ("name", "hostname", "user", "own_id", "mounts")
_LONGEST_NAMESPACE = "n" * 52
_LEVEL_AT = "spec.template.securityLevel"


@dataclass(frozen=True)
class Rendered:
    """A rendered spec: the config of its container, and all that is decided with it."""

    config: ContainerConfig
    """Config of the container."""
    template_hash: str
    """Hash of the spec's own immutable part."""
    template_fields: Mapping[str, str]
    """Hash of each of its fields, to name what changed."""
    probes: ProbeSet = NO_PROBES
    """Probes of the sandbox."""
    report_only: bool = False
    """A failed attestation does not stop it."""
    sealed: Sealed | None = None
    """Its sealed network; None: it has no such one."""
    disk: DiskAbility | None = None
    """Ability of this host's engine to limit the writable layer; None: not tried yet."""
    open: Open | None = None
    """Its network that leads to the Internet; None: it has no such one."""
    audited: bool = False
    """Each start is first written to the audit log."""
    agent: Agent | None = None
    """Settings of its agent; None: it has none."""
    takes_user_id: bool = False
    """The sandbox is to run as an id of its own, if its image has no other user."""
    level: str = ""
    """Name of its security level."""

    @cached_property
    def config_hash(self) -> str:
        """Hash of the immutable part of the config."""
        return self.config.hash()


def admit(spec: SandboxSpec, policy: Policy) -> tuple[Refusal, ...]:
    """Return every reason why this spec can't run. A named template is checked with it when it is planned."""
    placed = (
        *binding.refusals(spec.host, policy),
        *binding.selector_refused(spec.node_selector or {}, policy),
        *binding.loss_refused(spec.on_host_loss, spec.host, policy),
    )
    if spec.template is None:
        level = _unknown_refusals(spec.security_level, policy) if spec.security_level else ()
        cores = too_many_cores("spec.", spec.resources.limits.cpu, policy)
        return (*placed, *level, *cores, *mounts.source_refused(spec, policy))
    return (*placed, *admit_with(spec, spec.template, policy))


def admit_with(spec: SandboxSpec, template: Template, policy: Policy) -> tuple[Refusal, ...]:
    """Return every reason why this spec can't run with this template under this policy."""
    template = at_own_level(spec, template)
    millicores = effective_limits(spec.resources, template, NO_LIMITS).cpu_millicores or None
    cores = too_many_cores("spec." if spec.resources.limits.cpu else "spec.template.", millicores, policy)
    level = level_of(template, policy)
    network = (*network_refused(spec.network, level, policy), *credentials.refusals(spec, level))
    bound = mounts.refusals(spec, template, level, policy) if level else ()
    judged = judge(template, spec.resources, "spec.template.", policy, spec)
    if spec.security_level is not None:
        judged = tuple(
            replace(refusal, field="spec.securityLevel") if refusal.field == _LEVEL_AT else refusal
            for refusal in judged
        )
    devices = (replace(refusal, field=f"spec.{refusal.field}") for refusal in gpus.refusals(spec.resources, policy))
    return (*judged, *cores, *network, *bound, *devices)


def judge(
    template: Template, resources: Resources, at: str, policy: Policy, spec: SandboxSpec | None = None
) -> tuple[Refusal, ...]:
    """Yield every reason to refuse a template at the path `at`, used with these resources, and by that spec."""
    base_level, level = policy.levels.get(template.security_level), level_of(template, policy)
    if base_level is None or level is None:
        return tuple(_unknown_refusals(template.security_level, policy, at))
    refusals = [
        *_level(level, policy),
        *widened(template, base_level),
        *(Refusal("image", message) for message in images.image_refusals(template.image, policy.images)),
        *confinement.refusals(template, policy),
        *_user(template, level, policy),
        *_env(template),
        *_exec(template),
        *agent.refusals(template, effective_limits(resources, template, level.limits), policy),
        *exec_paths.refusals(template),
        *_tmpfs(template, resources, level, mounts.in_memory(spec, template)),
        *mounts.template_refused(template),
        *_most(template, resources, level),
        *_disk(template, resources, level, policy),
        *exec_deadline_refused(template, level, policy),
        *gpus.refusals(template.resources, policy),
    ]
    return tuple(Refusal(f"{at}{refusal.field}", refusal.message) for refusal in refusals)


def _unknown_refusals(name: str, policy: Policy, at: str = "spec.") -> Iterator[Refusal]:
    if name not in policy.levels:
        names = ", ".join(sorted(policy.levels))
        message = f"there is no security level `{name}`; choose one of {names}, or by reach of {', '.join(ALIASES)}"
        yield Refusal(f"{at}securityLevel", message)


def _level(level: Level, policy: Policy) -> Iterator[Refusal]:
    if not level.offered:
        message = f"`{level.name}` can't be enforced here: {level.missing}; use full-isolation"
        yield Refusal("securityLevel", message)
    elif level.network != "none" and policy.unguarded:
        yield Refusal("securityLevel", f"`{level.name}` can't be enforced here now: {policy.unguarded}")


def too_many_cores(at: str, millicores: int | None, policy: Policy) -> Iterator[Refusal]:
    """Yield a refusal for more CPU than the host has, once that is known."""
    if policy.host_cpus and millicores and millicores > policy.host_cpus * 1000:
        message = f"{format_cpu(millicores)} can never fit: this host has {policy.host_cpus} cores"
        yield Refusal(f"{at}resources.limits.cpu", message)


def _user(template: Template, level: Level, policy: Policy) -> Iterator[Refusal]:
    if template.user is None:
        return
    owned, (uid, _, gid) = policy.own_ids(), template.user.partition(":")
    for what, value in (("user", uid), ("group", gid)):
        if value == "" and what == "group":
            if level.lowest_uid:
                yield Refusal("user", f"write uid:gid; a bare uid gets group 0 ({level.name} allows no root)")
        elif not level.lowest_uid <= int(value) < 2**31:
            yield Refusal(
                "user",
                f"{what} {value} is refused at level {level.name}: use an id from {level.lowest_uid} up, "
                "one that no user of the host has",
            )
        elif owned is not None and int(value) in owned:
            message = f"{what} {value} is one of {owned}, of which each sandbox gets one of its own"
            yield Refusal("user", f"{message}; use another id, or leave `user` out")


def _env(template: Template) -> Iterator[Refusal]:
    names: set[str] = set()
    for index, variable in enumerate(template.env):
        if variable.name in names:
            yield Refusal(f"env[{index}].name", f"`{variable.name}` is set twice; keep one")
        names.add(variable.name)


def _exec(template: Template) -> Iterator[Refusal]:
    """Yield a refusal for arguments with which the kernel would not start a process."""
    strings = {
        f"env[{index}].value": f"{variable.name}={variable.value}" for index, variable in enumerate(template.env)
    }
    strings |= {f"command[{index}]": argument for index, argument in enumerate(template.command or ())}
    strings |= {f"args[{index}]": argument for index, argument in enumerate(template.args or ())}
    if template.agent is not None:
        strings["agent"] = agent.settings(template.agent, _LONGEST_NAMESPACE, template.security_level)
    sizes = {field: len(string.encode(errors="surrogatepass")) + 1 for field, string in strings.items()}
    for field, size in sizes.items():
        if size > _ONE_STRING_BYTES:
            yield Refusal(
                field, f"the kernel accepts less than {_ONE_STRING_BYTES} bytes here, name included; use a file"
            )
    if sum(sizes.values()) + 8 * len(sizes) > _ALL_STRINGS_BYTES:
        yield Refusal("env", "with the command it is more than the 2Mi that the kernel accepts; use a file")


def _tmpfs(template: Template, resources: Resources, level: Level, beside: int) -> Iterator[Refusal]:
    """Yield the refusals of tmpfs mounts. `beside` is the size of other files in memory."""
    paths: set[str] = set()
    closed = {folder.path for folder in level.tmpfs if folder.noexec}
    for index, mount in enumerate(template.tmpfs):
        field, path = f"tmpfs[{index}].mountPath", mount.mount_path
        if not mounts.is_plain(path) or path == "/":
            yield Refusal(
                field, f"`{path}` must be a normalized absolute path; use no `.`, `..`, doubled or trailing `/`"
            )
        elif path == _SHM_PATH:
            yield Refusal(
                field, f"`{path}` is the shared memory; set its size with `shmSize: {format_bytes(mount.size)}`"
            )
        elif in_kernel_paths(path):
            yield Refusal(field, f"`{path}` belongs to the kernel and the engine; mount somewhere else")
        if path in paths:
            yield Refusal(field, f"`{path}` is mounted twice; keep one")
        paths.add(path)
        if mount.noexec is False and path in closed:
            message = f"nothing in {path} can be executed at {level.name}; remove it, or use another folder"
            yield Refusal(f"tmpfs[{index}].noexec", message)
    shm = _shm_bytes(template)
    # Pages of a folder in memory count in the cgroup: a full one would kill the sandbox's programs.
    requested_bytes = sum(mount.size for mount in template.tmpfs) + shm + beside
    memory = effective_limits(resources, template, level.limits).memory_bytes
    if (template.tmpfs or template.shm_size or beside) and requested_bytes > memory:
        yield Refusal(
            "tmpfs" if template.tmpfs else "shmSize" if template.shm_size else "workspace",
            f"{format_bytes(requested_bytes)} (with {format_bytes(shm)} of shared memory) do not fit the memory limit "
            f"of {format_bytes(memory)}: tmpfs contents count as memory; shrink one or raise the other",
        )


def _shm_bytes(template: Template) -> int:
    return template.shm_size or _SHM_BYTES


def _disk(template: Template, resources: Resources, level: Level, policy: Policy) -> Iterator[Refusal]:
    if disk.required(resources, template):
        yield from disk.refusals(effective_limits(resources, template, level.limits), level, policy)


def _most(template: Template, resources: Resources, level: Level) -> Iterator[Refusal]:
    """Yield a refusal for each limit above the level's maximum."""
    limits = effective_limits(resources, template, level.limits)
    formats = (("cpu", "cpu_millicores", format_cpu), ("memory", "memory_bytes", format_bytes), ("pids", "pids", str))
    for name, field, text in formats:
        amount, most = getattr(limits, field), getattr(level.most, field)
        if most and amount > most:
            message = f"{text(amount)} is more than a sandbox of level {level.name} may have ({text(most)}); lower it"
            yield Refusal(f"resources.limits.{name}", message)


def effective_limits(resources: Resources, template: Template, otherwise: Limits) -> Limits:
    """Return the sandbox's own limits, then its template's, then those of the level (`otherwise`)."""
    requested, shared = resources.limits, template.resources.limits
    return Limits(
        cpu_millicores=_first(requested.cpu, shared.cpu, otherwise.cpu_millicores),
        memory_bytes=_first(requested.memory, shared.memory, otherwise.memory_bytes),
        pids=_first(requested.pids, shared.pids, otherwise.pids),
        cpu_shares=_first(resources.cpu_shares, template.resources.cpu_shares, otherwise.cpu_shares),
        disk_bytes=_first(requested.disk, shared.disk, otherwise.disk_bytes),
        gpus=len(gpus.requested_devices(resources, template)) or _first(requested.gpus, shared.gpus, otherwise.gpus),
    )


def _first(requested: int | None, shared: int | None, otherwise: int) -> int:
    if requested is not None:
        return requested
    return otherwise if shared is None else shared


def reserved(spec: SandboxSpec, template: Template, otherwise: Limits) -> Limits:
    """Return a sandbox's reservation: its limits, and for disk also its volumes, which are allocated whole."""
    limits = effective_limits(spec.resources, template, otherwise)
    return replace(limits, disk_bytes=limits.disk_bytes + volume_bytes(mounts.mounts(spec, template)))


def volume_bytes(bound: Iterable[Mount]) -> int:
    """Return the size of all volumes among these, without duplicates."""
    return sum({mount.source: mount.size_bytes for mount in bound if mount.kind == "volume"}.values())


def disk_limit(spec: SandboxSpec | None, template: Template | None) -> int:
    """Return the bytes that a sandbox may write in its container (0: unlimited); volumes do not count."""
    return effective_limits(spec.resources, template, NO_LIMITS).disk_bytes if spec and template else 0


@dataclass(frozen=True, slots=True)
class Shape:
    """The part of rendered configurations that all sandboxes of one spec and template have in common.

    `fields` are those of the config without names, user, mounts, network and agent. `template` is at the spec's own
    level.
    """

    template: Template
    level: Level
    fields: Mapping[str, Any]
    template_hash: str
    template_fields: Mapping[str, str]
    probes: ProbeSet


def shape_of(spec: SandboxSpec, template: Template, policy: Policy) -> Shape:
    """Return the shape of an admitted spec. KeyError for a level that `admit` would have refused."""
    template, template_level = at_own_level(spec, template), template.security_level
    level = _known_level(template, policy)
    limits, places = effective_limits(spec.resources, template, level.limits), mounts.slots(spec, template)
    joins = level.peers and policy.peers and spec.network.peers == "Allowed"
    config = ContainerConfig(
        image=template.image,
        name="",
        limits=limits,
        hostname="",
        command=(*template.command, *(template.args or ())) if template.command else None,
        args=(template.args or ()) if template.command is None else (),
        user=template.user or level.default_user,
        working_dir=template.working_dir or "",
        env=_environment(template, level),
        tmpfs=_mounts(template, level, {place.path for place in places}),
        slots=places,
        shm_bytes=_shm_bytes(template),
        read_only_root=level.read_only_root,
        capabilities=level.capabilities,
        gpus=limits.gpus,
        gpus_named=gpus.requested_devices(spec.resources, template),
        security_options=_NO_NEW_PRIVILEGES if level.no_new_privileges else (),
        seccomp=level.seccomp,
        sysctls=level.sysctls,
        joins_peers=joins,
        peer_names=tuple(sorted((spec.network.peer_names or {}).items())) if joins else (),
        models=bool(spec.models),
        restore_from=restore_key(restore_source(spec, template)),
        owned_ids=policy.own_ids(),
        holds_memory=policy.holds_memory,
    )
    config = disk.sized(confinement.confined(config, template, policy), policy)
    fields = template.model_dump(mode="json", exclude_defaults=True, exclude=_LIVE, context=FOR_HASH)
    extra = _beside_the_template(spec, template, template_level, config)
    if _has_peers_alone(spec, level):  # its first host, and the settings of the proxy with it, need a new container
        extra["unproxied"] = True
    return Shape(
        template=template,
        level=level,
        fields={name: content for name, content in config.fields().items() if name not in _OWN},
        template_hash=_template_hash(spec, fields, extra),
        template_fields={key: stable_hash(value)[:8] for key, value in {**fields, **extra}.items()},
        probes=ProbeSet(template.startup, template.readiness, template.liveness),
    )


def render(
    spec: SandboxSpec,
    template: Template,
    *,
    name: str,
    uid: str,
    policy: Policy,
    hostname: str = "",
    namespace: str = DEFAULT_NAMESPACE,
    shape: Shape | None = None,
    user_id: int = 0,
) -> Rendered:
    """Return the container config of an admitted spec. KeyError for a level that `admit` would have refused.

    `hostname` is the name inside, if it is not the object's: a claimed sandbox keeps its first one. `shape` is that of
    this spec and template under this policy, if it is known. `user_id` is the id of its own (0: none).
    """
    shape = shape or shape_of(spec, template, policy)
    config = ContainerConfig(
        **shape.fields,
        name=container_name(name, uid),
        hostname=hostname or name,
        **_user_of(shape.template, shape.level, user_id),
        mounts=mounts.mounts(spec, shape.template, name),
    )
    config = agent.with_agent(config, shape.template, namespace, policy)
    config, way, open_ = _with_network(config, spec, shape.level, uid, policy.upstream_proxy)
    return Rendered(
        config=config,
        template_hash=shape.template_hash,
        template_fields=shape.template_fields,
        probes=shape.probes,
        report_only=policy.report_only,
        sealed=way,
        disk=disk.ability(policy),
        open=open_,
        audited=shape.level.audits_starts,
        agent=shape.template.agent,
        takes_user_id=policy.user_ids is not None and names_no_user(shape.template, shape.level),
        level=shape.level.name,
    )


def names_no_user(template: Template, level: Level) -> bool:
    """Return True if neither the spec nor an operator's profile says who a sandbox runs as."""
    return template.user is None and level.default_user in ("", SHARED_USER)


def _user_of(template: Template, level: Level, user_id: int) -> dict[str, Any]:
    """Return the fields `user` and `own_id` of its config. Where the image's user counts, the engine reads that."""
    if not user_id or not names_no_user(template, level):
        return {"user": template.user or level.default_user}
    return {"user": f"{user_id}:{user_id}"} if level.default_user else {"user": "", "own_id": user_id}


def _known_level(template: Template, policy: Policy) -> Level:
    level = level_of(template, policy)
    if level is None:
        raise KeyError(template.security_level)
    return level


def _template_hash(spec: SandboxSpec, fields: Mapping[str, object], extra: Mapping[str, object]) -> str:
    """Return the hash of the fields whose change needs a new container.

    A template of its own is part of the spec; one that is only named may change without a new generation.
    """
    template_fields = fields if spec.template_ref is None else {"templateRef": spec.template_ref.name}
    return stable_hash({**template_fields, **extra})


def _with_network(
    config: ContainerConfig, spec: SandboxSpec, level: Level, uid: str, upstream_proxy: str
) -> tuple[ContainerConfig, Sealed | None, Open | None]:
    """Return the config on its level's network, and that network (both None: it has none)."""
    if level.network == "sealed":
        way = egress.sealed(uid, reachable(spec.network, level), credentials.of(spec), upstream_proxy)
        behind = egress.behind(config, way, proxied=not _has_peers_alone(spec, level))
        return credentials.trusting(behind, spec), way, None
    if level.network == "public":
        open_ = bridge.opened(uid, spec.network)
        return bridge.behind(config, open_), None, open_
    return config, None, None


def _has_peers_alone(spec: SandboxSpec, level: Level) -> bool:
    """Return True if it reaches named peers and no host: many programs call `http://db` by a proxy if they know one."""
    return bool(spec.network.peer_names) and level.network == "sealed" and not reachable(spec.network, level)


def _beside_the_template(
    spec: SandboxSpec, template: Template, own_level: str, config: ContainerConfig
) -> dict[str, object]:
    """Return the fields beside the template whose change needs a new container. `own_level` is the template's."""
    # Devices of an existing container can't be changed; the other limits can.
    extras: dict[str, object] = {"gpus": config.gpus_named or config.gpus} if config.gpus else {}
    if disk.required(spec.resources, template) and config.storage_bytes:
        extras["disk"] = config.storage_bytes
    # A place that the template has none of; and another source in it makes a new container, too.
    if spec.workspace and not template.workspace:
        extras["workspace"] = mounts.slots(spec, template)
    if beside := mounts.beside_template(spec):
        extras["mounts"] = tuple(map(str, beside))
    if spec.restore_from is not None:
        extras["restore_from"] = restore_key(spec.restore_from)
    if spec.credentials:  # a new container trusts the authority; after that only the proxy is replaced
        extras["credentials"] = True
    if template.security_level != own_level:
        extras["security_level"] = template.security_level
    return extras


def _environment(template: Template, level: Level) -> tuple[tuple[str, str], ...]:
    """Return the environment. HOME is a writable folder, so that tools which need a home work."""
    variables = {variable.name: variable.value for variable in template.env}
    return tuple(sorted({**({"HOME": level.home} if level.home else {}), **variables}.items()))


def _mounts(template: Template, level: Level, places: Collection[str]) -> tuple[Tmpfs, ...]:
    """Return the level's folders, each replaced by the spec's at the same path, and the spec's others."""
    mounts = {folder.path: folder for folder in level.tmpfs if folder.path not in places}
    for mount in template.tmpfs:
        standard = mounts.get(mount.mount_path)
        noexec = bool(mount.noexec) or (standard is not None and standard.noexec)
        mounts[mount.mount_path] = Tmpfs(mount.mount_path, mount.size, noexec=noexec)
    return tuple(mounts[path] for path in sorted(mounts))
