"""Enforcement of `resources.limits.disk` on this host. Pure.

If the engine can enforce a size (found by trying), the container gets one. A read-only root file system writes to
memory alone, which is limited. Otherwise the limit is soft: disk usage is measured from time to time, reported at 80 %,
and at 100 % the sandbox is stopped (plan/sandbox/disk_limit.py).
"""

from collections.abc import Iterator
from dataclasses import replace

from controller.kinds.runtime.container import ContainerConfig, Limits
from controller.kinds.runtime.disk import DiskAbility
from controller.kinds.sandbox import Resources, Template
from controller.policy.levels.levels import Level, Policy
from controller.policy.refusal import Refusal

_HOW = "put the engine's data on xfs mounted with `pquota`, or use a level whose root file system is read-only"


def required(resources: Resources, template: Template) -> bool:
    """Return True if the limit must be enforced, by the sandbox's own setting, else its template's."""
    disk = resources.disk or template.resources.disk
    return disk is not None and disk.enforcement == "Required"


def refusals(limits: Limits, level: Level, policy: Policy) -> Iterator[Refusal]:
    """Yield the reasons why a required enforcement is impossible."""
    if not limits.disk_bytes:
        yield Refusal("resources.disk.enforcement", "is Required, but there is no limit; set resources.limits.disk")
    elif not level.read_only_root and policy.host is not None and not _enforces(policy):
        message = policy.host.disk.message if policy.host.disk else "not tested yet; retry in a few seconds"
        yield Refusal("resources.disk.enforcement", f"can't be Required on this host: {message}; {_HOW}")


def sized(config: ContainerConfig, policy: Policy) -> ContainerConfig:
    """Return the config with the size of its writable layer, if there is one and the engine can enforce it."""
    if config.read_only_root or not config.limits.disk_bytes or not _enforces(policy):
        return config
    return replace(config, storage_bytes=config.limits.disk_bytes)


def in_memory(config: ContainerConfig) -> bool:
    """Return True if the container writes to memory alone. Folders of the host do not count as its disk."""
    return config.read_only_root


def ability(policy: Policy) -> DiskAbility | None:
    """Return this host engine's ability; None: not tried yet."""
    return policy.host.disk if policy.host else None


def _enforces(policy: Policy) -> bool:
    disk_ability = ability(policy)
    return disk_ability is not None and disk_ability.enforced
