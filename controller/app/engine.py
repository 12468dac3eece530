"""The engine subsystem: the Docker Engine of this host, and the policy of its operator."""

import importlib
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from controller.app.core import Core
from controller.app.errors import CannotStart, StoppedWaiting
from controller.engine.absent import NOWHERE, AbsentEngine
from controller.engine.docker.client import Client
from controller.engine.engine import DockerEngine
from controller.engine.images.image_answers import answer_of
from controller.engine.kernel.firewall import NftFirewall
from controller.engine.kernel.host_users import read_overlaps
from controller.engine.kernel.instance_claim import InstanceClaim
from controller.engine.kernel.package_hosts import (
    default_addresses,
    read_package_hosts,
    read_registries,
    registry_hosts,
)
from controller.engine.kernel.resolvers import read_private_addresses, read_private_resolvers
from controller.engine.mounts.credentials import CredentialFiles
from controller.engine.mounts.saved_files import SavedFolders
from controller.engine.mounts.secrets import SecretFolder
from controller.engine.mounts.volumes import Volumes
from controller.engine.usage.swap import SwapGauge
from controller.kinds.observed.swap import HibernationAbility, HostSwap
from controller.kinds.runtime.package_hosts import Registries
from controller.kinds.runtime.user_ids import IdRange
from controller.policy.host.hibernation import judge
from controller.policy.images import ImageRules
from controller.policy.levels.abilities import Confinements
from controller.policy.levels.levels import Policy
from controller.policy.levels.package_hosts import with_packages
from controller.ports import NullMeter, Secrets
from controller.service.mcp.installs import InstallRules
from controller.settings import Settings
from controller.store.sql_store import SqlStore

if TYPE_CHECKING:
    from controller.engine.mounts.authority import Authority

_SHOWN = 4
_ASK_SECONDS = 20.0
_CLAIM_SECONDS, _CLAIM_POLL_SECONDS = 5.0, 0.1


def make_engine(core: Core, instance_id: str) -> tuple[DockerEngine, Secrets]:
    """Connect nothing yet: the reconcile loop opens the engine. A daemon that keeps no host has none."""
    settings = core.settings
    secrets = SecretFolder(settings.secrets_dir)
    kind = DockerEngine if settings.is_host else AbsentEngine
    engine = kind(
        instance_id,
        base_url=settings.docker_host if settings.is_host else NOWHERE,
        clock=core.clock,
        meter=core.meter,
        call_timeout_seconds=settings.engine_timeout_seconds,
        host_roots=settings.host_roots,
        mounts_dir=settings.mounts_dir,
        secrets=secrets,
        saved=SavedFolders(settings.state_dir / "files", most_bytes=settings.suspend_files_bytes),
        volumes=Volumes(settings.state_dir / "volumes", settings.volumes_per_namespace_bytes),
        users_dir=settings.state_dir.absolute() / "users",
        used_dir=settings.state_dir.absolute() / "used",
        authorities_dir=settings.state_dir.absolute() / "host-ca" if settings.host_ca == "auto" else None,
        builds_dir=settings.state_dir.absolute() / "images" if settings.build_images == "auto" else None,
        credentials=CredentialFiles(partial(_authority, settings.state_dir / "authority"), secrets),
        firewall=_firewall(settings) if core.is_local else None,
        gpus=settings.gpu_devices,
        images=_image_rules(settings),
        hibernation=hibernation_judge(core),
        snapshots_dir=settings.state_dir.absolute() / "snapshots",
        default_runtime=settings.default_runtime,
    )
    core.undo.callback(engine.close)
    return engine, secrets


def _firewall(settings: Settings) -> NftFirewall:
    upstream = settings.upstream_proxy.removeprefix("http://")
    return NftFirewall(resolvers=read_private_resolvers, upstreams=partial(read_private_addresses, upstream))


def hibernation_judge(core: Core) -> Callable[[int], HibernationAbility]:
    """Return the function that judges this host's swap, given the bytes of it that hibernated sandboxes use."""
    settings, gauge = core.settings, SwapGauge()

    def judge_now(used_bytes: int) -> HibernationAbility:
        swap = gauge.read() if core.is_local else HostSwap(trouble="the engine is on another machine (docker_host)")
        plain = settings.hibernate_to_plain_disk
        return judge(swap, settings.hibernation_bytes, to_plain_disk=plain, used_bytes=used_bytes)

    return judge_now


