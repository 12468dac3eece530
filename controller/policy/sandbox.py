"""What a Sandbox may ask for, and the container its spec stands for. Pure: (spec, policy) in, data out."""

import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from controller.kinds.container import ContainerConfig, Limits, Tmpfs, stable_hash
from controller.kinds.labels import container_name
from controller.kinds.quantity import format_bytes, format_cpu
from controller.kinds.sandbox import SandboxSpec, Template
from controller.policy.admission import Refusal
from controller.policy.levels import Level, Policy

_SHM_BYTES = 16 << 20
# Mounting over these would hide or fake what the kernel and the engine put there.
_KERNEL_PATHS = ("/proc", "/sys", "/dev")


@dataclass(frozen=True, slots=True)
class Rendered:
    """A spec worked out: the config, its hash, the hash of the spec's own immutable part, and one hash per field."""

    config: ContainerConfig
    config_hash: str
    template_hash: str
    template_fields: Mapping[str, str]


def admit(spec: SandboxSpec, policy: Policy) -> tuple[Refusal, ...]:
    """Every reason why this spec can't run under this policy."""
    level = policy.levels.get(spec.template.security_level)
    if level is None:
        known = ", ".join(sorted(policy.levels))
        unknown = f"there is no security level `{spec.template.security_level}`; choose one of {known}"
        return (Refusal("spec.template.securityLevel", unknown),)
    return tuple(_refusals(spec, level, policy))


def _refusals(spec: SandboxSpec, level: Level, policy: Policy) -> Iterator[Refusal]:
    if not level.offered:
        yield Refusal(
            "spec.template.securityLevel",
            f"`{level.name}` can't be enforced here: {level.missing}; use full-isolation",
        )
    yield from _user(spec.template, level)
    yield from _env(spec.template)
    yield from _tmpfs(spec, level)
    limits = effective_limits(spec, level)
    if policy.host_cpus and limits.cpu_millicores > policy.host_cpus * 1000:
        yield Refusal(
            "spec.resources.limits.cpu",
            f"{format_cpu(limits.cpu_millicores)} can never fit: this host has {policy.host_cpus} cores",
        )


def _user(template: Template, level: Level) -> Iterator[Refusal]:
    if template.user is None:
        return
    uid, _, gid = template.user.partition(":")
    for what, value in (("user", uid), ("group", gid)):
        if value == "" and what == "group":
            yield Refusal("spec.template.user", f"write uid:gid; a bare uid gets group 0 ({level.name} allows no root)")
        elif not level.lowest_uid <= int(value) < 2**31:
            yield Refusal(
                "spec.template.user",
                f"{what} {value} is refused at level {level.name}: use an id from {level.lowest_uid} up, "
                "one that no user of the host has",
            )


def _env(template: Template) -> Iterator[Refusal]:
    seen: set[str] = set()
    for index, each in enumerate(template.env):
        if each.name in seen:
            yield Refusal(f"spec.template.env[{index}].name", f"`{each.name}` is set twice; keep one")
        seen.add(each.name)


def _tmpfs(spec: SandboxSpec, level: Level) -> Iterator[Refusal]:
    seen: set[str] = set()
    for index, mount in enumerate(spec.template.tmpfs):
        field, path = f"spec.template.tmpfs[{index}].mountPath", mount.mount_path
        if posixpath.normpath(path) != path or path == "/":
            yield Refusal(field, f"`{path}` must be a plain absolute path: no `.`, `..`, doubled or trailing `/`")
        elif any(path == each or path.startswith(each + "/") for each in _KERNEL_PATHS):
            yield Refusal(field, f"`{path}` belongs to the kernel and the engine; mount somewhere else")
        if path in seen:
            yield Refusal(field, f"`{path}` is mounted twice; keep one")
        seen.add(path)
    asked = sum(mount.size for mount in spec.template.tmpfs) + _SHM_BYTES
    memory = effective_limits(spec, level).memory_bytes
    if spec.template.tmpfs and asked > memory:
        yield Refusal(
            "spec.template.tmpfs",
            f"{format_bytes(asked)} (with {format_bytes(_SHM_BYTES)} of shared memory) do not fit the memory limit of "
            f"{format_bytes(memory)}: what is written to a tmpfs counts as memory; shrink one or raise the other",
        )


def effective_limits(spec: SandboxSpec, level: Level) -> Limits:
    """The limits asked for, with the level's where nothing was asked."""
    asked = spec.resources.limits
    return Limits(
        cpu_millicores=level.limits.cpu_millicores if asked.cpu is None else asked.cpu,
        memory_bytes=level.limits.memory_bytes if asked.memory is None else asked.memory,
        pids=level.limits.pids if asked.pids is None else asked.pids,
        cpu_shares=spec.resources.cpu_shares or 0,
    )


def render(spec: SandboxSpec, *, name: str, uid: str, policy: Policy) -> Rendered:
    """The container that an admitted spec stands for. KeyError for a level that `admit` would have refused."""
    template = spec.template
    level = policy.levels[template.security_level]
    config = ContainerConfig(
        image=template.image,
        name=container_name(name, uid),
        limits=effective_limits(spec, level),
        hostname=name,
        command=template.command,
        user=template.user or level.default_user,
        working_dir=template.working_dir or "",
        env=_environment(template),
        tmpfs=_mounts(template, level),
        shm_bytes=_SHM_BYTES,
        network_mode=level.network_mode,
        read_only_root=level.read_only_root,
        capabilities=level.capabilities,
    )
    own = template.model_dump(mode="json", exclude_defaults=True)
    return Rendered(
        config=config,
        config_hash=config.hash(),
        template_hash=stable_hash(own),
        template_fields={key: stable_hash(value)[:8] for key, value in own.items()},
    )


def _environment(template: Template) -> tuple[tuple[str, str], ...]:
    """The asked environment. HOME is where the box may write, so that tools which insist on a home work."""
    asked = {each.name: each.value for each in template.env}
    return tuple(sorted({"HOME": "/workspace", **asked}.items()))


def _mounts(template: Template, level: Level) -> tuple[Tmpfs, ...]:
    """The level's folders, each replaced by the spec's own of the same path, and the spec's others."""
    mounts = {each.path: each for each in level.tmpfs}
    for asked in template.tmpfs:
        standard = mounts.get(asked.mount_path)
        noexec = standard.noexec if standard else False
        mounts[asked.mount_path] = Tmpfs(asked.mount_path, asked.size, noexec=noexec)
    return tuple(mounts[path] for path in sorted(mounts))
