"""Whether a sandbox is held to its disk limit, and by whom."""

from controller.kinds.meta import Condition
from controller.plan.case import Case
from controller.policy.disk import in_memory

TYPE = "DiskQuotaEnforced"


def condition(case: Case) -> Condition:
    """The DiskQuotaEnforced condition."""
    if case.rendered is None or not case.rendered.config.limits.disk_bytes:
        return Condition(TYPE, "Unknown", "NotAsked", "its limits say nothing of disk")
    config, container = case.rendered.config, case.container
    if in_memory(config):
        return Condition(TYPE, "True", "InMemory", "it has nothing but memory to write to, which its limit bounds")
    if not config.storage_bytes:
        return Condition(TYPE, "False", "Soft", f"{_why(case)}: {_SOFT}")
    if container is None:
        return Condition(TYPE, "Unknown", "NoContainer", "its container will get a size")
    if container.storage_bytes < config.storage_bytes:
        return Condition(TYPE, "False", "NextStart", "its container was made with another size, until its next start")
    return Condition(TYPE, "True", "StorageOption", "the engine holds its writable layer to the limit")


_SOFT = "it is counted in the quotas, and no more"


def _why(case: Case) -> str:
    found = case.rendered.disk if case.rendered else None
    return found.words if found else "not tried yet on this engine"
