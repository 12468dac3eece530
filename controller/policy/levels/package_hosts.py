"""The level `build` with the package hosts of this host. Pure."""

from collections.abc import Iterable
from dataclasses import replace

from controller.kinds.runtime.package_hosts import PackageHosts
from controller.policy.levels.levels import Policy

BUILD = "build"


def with_packages(policy: Policy, detected: PackageHosts, listed: Iterable[str] = ()) -> Policy:
    """Return the policy whose sandboxes of level build reach the detected and the listed hosts, and no others."""
    hosts = tuple(sorted({*detected.hosts, *listed}))
    level = replace(policy.levels[BUILD], allowed_hosts=hosts)
    return replace(policy, levels={**policy.levels, BUILD: level}, packages_left_out=detected.left_out)
