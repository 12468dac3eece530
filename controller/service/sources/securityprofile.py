"""The built-in security profiles: each offered level, as the container of a spec that asks for nothing else."""

from collections.abc import Sequence
from typing import Any

from controller.kinds.container import ContainerConfig
from controller.kinds.meta import StoredObject
from controller.kinds.packages import version_of
from controller.kinds.quantity import format_bytes
from controller.kinds.sandbox import SandboxSpec, Template
from controller.plan.status import limits_to_json
from controller.policy.levels import Level, Policy
from controller.policy.packages import BUILD
from controller.policy.sandbox import render
from controller.policy.seccomp import name_of
from controller.service.errors import NotFound
from controller.service.field_selector import FieldSelector
from controller.service.sources import derived_uid

_NO_NEW_PRIVILEGES = "no-new-privileges"


class ProfileSource:
    """The levels of a policy that this version offers; the others can't be enforced, so they are not there."""

    def __init__(self, policy: Policy | None = None) -> None:
        self._policy = policy or Policy()

    def get(self, namespace: str, name: str) -> StoredObject | None:  # noqa: ARG002 - they belong to the host
        """The profile. NotFound says what is missing for a level that is known but not offered."""
        level = self._policy.levels.get(name)
        if level is not None and not level.offered:
            raise NotFound(f"securityprofiles `{name}` is not offered: {level.missing}")
        return None if level is None else profile(level, self._policy)

    def list(self, namespace: str | None, asked: FieldSelector) -> Sequence[StoredObject]:  # noqa: ARG002 - few enough
        levels = sorted(self._policy.levels.values(), key=lambda each: each.name)
        return [profile(each, self._policy) for each in levels if each.offered]


def profile(level: Level, policy: Policy) -> StoredObject:
    """What a sandbox of that level is made with, read off the container that the level is rendered to."""
    template = Template(image="any", security_level=level.name)
    config = render(SandboxSpec(template=template), template, name="any", uid="any", policy=policy).config
    return StoredObject(
        kind="SecurityProfile",
        namespace="",
        name=level.name,
        uid=derived_uid("SecurityProfile", level.name),
        generation=0,
        spec={**_spec(level, config), "network": _network(level, policy)},
    )


def _network(level: Level, policy: Policy) -> dict[str, Any]:
    made: dict[str, Any] = {"mode": level.network}
    if level.allowed_hosts is not None:
        made |= {"allowedHosts": list(level.allowed_hosts), "version": version_of(level.allowed_hosts)}
    if level.name == BUILD and policy.packages_left_out:
        made["leftOut"] = list(policy.packages_left_out)
    return made | ({"localNetwork": policy.local_network} if level.network == "public" else {})


def _spec(level: Level, config: ContainerConfig) -> dict[str, Any]:
    options = dict(each.partition(":")[::2] for each in (o.replace("=", ":", 1) for o in config.security_options))
    return {
        "capabilities": list(config.capabilities),
        "noNewPrivileges": options.get(_NO_NEW_PRIVILEGES) in ("", "true"),
        "readOnlyRootFilesystem": config.read_only_root,
        "defaultUser": config.user,
        "lowestUserID": level.lowest_uid,
        "seccomp": name_of(config.seccomp) or options.get("seccomp", "default"),
        "securityOptions": list(config.security_options),
        "sysctls": [f"{name}={value}" for name, value in config.sysctls],
        "tmpfs": [
            {"mountPath": each.path, "size": format_bytes(each.size_bytes), "noexec": each.noexec}
            for each in config.tmpfs
        ],
        "shmSize": format_bytes(config.shm_bytes),
        "openFiles": config.nofile,
        "oomScoreAdjust": config.oom_score_adjust,
        "defaultLimits": limits_to_json(config.limits),
        "maxLimits": {name: value for name, value in limits_to_json(level.most).items() if value not in ("0", 0)},
    }
