"""What is bound into a box: all of it before each start; what is missing while it runs, as in one just claimed, then.

Another folder than the one that is bound needs a new container: whoever has files open in the old one would keep them.
"""

from collections.abc import Iterator

from controller.kinds.action import Action
from controller.kinds.mount import BindMounts, Mount
from controller.kinds.observed import Container, State
from controller.plan.case import Case
from controller.policy.mounted import missing
from controller.policy.sandbox import Rendered

REASON = "MountsMissing"


def wanted(case: Case, rendered: Rendered) -> tuple[Mount, ...]:
    """What is to be bound. A pool's member is nobody's yet: its places stay empty."""
    return rendered.config.mounts if case.obj.kind == "Sandbox" else ()


def before_start(case: Case, rendered: Rendered, image: str, why: str) -> Iterator[Action]:
    """Places and mounts made anew: they are gone with the host's last boot, and folders may have been replaced."""
    if rendered.config.slots:
        yield _bind(case, rendered, wanted(case, rendered), image, why)


def repair(case: Case, container: Container, rendered: Rendered) -> Iterator[Action]:
    """What is missing in a box that runs."""
    found = absent(case, container, rendered)
    if found:
        why = "not bound: " + ", ".join(each.path for each in found)
        yield _bind(case, rendered, found, container.image_id, why, container.id)


def absent(case: Case, container: Container, rendered: Rendered) -> tuple[Mount, ...]:
    """What of a running box's mounts is not there. One that is made otherwise has no places for them."""
    if container.state is not State.RUNNING or container.config_hash != rendered.config_hash:
        return ()
    return missing(wanted(case, rendered), container.inside, container.bound)


def changed(case: Case, container: Container, rendered: Rendered) -> str:
    """Why a container has to be replaced, because something else is bound there than its spec asks for now."""
    if case.obj.kind != "Sandbox" or container.config_hash != rendered.config_hash:
        return ""
    asked = {each.path: str(each) for each in rendered.config.mounts}
    other = [each for each in container.bound if asked.get(each.path, each.mount) != each.mount]
    return f"bound {other[0].mount}, wanted {asked[other[0].path]}" if other else ""


def unready(case: Case) -> tuple[str, str]:
    """The reason and the words why a box is not ready before all that it asks for is bound."""
    container, rendered = case.container, case.rendered
    found = absent(case, container, rendered) if container is not None and rendered is not None else ()
    return (REASON, "not bound yet: " + ", ".join(map(str, found))) if found else ("", "")


def _bind(
    case: Case, rendered: Rendered, mounts: tuple[Mount, ...], image: str, why: str, container_id: str = ""
) -> BindMounts:
    config = rendered.config
    return BindMounts(
        uid=case.obj.uid,
        name=config.name,
        namespace=case.obj.namespace,
        image=image,
        user=config.user,
        slots=config.slots,
        mounts=mounts,
        why=why,
        container_id=container_id,
    )
