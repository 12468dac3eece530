"""VOLUMEs of the images that a Compose file names: its services get volumes there, as Compose's anonymous ones."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from controller.documents.document import Document
from controller.kinds.common.exec_paths import mount_place
from controller.kinds.volume import DEFAULT_TMPFS
from controller.policy.images import is_own
from controller.ports import ImageError, Images, Store
from controller.service import errors

if TYPE_CHECKING:
    from controller.documents.compose.compose import Composed, Project


class ImageVolumes:
    """The VOLUMEs of images on this host. Those of an image that is not here are those of the stored sandboxes."""

    def __init__(self, images: Images, store: Store) -> None:
        self._images, self._store = images, store

    def complete(self, project: "Project", composed: "Composed") -> "Project | None":
        """Return the options with the VOLUMEs of images that they don't name; None if there is nothing to add.

        Raises ServiceUnavailable if an image can't be looked at: its service would lose the volumes that it has.
        """
        names = {str(document.spec["template"]["image"]) for document in composed.documents}
        volumes = {
            name: self._volumes(name, composed)
            for name in sorted(names - project.image_volumes.keys())
            if not is_own(name)
        }
        if not any(volumes.values()):
            return None
        return replace(project, image_volumes={**project.image_volumes, **volumes})

    def _volumes(self, name: str, composed: "Composed") -> Sequence[str]:
        try:
            image = self._images.find(name)
        except ImageError as error:
            raise errors.ServiceUnavailable(
                f"image {name}: the folders it keeps data in (VOLUME) can't be read now: {error}; try again later"
            ) from error
        if image is not None:
            return image.volumes
        services = {sandbox: service for service, sandbox in composed.sandboxes.items()}
        stored_paths = (
            path
            for document in composed.documents
            for path in self._stored(name, f"{composed.project}-{services[document.name]}", document)
        )
        return tuple(dict.fromkeys(stored_paths))

    def _stored(self, image: str, prefix: str, document: Document) -> Iterator[str]:
        """Yield the VOLUMEs that the document's stored sandbox of this image has mounts for, by their names."""
        from controller.documents.compose.mounts import TEMPORARY, is_nameless

        sandbox = self._store.get(*document.key)
        template: Mapping[str, Any] = (sandbox.spec.get("template") or {}) if sandbox else {}
        if template.get("image") != image:
            return
        for volume in template.get("volumes") or ():
            if is_nameless(volume["name"], prefix, volume["mountPath"]):
                yield volume["mountPath"]
        for folder in template.get("tmpfs") or ():
            if mount_place(folder["mountPath"]) in TEMPORARY and folder["size"] == DEFAULT_TMPFS:
                yield folder["mountPath"]
