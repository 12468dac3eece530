"""Statuses of security profiles: acceptance, and the effective settings of a sandbox."""

from typing import Any

from controller.kinds.common.quantity import format_bytes
from controller.kinds.meta import Condition
from controller.kinds.planning.plan import StatusWrite
from controller.kinds.runtime.container import ContainerConfig
from controller.kinds.runtime.package_hosts import version_of
from controller.kinds.sandbox import SandboxSpec, Template
from controller.kinds.securityprofile import StoredProfile
from controller.plan.base.memo import ProfilesKey
from controller.plan.base.plan_builder import PlanBuilder
from controller.plan.base.status_json import dated, limits_to_json
from controller.policy.levels.levels import SHARED_USER, Level, Policy
from controller.policy.levels.package_hosts import BUILD
from controller.policy.levels.seccomp import name_of
from controller.policy.sandbox import render

_OWN = "own"  # an id of its own


def reconcile_profiles(builder: PlanBuilder) -> None:
    """Add the status of every profile whose stored status differs."""
    snapshot = builder.snapshot
    policy = builder.policy
    memo = builder.memo
    key = ProfilesKey(snapshot.rules.profiles, memo.policy)
    if not snapshot.rules.profiles or memo.profiles == key:
        return
    writes = []
    for profile in snapshot.rules.profiles.values():
        level = policy.levels.get(profile.obj.name)
        new_status = _status(profile, level, policy, snapshot.now) if level is not None else profile.obj.status
        if new_status != profile.obj.status:
            writes.append(StatusWrite(profile.obj.ref, new_status))
    builder.statuses += writes
    memo.profiles = None if writes else key


def effective(level: Level, policy: Policy) -> dict[str, Any]:
    """Return the effective settings of a level, read from the container that it is rendered to."""
    config = bare(level)
    return {
        **settings_of(level),
        "defaultUser": _default_user(level, policy),
        "network": _network(level, policy),
        "securityOptions": list(config.security_options),
        "sysctls": [f"{name}={value}" for name, value in config.sysctls],
        "shmSize": format_bytes(config.shm_bytes),
        "openFiles": config.nofile,
        "oomScoreAdjust": config.oom_score_adjust,
    }


def settings_of(level: Level) -> dict[str, Any]:
    """Return the settings of a level that a profile can set."""
    config = bare(level)
    return {
        "capabilities": list(config.capabilities),
        "noNewPrivileges": any(option.startswith("no-new-privileges") for option in config.security_options),
        "readOnlyRootFilesystem": config.read_only_root,
        "readOnlyHostFolders": level.host_folders == "read-only",
        "defaultUser": config.user,
        "lowestUserID": level.lowest_uid,
        "network": _reach(level),
        "seccompProfile": name_of(config.seccomp),
        "tmpfs": [
            {"mountPath": folder.path, "size": format_bytes(folder.size_bytes), "noexec": folder.noexec}
            for folder in config.tmpfs
        ],
        "defaultLimits": limits_to_json(config.limits),
        **({"execDeadlineSeconds": level.exec_seconds} if level.exec_seconds else {}),
        **({"maxExecDeadlineSeconds": level.most_exec_seconds} if level.most_exec_seconds else {}),
        "maxLimits": {name: value for name, value in limits_to_json(level.most).items() if value not in ("0", 0)},
    }


def bare(level: Level) -> ContainerConfig:
    """Return the container of a spec that asks for nothing else."""
    template = Template(image="any", security_level=level.name)
    policy = Policy(levels={level.name: level})
    return render(SandboxSpec(template=template), template, name="any", uid="any", policy=policy).config


def _default_user(level: Level, policy: Policy) -> str:
    return _OWN if level.default_user == SHARED_USER and policy.own_ids() is not None else level.default_user


def _reach(level: Level) -> dict[str, Any]:
    hosts = {} if level.allowed_hosts is None else {"allowedHosts": list(level.allowed_hosts)}
    return {"mode": level.network, **hosts, **({"peers": level.peers} if level.network == "sealed" else {})}


def _network(level: Level, policy: Policy) -> dict[str, Any]:
    """Return the network access of a level, with the operator's policy applied."""
    fields = _reach(level)
    if "peers" in fields:
        fields["peers"] = level.peers and policy.peers
    if level.allowed_hosts is not None:
        fields["version"] = version_of(level.allowed_hosts)
    if BUILD in (level.name, level.base) and policy.packages_left_out:
        fields["leftOut"] = list(policy.packages_left_out)
    return fields | ({"localNetwork": policy.local_network} if level.network == "public" else {})


def _status(profile: StoredProfile, level: Level, policy: Policy, now: float) -> dict[str, Any]:
    """Return the status of a profile: if it is offered here, and the settings in force."""
    generation = profile.obj.generation
    if level.offered:
        condition = Condition("Accepted", "True", "Accepted", f"derived from {level.base}")
    else:
        message = f"no sandbox may have it now: {level.missing}"
        condition = Condition("Accepted", "False", "Refused", message)
    prior = next(iter(profile.obj.status.get("conditions", ())), None)
    settings = {"effective": effective(level, policy)} if level.offered else {}
    return {"observedGeneration": generation, "conditions": [dated(condition, prior, generation, now)], **settings}
