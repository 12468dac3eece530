"""Chain of open folders, so that no path lookup goes through a symlink planted meanwhile."""

import os

from .names import Parts, Unsafe, shown

OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def open_folder(name: bytes, parent: int) -> int:
    """Open the folder of that name, not through a symlink. Raises OSError (ENOTDIR or ELOOP for anything else)."""
    return os.open(name, OPEN_FOLDER, dir_fd=parent)


class Folders:
    """Open folders from the top down to the one in use. Close it."""

    def __init__(self, top: int) -> None:
        """`top` stays owned by the caller."""
        self._top = top
        self._open: list[tuple[bytes, int]] = []

    def at(self, parts: Parts) -> int:
        """Return the folder of those parts below the top, created (0755) if missing. Raises Unsafe, OSError."""
        open_names = tuple(name for name, _ in self._open)
        common_depth = next(
            (i for i, (a, b) in enumerate(zip(open_names, parts, strict=False)) if a != b),
            min(len(open_names), len(parts)),
        )
        self._close(common_depth)
        for depth, name in enumerate(parts[common_depth:], common_depth + 1):
            self._open.append((name, self._down(name, parts[:depth])))
        return self._current

    def close(self) -> None:
        """Close all folders but the top."""
        self._close(0)

    @property
    def _current(self) -> int:
        return self._open[-1][1] if self._open else self._top

    def _close(self, depth: int) -> None:
        while len(self._open) > depth:
            os.close(self._open.pop()[1])

    def _down(self, name: bytes, way: Parts) -> int:
        try:
            return open_folder(name, self._current)
        except FileNotFoundError:
            os.mkdir(name, 0o755, dir_fd=self._current)
            return open_folder(name, self._current)
        except OSError as error:
            if is_link(name, self._current):
                where = shown(b"/".join(way))
                raise Unsafe(f"{where} is a symlink in the target, which is never followed; remove it first") from error
            raise


def is_link(name: bytes, parent: int) -> bool:
    """Tell if that name is a symlink now."""
    try:
        os.readlink(name, dir_fd=parent)
    except OSError:
        return False
    return True
