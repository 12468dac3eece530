"""What an image would bring along that its container must not have: so far, volumes of its own.

An image's VOLUME is writable and without a limit even where the root file system is read-only, so each one has to be
covered by a folder of the spec's own, or the image is refused.
"""

from controller.engine.client import Client
from controller.kinds.container import ContainerConfig


def uncovered_volumes(client: Client, image: str, config: ContainerConfig) -> tuple[str, ...]:
    """The VOLUME paths of an image that no tmpfs of the config covers. Raises Fault (404: no such image)."""
    data = client.call("images.inspect", lambda api: api.inspect_image(image))
    declared = (data.get("Config") or {}).get("Volumes") or {}
    covered = {each.path for each in config.tmpfs}
    return tuple(sorted(path for path in declared if path.rstrip("/") not in covered))


def refusal(image: str, paths: tuple[str, ...]) -> str:
    """Why such an image is not run, and what to do."""
    folders = ", ".join(f"{{mountPath: {path}, size: 64Mi}}" for path in paths)
    return (
        f"the image {image} declares VOLUME {', '.join(paths)}, which would be writable without a limit; "
        f"cover it with spec.template.tmpfs: [{folders}], or build the image without it"
    )
