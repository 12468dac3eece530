"""Names and labels of Paddock's own containers. No other module spells one.

Labels cannot change after create, so none holds anything that may change. A container without our instance id is never
touched, whatever its name.
"""

import hashlib
from collections.abc import Mapping

PREFIX = "paddock."
_OF_IMAGES = PREFIX + "dev/"  # labels of our images; they mean nothing on a container
_USER_OF_IMAGE, _ANY_USER = _OF_IMAGES + "user", "any"
INSTANCE = PREFIX + "instance"  # id of the store this container belongs to
UID = PREFIX + "uid"  # the object it was made for
NAMESPACE = PREFIX + "namespace"
NAME = PREFIX + "name"
ROLE = PREFIX + "role"  # sandbox, egress, uplink, peers
GENERATION = PREFIX + "generation"  # of the object, when the container was made
CONFIG_HASH = PREFIX + "config-hash"  # hash of the immutable part of the rendered config
REVISION = PREFIX + "revision"  # of the store: the object's when the container was made, so never above the store's own
AGENT = PREFIX + "agent"  # of an agent's runtime (a volume, and the container that fills it): its image's id
TEMPLATE_HASH = PREFIX + "template-hash"  # hash of the immutable part of the spec alone


def container_name(name: str, uid: str) -> str:
    """Return the container name of an object.

    It is derived, so that a second create fails (409) and makes no duplicate.
    """
    return f"pdk-{name}{_suffix(uid)}"


def is_container_name(container: str, uid: str) -> bool:
    """Return True if this is the container name of an object of that uid (under any object name), or of its egress."""
    return (
        container.startswith("pdk-")
        and container.endswith(_suffix(uid))
        and len(container) > len("pdk-" + _suffix(uid))
    ) or container == egress_name(uid)


def sealed_name(uid: str) -> str:
    """Return the name of an object's sealed bridge. The kernel allows at most 15 characters."""
    return f"pdx{_suffix(uid)}"


def public_name(uid: str) -> str:
    """Return the name of an object's bridge to the Internet. The firewall rules match its first three letters."""
    return f"pdp{_suffix(uid)}"


def local_name(uid: str) -> str:
    """Return the name of an object's bridge to the Internet and the local network."""
    return f"pdl{_suffix(uid)}"


def peers_name(namespace: str) -> str:
    """Return the name of the bridge that sandboxes of a namespace share.

    `n` is no hex digit, so no object's bridge has it.
    """
    return f"pdx-n{hashlib.sha256(namespace.encode()).hexdigest()[:8]}"


def egress_name(uid: str) -> str:
    """Return the name of an object's egress container."""
    return f"egress{_suffix(uid)}"


def egress_uid(uid: str) -> str:
    """Return the uid label of an object's egress container: a uid of its own with the object's first eight digits."""
    digits = hashlib.sha256(f"egress/{uid}".encode()).hexdigest()
    head = _suffix(uid).removeprefix("-")
    return f"{head}-{digits[8:12]}-8{digits[12:15]}-8{digits[15:18]}-{digits[18:30]}"  # RFC 9562, version 8


def _suffix(uid: str) -> str:
    return f"-{uid.replace('-', '')[:8]}"


def blanked_labels(labels: Mapping[str, str]) -> Mapping[str, str]:
    """Return, with empty values, an image's labels that would pass for ours on its containers."""
    return {name: "" for name in labels if name.startswith(PREFIX) and not name.startswith(_OF_IMAGES)}


def fits_any_user(labels: Mapping[str, str]) -> bool:
    """Return True if an image says by its labels that any user with its own one's group can work with its files."""
    return labels.get(_USER_OF_IMAGE) == _ANY_USER


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
    """Return the labels of a new container."""
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
