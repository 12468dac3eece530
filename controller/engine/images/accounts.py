"""The files passwd and group of a sandbox whose user its image does not know, so that programs find a name and a home.

    <folder>/<uid>/passwd, group      the image's own, with a line more; bound read-only over those in /etc

Programs such as ssh and initdb refuse a user without a name. The files are kept as long as the container.
"""

import contextlib
import logging
import os
import shutil
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from controller.engine.images.image_layers import layers_of
from controller.engine.kernel.engine_namespace import EngineNamespace, NamespaceUnreachable
from controller.kinds.runtime.container import ContainerConfig
from controller.kinds.runtime.user_ids import LOWEST_FREE_ID, own_id

log = logging.getLogger(__name__)

FILES = ("passwd", "group")
_MOST_BYTES = 256 << 10
_NAME, _GROUP = "sandbox", "own"
# Of images whose files can't be read here; the ids are those of every Linux.
_BASIC = {
    "passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "group": "root:x:0:\nnogroup:x:65534:\n",
}


def account_files(
    image: Mapping[str, Any],
    config: ContainerConfig,
    by_engine: Callable[[], Mapping[str, str] | None] = lambda: None,
) -> Mapping[str, str]:
    """Return the files by name, given the image's inspect; none if its own ones do.

    `by_engine` gives the image's own where its layers can't be read (None: the engine doesn't, either).
    """
    uid, gid = own_id(config.user), config.user.partition(":")[2]
    if uid < LOWEST_FREE_ID or not gid.isdigit():
        return {}
    layers = layers_of(image)
    texts = (by_engine() or _BASIC) if layers is None else {name: _read(layers, name) for name in FILES}
    image_users = [line_text.split(":") for line_text in texts["passwd"].splitlines()]
    # The image names that id itself.
    if any(image_user[2:3] == [str(uid)] for image_user in image_users):
        return {}
    otherwise = str((image.get("Config") or {}).get("WorkingDir") or "/")
    fields = next(
        (image_user for image_user in image_users if image_user[0] == _NAME and len(image_user) == 7),
        [_NAME, "x", "", "", "", otherwise, "/bin/sh"],
    )
    home = dict(config.env).get("HOME") or fields[5]
    line = ":".join([_NAME, "x", str(uid), gid, fields[4], _plain(home), fields[6]])
    users = [user_line for user_line in texts["passwd"].splitlines() if user_line.partition(":")[0] != _NAME]
    groups = [group_line for group_line in texts["group"].splitlines() if group_line.partition(":")[0] != _GROUP]
    return {"passwd": "\n".join([*users, line, ""]), "group": "\n".join([*groups, f"{_GROUP}:x:{gid}:", ""])}


def _plain(path: str) -> str:
    """Return a path that fits a field of passwd(5); "/" for any other."""
    return path if path.isprintable() and ":" not in path else "/"


def _read(layers: Sequence[str], name: str) -> str:
    """Return the text of a file in the image's /etc; "" if it has none that can be read as text."""
    for layer in layers:
        text = _read_in(f"{layer}/etc", name)
        if text is not None:
            return text
    return ""


def _read_in(folder: str, name: str) -> str | None:
    """Return the text of that file in one layer; None if a lower layer may have it."""
    try:
        etc = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=etc)
    except FileNotFoundError:
        return None
    except OSError:  # a link, or a deletion
        return ""
    finally:
        os.close(etc)
    with os.fdopen(file, "rb") as opened:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return ""
        return opened.read(_MOST_BYTES).decode("utf-8", "replace").replace("\0", "")


class Accounts:
    """These files of all sandboxes, in a folder of the engine's machine."""

    def __init__(self, folder: Path, base_url: str) -> None:
        self._folder, self._namespace = folder, EngineNamespace(base_url)

    def mounts(self, uid: str, files: Mapping[str, str]) -> list[dict[str, Any]]:
        """Write the files of a new container, and return their mounts for the engine's create call.

        There are none if they can't be written: the sandbox runs without a name for its user. Never raises.
        """
        try:
            folder = self._own_folder() / uid
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            for name, text in files.items():
                new = folder / f"{name}.new"
                new.write_text(text)
                new.chmod(0o644)
                new.replace(folder / name)
        except (NamespaceUnreachable, OSError) as error:
            log.warning("account files not written: %s: %s", uid, error)
            return []
        return [
            {"Type": "bind", "Source": str(self._folder / uid / name), "Target": f"/etc/{name}", "ReadOnly": True}
            for name in files
        ]

    def remove(self, uid: str) -> None:
        """Delete an object's files. Never raises."""
        with contextlib.suppress(NamespaceUnreachable):
            shutil.rmtree(self._own_folder() / uid, ignore_errors=True)

    def _own_folder(self) -> Path:
        """Return the folder as this process reaches it. Raises NamespaceUnreachable."""
        return self._namespace.root() / self._folder.relative_to("/")
