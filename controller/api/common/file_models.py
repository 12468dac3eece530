"""Files of a box as /openapi.json describes them."""

from typing import Literal

from pydantic import Field

from controller.api.common.models import Shape


class FileInfo(Shape):
    """A file, folder or symlink as the box has it. `mode` is octal digits, `modified` Unix seconds."""

    name: str
    type: Literal["file", "folder", "symlink", "other"]
    size: int
    mode: str
    uid: int
    gid: int
    modified: float
    target: str = Field(default="", description="where a symlink leads")


class FileList(Shape):
    """A folder's entries in order of name. `truncated`: there are more than were asked for."""

    items: list[FileInfo]
    truncated: bool


class FileRemoved(Shape):
    """It is gone."""


class ArchiveUnpacked(Shape):
    """What was unpacked; `leftOut` are the first hundred of `leftOutCount` entries that were not, and why."""

    files: int
    bytes: int
    leftOut: list[str]
    leftOutCount: int
