"""What files_worker.py can be asked to do in a box's root. It runs as the box's user: what that may, this may.

Each operation takes the root's descriptor, what was asked, and the way in and out. It gives the words of its result;
one that sends data says them first, by `head`. Nothing but the standard library and controller.archive is imported.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

from controller.archive.folders import open_folder as open_below
from controller.archive.names import DEPTH
from controller.archive.pack import Piece, Span, contents, pack, pack_file
from controller.archive.tar import FAILED, PIECE_BYTES, Reader, note
from controller.archive.unpack import Replacing, Rules, unpack
from controller.engine.files.results import TooLarge, Words
from controller.engine.files.sandbox_root import (
    NotAFile,
    clean,
    of_the_kernel,
    open_file,
    open_folder,
    open_path,
    split,
)

_LIST_BYTES = 2 << 20  # of names and targets of links; as words they can be six times as long
_TYPES = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "symlink"}


class Job(NamedTuple):
    """`read(n)` gives input, b"" at its end; `write` takes output; `head` says the first words of a result.

    `draw(fd, n)`, where there is one, puts out up to n bytes of a file, and says how many, 0 at its end.
    """

    root: int
    ask: Words
    read: Callable[[int], bytes]
    write: Callable[[bytes], None]
    head: Callable[[Words], None]
    draw: Callable[[int, int], int] | None = None

    def give(self, piece: Piece) -> int:
        """Put out a piece of an archive; gives its size. Raises OSError."""
        if isinstance(piece, Span):
            if self.draw:
                return self.draw(piece.fd, piece.size)
            piece = piece.read()
        self.write(piece)
        return len(piece)

    @property
    def path(self) -> bytes:
        """What is asked about, as an absolute path in the box."""
        return clean(self.ask["path"])


def stat_(job: Job) -> Words:
    """What is there."""
    flags = os.O_PATH | (0 if job.ask.get("follow", True) else os.O_NOFOLLOW)
    fd = open_path(job.root, job.path, flags)
    try:
        return _words(
            job.path.rstrip(b"/").rpartition(b"/")[2] or b"/", os.fstat(fd), lambda: os.readlink(b"", dir_fd=fd)
        )
    finally:
        os.close(fd)


def list_(job: Job) -> Words:
    """The entries of a folder in order of name, at most `limit` of them, and as many as there is room for."""
    folder, limit = open_folder(job.root, job.path), int(job.ask["limit"])
    items: list[Words] = []
    count = size = 0
    truncated = False
    try:
        with os.scandir(folder) as entries:
            for each in entries:
                count += 1
                truncated = count > limit or size > _LIST_BYTES
                if truncated:
                    break
                with suppress(FileNotFoundError):
                    items.append(_entry(os.fsencode(each.name), folder))
                    size += len(items[-1]["name"]) + len(items[-1].get("target", ""))
    finally:
        os.close(folder)
    return {"items": sorted(items, key=lambda each: str(each["name"])), "truncated": truncated}


def mkdir(job: Job) -> Words:
    """Make a folder, with those above it if asked."""
    folder, name = split(job.path)
    if not name:
        raise NotAFile("Exists", "it is there already")
    if job.ask.get("parents"):
        _make_all(job.root, job.path)
        return stat_(job)
    parent = open_folder(job.root, folder)
    try:
        os.mkdir(name, int(job.ask.get("mode") or 0o755), dir_fd=parent)
        return _entry(name, parent)
    finally:
        os.close(parent)


def remove(job: Job) -> Words:
    """Remove a file, a link or a folder; one that is not empty only if asked."""
    folder, name = split(job.path)
    if not name:
        raise NotAFile("BadPath", "the root of a box can't be removed; delete the sandbox")
    parent = open_folder(job.root, folder)
    try:
        mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
        if not stat.S_ISDIR(mode):
            os.unlink(name, dir_fd=parent)
        elif job.ask.get("recursive"):
            _remove_tree(name, parent)
        else:
            os.rmdir(name, dir_fd=parent)
    finally:
        os.close(parent)
    return {}


def read(job: Job) -> Words:
    """The bytes of a regular file, as many as it had at first."""
    fd = open_file(job.root, job.path)
    try:
        found = os.fstat(fd)
        _bounded(found.st_size, job)
        job.head(_words(split(job.path)[1], found, lambda: b""))
        for piece in contents(fd, found):
            job.give(piece)
        if os.lseek(fd, 0, os.SEEK_CUR) < found.st_size:
            raise NotAFile("Changed", "the file became shorter while it was read; read it again")
    finally:
        os.close(fd)
    return {}


def write(job: Job) -> Words:
    """Replace or make a regular file, in one step once all of it has come. A symlink there is replaced."""
    folder, name = split(job.path)
    if not name:
        raise NotAFile("IsAFolder", "it is a folder; write a file's path")
    parent, count = open_folder(job.root, folder), 0
    try:
        mode = job.ask.get("mode")
        if mode is None:
            mode = _mode_of(name, parent)
        with Replacing(name, parent) as new:
            while piece := job.read(PIECE_BYTES):
                count += len(piece)
                _bounded(count, job)
                new.write(piece)
            new.become(int(mode) & 0o777)
        return _entry(name, parent)
    finally:
        os.close(parent)


def pack_(job: Job) -> Words:
    """A file, link or tree as a tar stream, its first name `top`."""
    top = clean(job.ask["top"]).lstrip(b"/")
    path, sent = job.path, 0
    folder, name = split(path)
    into = path.endswith(b"/") or not name
    fd = open_path(job.root, path if into else folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK)
    try:
        found = os.fstat(fd) if into else os.stat(name, dir_fd=fd, follow_symlinks=False)
        job.head(_words(name or b"/", found, lambda: os.readlink(name, dir_fd=fd)))
        for piece in _packed(job, fd, b"." if into else name, top):
            sent += job.give(piece)
            try:
                _bounded(sent, job)
            except TooLarge as error:
                # In the middle of a file, perhaps: then whoever reads finds it cut off, and nothing worse.
                job.write(note(FAILED, str(error).encode()))
                raise
    finally:
        os.close(fd)
    return {}


def _packed(job: Job, fd: int, name: bytes, top: bytes) -> Iterator[Piece]:
    if job.ask.get("follow"):
        with suppress(NotAFile):
            found = open_file(job.root, job.path)
            try:
                yield from pack_file(found, top)
            finally:
                os.close(found)
            return
    yield from pack(fd, name, top, leave_out=of_the_kernel)


def unpack_(job: Job) -> Words:
    """A tar stream, below a folder that is there."""
    folder = open_folder(job.root, job.path)
    try:
        rules = Rules(links_below=None, max_bytes=int(job.ask["max_bytes"]))
        done = unpack(Reader(job.read), folder, rules)
        while job.read(PIECE_BYTES):
            pass  # what is behind the end mark
    finally:
        os.close(folder)
    return {"files": done.files, "bytes": done.bytes, "leftOut": done.left_out, "leftOutCount": done.left_out_count}


OPERATIONS: dict[str, Callable[[Job], Words]] = {
    "stat": stat_,
    "list": list_,
    "mkdir": mkdir,
    "remove": remove,
    "read": read,
    "write": write,
    "pack": pack_,
    "unpack": unpack_,
}


def _bounded(count: int, job: Job) -> None:
    limit = int(job.ask["max_bytes"])
    if count > limit:
        raise TooLarge(f"it is larger than {limit} bytes, the most that one transfer may have (transfer_max_bytes)")


def _entry(name: bytes, parent: int) -> Words:
    found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    return _words(name, found, lambda: os.readlink(name, dir_fd=parent))


def _words(name: bytes, found: os.stat_result, target: Callable[[], bytes]) -> Words:
    words: Words = {
        "name": name.decode("utf-8", "replace"),
        "type": _TYPES.get(stat.S_IFMT(found.st_mode), "other"),
        "size": found.st_size,
        "mode": f"{stat.S_IMODE(found.st_mode):04o}",
        "uid": found.st_uid,
        "gid": found.st_gid,
        "modified": found.st_mtime,
    }
    if words["type"] == "symlink":
        with suppress(OSError):
            words["target"] = target().decode("utf-8", "replace")
    return words


def _mode_of(name: bytes, parent: int) -> int:
    """The mode of the file that is replaced, else that of a new one."""
    try:
        found = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return 0o644
    if stat.S_ISDIR(found):
        raise NotAFile("IsAFolder", "it is a folder; write a file's path")
    return stat.S_IMODE(found) if stat.S_ISREG(found) else 0o644


def _make_all(root: int, path: bytes) -> None:
    done = b""
    for name in path.strip(b"/").split(b"/"):
        parent = open_folder(root, done or b"/")
        try:
            if name not in (b"", b".", b".."):
                os.mkdir(name, 0o755, dir_fd=parent)
        except FileExistsError:
            pass
        finally:
            os.close(parent)
        done += b"/" + name
    os.close(open_folder(root, done))


def _remove_tree(name: bytes, parent: int) -> None:
    """A folder with all below it; never through a link. Raises OSError."""
    walks = [(name, parent, open_below(name, parent))]
    try:
        while walks:
            name, above, folder = walks[-1]
            below = _remove_files(folder)
            if below is None:
                os.close(walks.pop()[2])
                os.rmdir(name, dir_fd=above)
                continue
            if len(walks) > DEPTH:
                raise OSError(errno.ELOOP, f"it is nested deeper than {DEPTH} folders")
            walks.append((below, folder, open_below(below, folder)))
    finally:
        for _, _, folder in walks:
            os.close(folder)


def _remove_files(folder: int) -> bytes | None:
    """Remove what is no folder; gives the name of a folder that is left, or None."""
    with os.scandir(folder) as entries:
        for each in entries:
            name = os.fsencode(each.name)
            with suppress(FileNotFoundError):
                if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                    return name
                os.unlink(name, dir_fd=folder)
    return None
