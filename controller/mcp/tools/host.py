"""docker.volume.* and docker.network.list: what sandboxes may have."""

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

from pydantic import Field

from controller.kinds.meta import StoredObject
from controller.kinds.registry import Kind
from controller.kinds.securityprofile import KIND as PROFILE
from controller.kinds.volume import KIND as VOLUME
from controller.mcp.arguments import Arguments, Result
from controller.mcp.sandboxes import Namespace, ObjectArguments
from controller.mcp.tool import Call, Tool

_WRITTEN_BY = "mcp"


class NamespaceArguments(Arguments):
    namespace: Namespace = ""


class VolumeArguments(ObjectArguments):
    other_names: ClassVar[Mapping[str, str]] = {"name": "id", "volume": "id"}
    kind: ClassVar[Kind] = VOLUME


class Volume(Result):
    """A volume. `status`: Bound (something uses it) or Released."""

    name: str
    namespace: str
    size: str
    used: str
    reclaimPolicy: str
    status: str
    usedBy: list[str]


class VolumeList(Result):
    """Volumes by name."""

    items: list[Volume]


class VolumeRemoved(Result):
    """The volume whose removal was requested."""

    name: str
    namespace: str


class NoArguments(Arguments):
    pass


class Network(Result):
    """Network access of a security level. `mode`: none, sealed (`allowedHosts` through a proxy) or public."""

    securityLevel: str
    mode: str
    allowedHosts: list[str] | None = Field(default=None, description="null: the names in a sandbox's spec")
    localNetwork: bool = False
    peers: bool = False


class NetworkList(Result):
    """Network access by security level."""

    items: list[Network]


async def list_volumes(call: Call, arguments: NamespaceArguments) -> VolumeList:
    namespace = arguments.namespace or call.namespace
    call.require("list", VOLUME, namespace)
    volumes = (await call.thread(call.services.objects.list, VOLUME, namespace)).objects
    return VolumeList(items=[_volume(volume) for volume in volumes])


async def remove_volume(call: Call, arguments: VolumeArguments) -> VolumeRemoved:
    namespace = arguments.namespace or call.namespace
    call.require("delete", VOLUME, namespace, arguments.id)
    delete = partial(call.services.objects.delete, deleted_by=_WRITTEN_BY)
    await call.thread(delete, VOLUME, namespace, arguments.id)
    return VolumeRemoved(name=arguments.id, namespace=namespace)


async def list_networks(call: Call, _asked: NoArguments) -> NetworkList:
    call.require("list", PROFILE, "")
    profiles = (await call.thread(call.services.objects.list, PROFILE, None)).objects
    return NetworkList(items=[_network(profile) for profile in profiles if "effective" in profile.status])


def _volume(obj: StoredObject) -> Volume:
    status = obj.status
    return Volume(
        name=obj.name,
        namespace=obj.namespace,
        size=str(obj.spec["size"]),
        used=str(status.get("used", "")),
        reclaimPolicy=str(obj.spec["reclaimPolicy"]),
        status=str(status.get("phase", "")),
        usedBy=[f"{user['kind'].lower()}/{user['name']}" for user in status.get("usedBy", ())],
    )


def _network(obj: StoredObject) -> Network:
    network: dict[str, Any] = obj.status["effective"]["network"]
    hosts = network.get("allowedHosts")
    return Network(
        securityLevel=obj.name,
        mode=str(network["mode"]),
        allowedHosts=None if hosts is None else list(hosts),
        localNetwork=bool(network.get("localNetwork")),
        peers=bool(network.get("peers")),
    )


TOOLS = (
    Tool(
        name="docker.volume.list",
        title="List volumes",
        description="List the volumes of a namespace, which outlive sandboxes. A sandbox creates one by naming it.",
        arguments=NamespaceArguments,
        result=VolumeList,
        run=list_volumes,
        role="viewer",
        read_only=True,
    ),
    Tool(
        name="docker.volume.remove",
        title="Remove a volume",
        description="Delete a volume with its data. Refused while a sandbox or template names it.",
        arguments=VolumeArguments,
        result=VolumeRemoved,
        run=remove_volume,
        role="operator",
        destructive=True,
        idempotent=True,
    ),
    Tool(
        name="docker.network.list",
        title="List networks that sandboxes may have",
        description="List the network access of each security level. Networks of the host do not exist here.",
        arguments=NoArguments,
        result=NetworkList,
        run=list_networks,
        role="viewer",
        read_only=True,
    ),
)
