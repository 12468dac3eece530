"""Names and labels by which Paddock knows its own containers. No other file spells one.

Labels cannot change after create, so nothing that may change hands goes in one. A container without our
instance id is never touched, whatever it is called.
"""

import hashlib
from collections.abc import Mapping

PREFIX = "paddock."
_OF_IMAGES = PREFIX + "dev/"  # what our images bear; it means nothing on a container
INSTANCE = PREFIX + "instance"  # id of the store this container belongs to
UID = PREFIX + "uid"  # the object it was made for
NAMESPACE = PREFIX + "namespace"
NAME = PREFIX + "name"
ROLE = PREFIX + "role"  # sandbox, egress, uplink, peers
GENERATION = PREFIX + "generation"  # of the object, when the container was made
CONFIG_HASH = PREFIX + "config-hash"  # hash of the immutable part of the rendered config
REVISION = PREFIX + "revision"  # of the store: the object's when the container was made, so never above the store's own
TEMPLATE_HASH = PREFIX + "template-hash"  # hash of the immutable part of the spec alone


def container_name(name: str, uid: str) -> str:
    """The one container name of an object: derived, so that two creates collide (409) instead of doubling."""
    return f"pdk-{name}{_suffix(uid)}"


def is_container_name(container: str, uid: str) -> bool:
    """Whether this is the container name of an object of that uid, whatever it was called, or of its egress."""
    return (
        container.startswith("pdk-")
        and container.endswith(_suffix(uid))
        and len(container) > len("pdk-" + _suffix(uid))
    ) or container == egress_name(uid)


def sealed_name(uid: str) -> str:
    """The bridge of an object's own; the kernel takes no more than 15 characters."""
    return f"pdx{_suffix(uid)}"


def public_name(uid: str) -> str:
    """The bridge of an object's own that leads to the Internet; the guard knows it by its first three letters."""
    return f"pdp{_suffix(uid)}"


def local_name(uid: str) -> str:
    """The same with the local network behind it."""
    return f"pdl{_suffix(uid)}"


def peers_name(namespace: str) -> str:
    """The bridge that sandboxes of a namespace share. No object's own can be called so: `n` is no digit of a uid."""
    return f"pdx-n{hashlib.sha256(namespace.encode()).hexdigest()[:8]}"


def egress_name(uid: str) -> str:
    """The container through which that object's box reaches what it may."""
    return f"egress{_suffix(uid)}"


def egress_uid(uid: str) -> str:
    """What the label of that container bears: a uid of its own that begins as the object's, and so names the same."""
    digits = hashlib.sha256(f"egress/{uid}".encode()).hexdigest()
    head = _suffix(uid).removeprefix("-")
    return f"{head}-{digits[8:12]}-8{digits[12:15]}-8{digits[15:18]}-{digits[18:30]}"  # RFC 9562, version 8


def _suffix(uid: str) -> str:
    return f"-{uid.replace('-', '')[:8]}"


def emptied(labels: Mapping[str, str]) -> Mapping[str, str]:
    """Those of an image's labels that would pass for ours on its containers, without their values."""
    return {name: "" for name in labels if name.startswith(PREFIX) and not name.startswith(_OF_IMAGES)}


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
