"""JSON notation of conditions, limits and times in the statuses of all kinds."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from controller.kinds.common.quantity import format_bytes, format_cpu
from controller.kinds.meta import Condition
from controller.kinds.runtime.container import Limits


def dated(condition: Condition, prior: Mapping[str, Any] | None, generation: int, now: float) -> dict[str, Any]:
    """Return a condition as JSON. Its transition time changes only with its status; `prior` is the stored one."""
    is_unchanged = prior is not None and prior.get("status") == condition.status
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "observedGeneration": generation,
        "lastTransitionTime": prior["lastTransitionTime"] if prior and is_unchanged else rfc3339(now),
    }


def limits_to_json(limits: Limits) -> dict[str, Any]:
    """Limits as a spec would write them."""
    fields: dict[str, Any] = {
        "cpu": format_cpu(limits.cpu_millicores),
        "memory": format_bytes(limits.memory_bytes),
        "pids": limits.pids,
    }
    fields |= {"disk": format_bytes(limits.disk_bytes)} if limits.disk_bytes else {}
    return fields | ({"gpus": limits.gpus} if limits.gpus else {})


def rfc3339(seconds: float) -> str:
    """Return Unix seconds in the notation of the Kubernetes API."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
