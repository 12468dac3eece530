"""Setuid and setgid files of an image, read from its layers' folders without running anything.

A layer never changes, so results are cached. They are unknown where the engine stores layers otherwise (the containerd
image store, btrfs, another host). no-new-privileges makes such files harmless in a sandbox anyway.
"""

import os
import stat
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

_MOST_FILES = 500_000  # of one layer; with more the result is unknown


def setuid_files(image: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the paths of those files, given the image's inspect; None if they can't be known."""
    layers = layers_of(image)
    if layers is None:
        return None
    files_of_layers = [_of_layer(layer) for layer in layers]
    visible_paths = set()
    for number, paths in enumerate(files_of_layers):
        if paths is None:
            return None
        visible_paths |= {path for path in paths if not any(_hides(above, path) for above in layers[:number])}
    return tuple(sorted(visible_paths))


def layers_of(image: Mapping[str, Any]) -> list[str] | None:
    """Return the folders of the layers from the top down, as overlayfs resolves a name; None: the engine has others."""
    graph = image.get("GraphDriver") or {}
    data = graph.get("Data") or {}
    if graph.get("Name") != "overlay2" or not data.get("UpperDir"):
        return None
    return [data["UpperDir"], *(folder for folder in (data.get("LowerDir") or "").split(":") if folder)]


@lru_cache(maxsize=512)
def _of_layer(folder: str) -> tuple[str, ...] | None:
    """Return the paths in one layer, absolute; None if it can't be read completely."""
    try:
        return tuple(path.removeprefix(folder) for path, mode in _files(folder) if mode & (stat.S_ISUID | stat.S_ISGID))
    except OSError:
        return None


def _files(folder: str) -> Iterator[tuple[str, int]]:
    """Yield every regular file below, with its mode. Raises OSError."""
    folders, file_count = [folder], 0
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                file_count += 1
                if file_count > _MOST_FILES:
                    raise OSError("too many files")
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    yield entry.path, entry.stat(follow_symlinks=False).st_mode


def _hides(layer: str, path: str) -> bool:
    """Tell whether an upper layer replaces or removes that path, or a folder above it."""
    at = layer
    parts = path.strip("/").split("/")
    for component in parts:
        at = f"{at}/{component}"
        try:
            status = os.lstat(at)
        except OSError:
            return False
        if not stat.S_ISDIR(status.st_mode):
            return True
        if _opaque(at):
            return True
    return True


def _opaque(folder: str) -> bool:
    try:
        return os.getxattr(folder, "trusted.overlay.opaque", follow_symlinks=False) == b"y"
    except OSError:
        return False
