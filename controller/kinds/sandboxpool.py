"""SandboxPool: sandboxes of one template that are started in advance, and claimed by sandboxes of that template."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from controller.kinds.base import Model, Name, Whole
from controller.kinds.meta import StoredObject
from controller.kinds.quota import PoolQuota
from controller.kinds.registry import Column, Kind
from controller.kinds.sandbox import FINALIZER, TemplateRef, age

Replicas = Annotated[Whole, Field(ge=0, le=1000)]


class SandboxPoolSpec(Model):
    """A warm pool. `maxReplicas` bounds its warm and claimed members together; left out: only quotas do.

    `priority` orders pools: the highest is filled first and loses members last. All of them come after sandboxes.
    """

    template_ref: TemplateRef
    """The container of its members, by the name of a SandboxTemplate of the same namespace."""
    warm_replicas: Replicas = 1
    """Number of warm members."""
    warm_state: Literal["Running", "Hibernated"] = "Running"
    """State of a warm member. Hibernated: once it is ready, it is frozen with its memory in swap, and costs a few MiB.

    A claim wakes it. Where the host can't hibernate, it runs.
    """
    max_replicas: Annotated[Whole | None, Field(ge=1, le=10_000)] = None
    """Maximum of warm and claimed members together, over all hosts. Default: none."""
    startup_deadline_seconds: Annotated[Whole, Field(ge=1, le=3600)] = 30
    """Seconds for a member's startup and readiness probes to succeed.

    After that it is stopped, and started again after its back-off.
    """
    shutdown_grace_period_seconds: Annotated[Whole, Field(ge=0, le=3600)] = 10
    """Seconds from the image's stop signal (else SIGTERM) to SIGKILL when a member is removed."""
    max_age_seconds: Annotated[Whole, Field(ge=60, le=31_536_000)] = 86400
    """Seconds after which an unclaimed member is replaced by a fresh one."""
    update_strategy: Literal["OnReplenish"] = "OnReplenish"
    """Reaction to a changed template. OnReplenish: replace members one by one, each once a new one is ready."""
    priority: Annotated[Whole, Field(ge=-1_000_000, le=1_000_000)] = 0
    """Order of pools: the highest is filled first and loses members last. All come after sandboxes."""
    quota: PoolQuota | None = None
    """Maxima of the pool's members and claimed sandboxes together, over all hosts.

    The quotas of the namespace and of the host hold, too.
    """
    host: Name | None = None
    """Host of its members, by its name. Default: the only one there is, or those that the scheduler chooses."""

    @model_validator(mode="after")
    def _room_for_the_warm(self) -> "SandboxPoolSpec":
        if self.max_replicas is not None and self.warm_replicas > self.max_replicas:
            raise ValueError(f"warmReplicas {self.warm_replicas} is more than maxReplicas {self.max_replicas}")
        return self


def whole_key(obj: StoredObject) -> tuple[str, str]:
    """Return uid and name of the pool whose bounds hold for a pool: the one that it is a part of, else its own."""
    owners = (
        (owner_reference["uid"], owner_reference["name"])
        for owner_reference in obj.owner_references
        if owner_reference.get("kind") == KIND.name
    )
    return next(owners, (obj.uid, obj.name))


def whole_uid(obj: StoredObject) -> str:
    """Return the uid under which a pool's members and claimed sandboxes are counted."""
    return whole_key(obj)[0]


def _count(name: str) -> "Column":
    titles = {"readyReplicas": "READY", "replicas": "WARM", "claimedReplicas": "CLAIMED"}
    return Column(titles[name], lambda obj, _now: str(obj.status.get(name, 0)))


def _template(obj: StoredObject, _now: float) -> str:
    return str(obj.spec.get("templateRef", {}).get("name", "-"))


KIND = Kind(
    name="SandboxPool",
    plural="sandboxpools",
    short_names=("sbp",),
    spec=SandboxPoolSpec,
    finalizers=(FINALIZER,),
    scale=("warmReplicas",),
    columns=(
        Column("TEMPLATE", _template),
        Column("DESIRED", lambda obj, _now: str(obj.spec.get("warmReplicas", 1))),
        _count("replicas"),
        _count("readyReplicas"),
        _count("claimedReplicas"),
        Column("MAX", lambda obj, _now: str(obj.spec.get("maxReplicas", "-")), wide=True),
        Column("AGE", lambda obj, now: age(now - obj.created_at)),
    ),
)
