"""How a sandbox is held to `resources.limits.disk` on this host. Pure.

Where the engine enforces a size (found by trying), the container gets one. What has no writable
root file system writes to memory alone, and is held by that. Otherwise the limit is soft: what was written is measured
now and then, told at 80 %, and at 100 % the box is stopped (plan/sandbox/disk.py).
"""

from collections.abc import Iterator
from dataclasses import replace

from controller.kinds.runtime.container import ContainerConfig, Limits
from controller.kinds.runtime.disk import DiskAbility
from controller.kinds.sandbox import Resources, Template
from controller.policy.admission import Refusal
from controller.policy.levels.levels import Level, Policy

_HOW = "put the engine's data on xfs mounted with `pquota`, or use a level whose root file system is read-only"


def required(resources: Resources, template: Template) -> bool:
    """Whether the limit has to be enforced: the sandbox's own word, else its template's."""
    asked = resources.disk or template.resources.disk
    return asked is not None and asked.enforcement == "Required"


def refused(limits: Limits, level: Level, policy: Policy) -> Iterator[Refusal]:
    """Why a limit that has to be enforced can't be."""
    if not limits.disk_bytes:
        yield Refusal("resources.disk.enforcement", "is Required, but there is no limit: set resources.limits.disk")
    elif not level.read_only_root and policy.host is not None and not _enforces(policy):
        words = policy.host.disk.words if policy.host.disk else "not tried yet; it will be within seconds"
        yield Refusal("resources.disk.enforcement", f"can't be Required on this host: {words}; {_HOW}")


def sized(config: ContainerConfig, policy: Policy) -> ContainerConfig:
    """The config with the size of its writable layer, where there is one and the engine holds it."""
    if config.read_only_root or not config.limits.disk_bytes or not _enforces(policy):
        return config
    return replace(config, storage_bytes=config.limits.disk_bytes)


def in_memory(config: ContainerConfig) -> bool:
    """Whether all that its container may write to is memory, but for folders of the host, which are not its disk."""
    return config.read_only_root


def ability(policy: Policy) -> DiskAbility | None:
    """What is known of this host's engine; None: not tried yet."""
    return policy.host.disk if policy.host else None


def _enforces(policy: Policy) -> bool:
    found = ability(policy)
    return found is not None and found.enforced
