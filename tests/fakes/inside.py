"""Inside of a fake sandbox, as a Docker Engine and its kernel would render a config."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from controller.kinds.observed.inside import SECCOMP_FILTER, InsideState, ObservedMount
from controller.kinds.runtime.agent import FOLDER, volume_name
from controller.kinds.runtime.container import ContainerConfig
from controller.kinds.runtime.mount import EMPTY_BYTES, BoundMount, Mount
from controller.policy.attest.attest import mask_of
from controller.policy.levels.confinement import label_wanted

_ALWAYS = (
    ObservedMount("/proc", "proc", writable=True, nosuid=True, nodev=True, noexec=True),
    ObservedMount("/dev", "tmpfs", writable=True, nosuid=True, size_bytes=64 << 20),
    ObservedMount("/dev/mqueue", "mqueue", writable=True, nosuid=True, nodev=True, noexec=True),
    ObservedMount("/sys", "sysfs", writable=False, nosuid=True, nodev=True, noexec=True),
    ObservedMount("/proc/sys", "proc", writable=False, nosuid=True, nodev=True, noexec=True),
    ObservedMount("/proc/keys", "tmpfs", writable=True, nosuid=True, size_bytes=64 << 20),
)
IMAGES_USER = "20000:20000"


def user_of(config: ContainerConfig) -> str:
    """Return the user of a container: all images of the fake engine are Paddock's, which fit any user."""
    own_text = f"{config.own_id}:{config.own_id}" if config.own_id else IMAGES_USER
    return config.user or own_text


def inside_of(
    config: ContainerConfig | None,
    networks: tuple[str, ...],
    tampered: Mapping[str, Any],
    mounts: tuple[Mount, ...] = (),
) -> InsideState:
    """Return the inside of a running sandbox; empty for a container not created by Paddock."""
    if config is None:
        return InsideState(unread="not one of ours")
    untouched = _inside_of(config, networks, mounts)
    return replace(untouched, **tampered) if tampered else untouched


@cache
def _inside_of(config: ContainerConfig, networks: tuple[str, ...], bound: tuple[Mount, ...]) -> InsideState:
    uid, _, gid = user_of(config).partition(":")
    ids = int(uid), int(gid or 0)
    bounding = mask_of(config.capabilities)
    reach = tuple(f"eth{number}" for number, network in enumerate(networks) if network != "none")
    return InsideState(
        uid=ids[0],
        gid=ids[1],
        groups=(ids[1],),
        capabilities=bounding if ids[0] == 0 else 0,
        bounding=bounding,
        no_new_privileges="no-new-privileges:true" in config.security_options,
        seccomp=SECCOMP_FILTER,
        mounts=(*_mounts(config), *_places(config, bound)),
        interfaces=reach,
        routes=reach,
        label="".join(label_wanted(config)),
    )


def bound_of(mounts: tuple[Mount, ...], keeps: bool = False) -> tuple[BoundMount, ...]:
    """Return the host's records of them. `keeps`: their files in memory outlive the container."""
    return tuple(
        BoundMount(
            mount.path,
            str(mount),
            f"0:1 {mount.source}",
            mount.read_only,
            size_bytes=mount.size_bytes if mount.kind == "volume" else 0,
            kind=mount.kind,
            keeps_files=keeps and mount.kind in ("memory", "tmpfs"),
        )
        for mount in mounts
    )


def _places(config: ContainerConfig, bound: tuple[Mount, ...]) -> Iterator[ObservedMount]:
    expected = {entry.path: entry for entry in bound}
    for slot in config.mount_points:
        mount = expected.get(slot.path)
        if mount is None:
            size = EMPTY_BYTES
            yield ObservedMount(
                slot.path, "tmpfs", writable=False, nosuid=True, nodev=True, noexec=True, size_bytes=size
            )
        else:
            origin, writable = f"0:1 {mount.source}", not mount.read_only
            kind, size = ("tmpfs", mount.size_bytes) if mount.kind == "tmpfs" else ("ext4", 0)
            yield ObservedMount(
                *(slot.path, kind, writable, True, True), noexec=mount.noexec, size_bytes=size, origin=origin
            )


def _mounts(config: ContainerConfig) -> list[ObservedMount]:
    root = ObservedMount("/", "overlay", writable=not config.read_only_root)
    shm = ObservedMount(
        "/dev/shm", "tmpfs", writable=True, nosuid=True, nodev=True, noexec=True, size_bytes=config.shm_bytes
    )
    folders = [
        ObservedMount(
            tmpfs.path,
            "tmpfs",
            writable=True,
            nosuid=True,
            nodev=True,
            noexec=tmpfs.noexec,
            size_bytes=tmpfs.size_bytes,
        )
        for tmpfs in (() if config.holds_memory else config.tmpfs)
    ]
    volume = f"8:1 /var/lib/docker/volumes/{volume_name(config.agent)}/_data"
    agent = [ObservedMount(FOLDER, "ext4", writable=False, origin=volume)] if config.agent else []
    return [root, *_ALWAYS, shm, *folders, *agent]
