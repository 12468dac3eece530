"""filesystem.Filesystem: files and folders of a sandbox."""

import posixpath
import stat
from collections.abc import Mapping
from typing import Any

from controller.e2b.control.sandboxes import iso
from controller.e2b.envd.file_work import FileWork, kind_of
from controller.e2b.envd.workplace import Workplace
from controller.e2b.errors import code_of
from controller.e2b.fields import Fields
from controller.kinds.runtime.files import FileRequest
from controller.service.errors import AlreadyExists, BadRequest, Conflict, ServiceError

_TYPES = {"file": "FILE_TYPE_FILE", "folder": "FILE_TYPE_DIRECTORY", "symlink": "FILE_TYPE_SYMLINK"}
_FORMATS = {"file": stat.S_IFREG, "folder": stat.S_IFDIR, "symlink": stat.S_IFLNK}
MOST_ENTRIES = 10_000
_MOST_DEPTH = 64


class FilesystemCalls:
    """The calls that are no streams. Each gets the sandbox and the message, and returns the answer."""

    def __init__(self, files: FileWork) -> None:
        self._files = files

    async def stat(self, place: Workplace, message: Fields) -> Mapping[str, Any]:
        """Return the entry of a path; a symlink is not followed."""
        return {"entry": await self._entry(place, path_of(place, message, "path"))}

    async def list_dir(self, place: Workplace, message: Fields) -> Mapping[str, Any]:
        """Return the entries of a folder, `depth` levels of them."""
        path = path_of(place, message, "path")
        depth = max(1, message.number("depth", 1, most=_MOST_DEPTH))
        items = await self.items(place, path, depth)
        return {"entries": [entry(posixpath.join(path, item["name"]), item) for item in items]}

    async def items(self, place: Workplace, path: str, depth: int, *, again: bool = False) -> list[dict[str, Any]]:
        """Return what is below a folder, by relative names. `again`: for a use that is recorded already.

        Raises ServiceError.
        """
        request = FileRequest("list", path, limit=MOST_ENTRIES, depth=depth)
        try:
            listed = await self._files.result(place, request, again=again)
        except Conflict as error:
            if kind_of(error) == "NotAFolder":
                raise BadRequest(f"{path} is not a directory") from error
            raise
        if listed["truncated"]:
            raise BadRequest(f"{path} has more than {MOST_ENTRIES} entries; list its folders one by one")
        return list(listed["items"])

    async def make_dir(self, place: Workplace, message: Fields) -> Mapping[str, Any]:
        """Create a folder, with its parents. Raises AlreadyExists for a folder that is there."""
        path = path_of(place, message, "path")
        try:
            item = await self._files.result(place, FileRequest("mkdir", path, mode=0o755))
        except ServiceError as error:
            if kind_of(error) == "Exists":
                raise await self._existing(place, path) from error
            if kind_of(error) != "NotFound":
                raise
            item = await self._files.result(place, FileRequest("mkdir", path, parents=True, mode=0o755))
        return {"entry": entry(path, item)}

    async def _existing(self, place: Workplace, path: str) -> ServiceError:
        item = await self._files.result(place, FileRequest("stat", path))
        if item["type"] == "folder":
            return AlreadyExists(f"directory already exists: {path}")
        return BadRequest(f"{path} is there and is no directory; remove it first")

    async def move(self, place: Workplace, message: Fields) -> Mapping[str, Any]:
        """Rename a file or folder; what is at the destination is replaced if it is a file."""
        source, target = path_of(place, message, "source"), path_of(place, message, "destination")
        await self._files.result(place, FileRequest("move", source, target=target, parents=True))
        return {"entry": await self._entry(place, target)}

    async def remove(self, place: Workplace, message: Fields) -> Mapping[str, Any]:
        """Remove a file, or a folder with all of its contents; one that is not there is no error."""
        path = path_of(place, message, "path")
        try:
            await self._files.result(place, FileRequest("remove", path, recursive=True))
        except ServiceError as error:
            if code_of(error) != "not_found":
                raise
        return {}

    async def _entry(self, place: Workplace, path: str) -> Mapping[str, Any]:
        return entry(path, await self._files.result(place, FileRequest("stat", path, follow=False)))


def path_of(place: Workplace, message: Fields, name: str) -> str:
    """Return a path of a message, absolute. Raises BadRequest."""
    path = message.text(name)
    if not path:
        raise BadRequest(f"{name}: is empty; write a path")
    return place.absolute(path)


def entry(path: str, item: Mapping[str, Any]) -> dict[str, Any]:
    """Return a file as E2B's EntryInfo."""
    type_, mode = str(item["type"]), int(str(item["mode"]), 8)
    info: dict[str, Any] = {
        "name": posixpath.basename(path) or "/",
        "type": _TYPES.get(type_, "FILE_TYPE_UNSPECIFIED"),
        "path": path,
        "size": str(item["size"]),
        "mode": stat.S_IMODE(mode),
        "permissions": stat.filemode(_FORMATS.get(type_, 0) | mode),
        "owner": _name_of(item["uid"]),
        "group": _name_of(item["gid"]),
        "modifiedTime": iso(float(item["modified"])),
    }
    if item.get("target"):
        info["symlinkTarget"] = posixpath.normpath(posixpath.join(posixpath.dirname(path), str(item["target"])))
    return info


def _name_of(number: int) -> str:
    return "root" if number == 0 else str(number)