def claim_engine(core: Core, store: SqlStore, stopping: threading.Event) -> None:
    """Claim this host's engine for the store: the daemon of a copied one must not act on it, too.

    Waits a moment for the processes of one that was killed. Only root can claim one, or act on its containers' insides.
    Raises CannotStart; StoppedWaiting.
    """
    if not core.is_local or os.geteuid():
        return
    claim = InstanceClaim(store.instance_id, core.settings.docker_host, store.location)
    core.undo.callback(claim.close)
    deadline = time.monotonic() + _CLAIM_SECONDS
    while holder := _take(claim):
        if stopping.wait(_CLAIM_POLL_SECONDS):
            raise StoppedWaiting
        if time.monotonic() > deadline:
            why = f"another Paddock daemon ({holder}) acts on it with this instance id ({store.instance_id})"
            action = "stop that daemon if this one is to replace it, or begin with an empty PADDOCK_STATE_DIR"
            raise CannotStart(
                f"engine {core.settings.docker_host}: {why} and another store: one is a copy of the other; {action}"
            )


def _take(claim: InstanceClaim) -> str:
    try:
        return claim.take()
    except OSError as error:
        raise CannotStart(f"{error.filename}: {error.strerror}; give root that folder, or free some memory") from error


def make_policy(settings: Settings) -> Policy:
    """Return the operator's policy, with the package hosts that this host's package managers use."""
    policy = Policy(
        report_only=settings.attestation == "report",
        network_range=str(settings.network_range),
        images=_image_rules(settings),
        grants=settings.profile_grants,
        host_roots=settings.host_roots,
        confinements=Confinements(settings.runtimes, settings.apparmor_profiles, settings.selinux_types),
        exec_max_seconds=settings.exec_max_seconds,
        local_network=settings.local_network,
        peers=settings.peers,
        guard_lost=settings.guard_lost,
        provider_hosts=settings.provider_hosts,
        gpu_devices=settings.gpu_devices,
        models_port=settings.models_port,
        user_ids=_user_ids(settings),
        scheduler=settings.scheduler,
        upstream_proxy=settings.upstream_proxy.removeprefix("http://"),
        holds_memory=settings.docker_host.startswith("unix:") and not os.geteuid(),
    )
    listed = (*settings.package_hosts, *registry_hosts(settings.install_rules().registries))
    defaults = partial(default_addresses, ask_image=partial(_ask_image, settings))
    return with_packages(policy, read_package_hosts(settings.package_sources, defaults=defaults), listed)


def _ask_image(settings: Settings, image: str, command: tuple[str, ...]) -> str:
    """Run a command in an image of this host's engine; "" without an answer."""
    if not settings.is_host:
        return ""
    client = Client(settings.docker_host, meter=NullMeter(), timeout_seconds=_ASK_SECONDS)
    try:
        return answer_of(client, image, command)
    finally:
        client.close()


def _image_rules(settings: Settings) -> ImageRules:
    return ImageRules(settings.allowed_images, settings.images_by_digest, settings.local_registries)


def _user_ids(settings: Settings) -> IdRange | None:
    """Return the ids for sandboxes. Raises CannotStart if a user of this host has one of them."""
    user_ids = settings.user_ids()
    if user_ids is not None and settings.is_host and (overlaps := read_overlaps(user_ids)):
        overlap_list = ", ".join(overlaps[:_SHOWN]) + (
            f" and {len(overlaps) - _SHOWN} more" if len(overlaps) > _SHOWN else ""
        )
        raise CannotStart(
            f"sandbox_ids: {user_ids} has ids of this host's users ({overlap_list}); choose another range"
        )
    return user_ids


def make_install_rules(settings: Settings, instance_id: str) -> InstallRules:
    """Return the rules of installs: from the registries of the settings, else from those of this host."""
    rules = settings.install_rules()
    registries = read_registries()
    sources = settings.package_sources
    npm, pypi = registries.npm if "npm" in sources else "", registries.pypi if "pip" in sources else ""
    registries = Registries(rules.registries.npm or npm, rules.registries.pypi or pypi)
    return replace(rules, registries=registries, instance_id=instance_id)


def _authority(folder: Path) -> "Authority":
    """Return the certificate authority. Most daemons need none, and not its cryptography library."""
    authority: Authority = importlib.import_module("controller.engine.mounts.authority").Authority(folder)
    return authority
