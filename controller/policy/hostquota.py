"""Admission of a HostQuota: as for a Quota, without the fields that only a namespace has."""

from controller.kinds.host import NAME
from controller.kinds.hostquota import HostQuotaSpec
from controller.policy import quota
from controller.policy.levels.levels import Policy
from controller.policy.refusal import Refusal

_OF_NAMESPACES = {"objects": "objects_per_namespace", "annotations": "annotations_per_namespace_bytes"}


def admit_name(name: str, policy: Policy) -> tuple[Refusal, ...]:
    """Return the reason to refuse the name: a HostQuota has that of its host, and with one host there is one."""
    if name == NAME or policy.scheduler != "single":
        return ()
    return (Refusal("metadata.name", f"only one HostQuota can exist, named `{NAME}`; write that"),)


def admit(spec: HostQuotaSpec, policy: Policy) -> tuple[Refusal, ...]:
    """Return every reason to refuse it."""
    refusals = list(quota.admit(spec, policy))
    for field, setting in _OF_NAMESPACES.items():
        if getattr(spec.hard, field) is not None:
            message = f"is counted in each namespace; write it in a Quota, or set {setting} in the daemon's settings"
            refusals.append(Refusal(f"spec.hard.{field}", message))
    return tuple(refusals)
