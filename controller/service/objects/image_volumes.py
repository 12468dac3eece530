"""VOLUMEs of the images that a Compose file names: its services get volumes there, as Compose's anonymous ones."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from controller.documents.compose.compose import Composed, Project
from controller.ports import ImageError, Images


class ImageVolumes:
    """The VOLUMEs of images on this host. An image that is not here, or can't be read, has none that are known."""

    def __init__(self, images: Images) -> None:
        self._images = images

    def complete(self, project: Project, composed: Composed) -> Project | None:
        """Return the options with the VOLUMEs of images that they don't name; None if there is nothing to add."""
        names = {str(document.spec["template"]["image"]) for document in composed.documents}
        volumes = self._volumes(sorted(names - project.image_volumes.keys()))
        if not any(volumes.values()):
            return None
        return replace(project, image_volumes={**project.image_volumes, **volumes})

    def _volumes(self, names: Sequence[str]) -> Mapping[str, Sequence[str]]:
        volumes: dict[str, Sequence[str]] = {}
        for name in names:
            try:
                image = self._images.find(name)
            except ImageError:  # the engine does not answer: it would not for the next one either
                break
            volumes[name] = image.volumes if image is not None else ()
        return volumes
