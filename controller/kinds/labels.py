"""Names and labels by which Paddock knows its own containers. No other file spells one.

Labels cannot change after create, so nothing that may change hands goes in one. A container without our
instance id is never touched, whatever it is called.
"""

from collections.abc import Mapping

PREFIX = "paddock."
INSTANCE = PREFIX + "instance"  # id of the store this container belongs to
UID = PREFIX + "uid"  # the object it was made for
NAMESPACE = PREFIX + "namespace"
NAME = PREFIX + "name"
ROLE = PREFIX + "role"  # sandbox (later: warm, egress, canary)
GENERATION = PREFIX + "generation"  # of the object, when the container was made
CONFIG_HASH = PREFIX + "config-hash"  # hash of the immutable part of the rendered config
REVISION = PREFIX + "revision"  # of the store: the object's when the container was made, so never above the store's own
TEMPLATE_HASH = PREFIX + "template-hash"  # hash of the immutable part of the spec alone


def container_name(name: str, uid: str) -> str:
    """The one container name of an object: derived, so that two creates collide (409) instead of doubling."""
    return f"pdk-{name}{_suffix(uid)}"


def is_container_name(container: str, uid: str) -> bool:
    """Whether this is the one container name of an object of that uid, whatever the object is or was called."""
    return (
        container.startswith("pdk-")
        and container.endswith(_suffix(uid))
        and len(container) > len("pdk-" + _suffix(uid))
    )


def _suffix(uid: str) -> str:
    return f"-{uid.replace('-', '')[:8]}"


def container_labels(
    *,
    instance: str,
    uid: str,
    namespace: str,
    name: str,
    role: str,
    generation: int,
    config_hash: str,
    template_hash: str,
    revision: int = 0,
) -> Mapping[str, str]:
    """The labels a container of ours is created with."""
    return {
        INSTANCE: instance,
        UID: uid,
        NAMESPACE: namespace,
        NAME: name,
        ROLE: role,
        GENERATION: str(generation),
        CONFIG_HASH: config_hash,
        TEMPLATE_HASH: template_hash,
        REVISION: str(revision),
    }
