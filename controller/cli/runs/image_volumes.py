"""VOLUMEs of images: folders that need a mount of a sandbox, since the engine gives them no limit."""

from collections.abc import Sequence
from typing import Any

from controller.cli.calls.images import Images
from controller.cli.client import Client
from controller.cli.errors import CliError
from controller.cli.text.output import note
from controller.cli.text.progress import image_work
from paddock._client.errors import NotFound

_CLAIM = "image-data"


def image_volumes(client: Client, image: str, *, host: str = "", pulls: bool = True) -> Sequence[str]:
    """Return the VOLUMEs of an image, which is pulled if it is on no host; () for one of Paddock's own.

    Raises Refused, ClientError; NotFound for a missing image that is not to be pulled.
    """
    from controller.policy.images import is_own

    if is_own(image):
        return ()
    images = Images(client)
    try:
        return tuple(images.inspect(image, host=host)["volumes"])
    except NotFound:
        if not pulls:
            raise
    with image_work(f"pulling {image}") as progress:
        return tuple(images.pull(image, progress, host=host).get("volumes", ()))


def with_image_volumes(template: dict[str, Any], volumes: Sequence[str]) -> dict[str, Any]:
    """Return the template with a volume of the sandbox's own at each VOLUME where it mounts nothing, and say so.

    Raises CliError for a VOLUME where none can be.
    """
    from controller.documents.compose.mounts import covers
    from controller.kinds.volume import DEFAULT_TMPFS, DEFAULT_VOLUME

    fields = ("tmpfs", "volumes", "volumeClaimTemplates", "secrets")
    targets = {mount["mountPath"] for field in fields for mount in template.get(field) or ()}
    in_memory = [mount["mountPath"] for mount in template.get("tmpfs") or ()]
    missing = tuple(covers(volumes, in_memory, targets))
    obstacles = [cover.obstacle for cover in missing if cover.obstacle]
    if obstacles:
        raise CliError("\n".join(f"{template['image']}: {obstacle}" for obstacle in obstacles))
    lasting = [cover.path for cover in missing if not cover.in_memory]
    claims = [
        {
            "name": _CLAIM if number == 1 else f"{_CLAIM}-{number}",
            "mountPath": path,
            "size": DEFAULT_VOLUME,
            "reclaimPolicy": "Delete",
        }
        for number, path in enumerate(lasting, 1)
    ]
    if claims:
        where = ", ".join(lasting)
        note(
            f"note: {template['image']} keeps data in {where}: a volume of {DEFAULT_VOLUME} there, which is deleted"
            f" with the sandbox; -v NAME:{lasting[0]} keeps it"
        )
    folders = [{"mountPath": cover.path, "size": DEFAULT_TMPFS} for cover in missing if cover.in_memory]
    mounts_by_field = {"volumeClaimTemplates": claims, "tmpfs": folders}
    return {
        **template,
        **{field: [*(template.get(field) or ()), *mounts] for field, mounts in mounts_by_field.items() if mounts},
    }
