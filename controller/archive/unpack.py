"""Unpacker of a tar stream below an open folder, and nowhere else, even against concurrent writers.

Every folder is opened from its parent and never through a symlink. A file is written without a name and renamed when
it is complete. Permission bits and files' times are kept; owners, setuid and setgid are not.
"""

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from .folders import Folders, open_folder
from .moving import write_all
from .names import Parts, Unsafe, leads_out, parts_of, shown
from .tar import CHANGED, FAILED, Entry, Reader, TarError

_HOLE_BYTES = 4096  # zeros that a file system can store as a hole
_ZEROS = bytes(_HOLE_BYTES)
_LATER = 10_000  # folders with a read-only mode, which is set at the end
_NAMELESS = os.O_WRONLY | os.O_TMPFILE | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class LimitExceeded(Exception):
    """The archive exceeds a limit."""


class Unpacked:
    """Result; `written` are `bytes` without holes.

    `left_out` are messages about skipped entries, the first hundred.
    """

    def __init__(self) -> None:
        self.files = self.bytes = self.written = self.left_out_count = 0
        self.left_out: list[str] = []

    def leave_out(self, message: str) -> None:
        """Count a skipped entry; keep the first hundred messages."""
        self.left_out_count += 1
        if self.left_out_count <= 100:
            self.left_out.append(message)


class Rules(NamedTuple):
    """Limits of an unpacking. `max_bytes` counts written file data without holes.

    `links_below`: number of leading name parts that a symlink may not lead out of; else it is skipped. None: symlinks
    are created unchanged. `modes` are the permission bits that are kept. `hard_links`: those to files below the folder
    are made; else the archive is refused.
    """

    links_below: int | None = 0
    max_bytes: int | None = None
    max_entries: int = 1_000_000
    progress: Callable[[int], None] = lambda _count: None
    modes: int = 0o777
    hard_links: bool = False


def unpack(reader: Reader, top: int, rules: Rules = Rules()) -> Unpacked:
    """Unpack the archive below the folder `top`.

    Raises Unsafe at the first entry that no honest packer writes, TarError, LimitExceeded, and OSError with the entry's
    name as `filename`; earlier entries are kept.
    """
    folders = Folders(top)
    done = Unpacked()
    later = list[tuple[Parts, int]]()
    try:
        for count, entry in enumerate(reader):
            if count >= rules.max_entries:
                raise LimitExceeded(f"the archive has more than {rules.max_entries} entries")
            if entry.type == "note":
                _read_note(entry, done)
                continue
            parts = parts_of(entry.name)
            try:
                _unpack_entry(reader, folders, _Step(entry, parts, rules, done, later))
            except OSError as error:
                raise OSError(error.errno, error.strerror, shown(b"/".join(parts))) from error
        for parts, mode in reversed(later):
            os.chmod(folders.at(parts), mode)
    finally:
        folders.close()
    return done


class _Step(NamedTuple):
    entry: Entry
    parts: Parts
    rules: Rules
    done: Unpacked
    later: list[tuple[Parts, int]]


def _read_note(note: Entry, done: Unpacked) -> None:
    """Handle a note of the packer: it failed, or an entry changed or was skipped."""
    if note.name == FAILED:
        raise TarError(shown(note.target))
    verb = "changed during the read" if note.name == CHANGED else "was left out"
    name, _, why = note.target.partition(b"\0")
    done.leave_out(f"{shown(name)} {verb}" + (f": {shown(why)}" if why else ""))


def _unpack_entry(reader: Reader, folders: Folders, step: _Step) -> None:
    entry, parts = step.entry, step.parts
    if entry.type == "special" or (entry.type == "hardlink" and not step.rules.hard_links):
        what = (
            "a hard link; write the archive with --hard-dereference" if entry.type == "hardlink" else "a device or FIFO"
        )
        raise Unsafe(f"{shown(entry.name)} is {what}: it is not unpacked")
    if entry.type == "folder":
        _folder(folders, step)
        return
    if not parts:
        raise Unsafe("a file without a name is not unpacked")
    parent = folders.at(parts[:-1])
    if entry.type == "link":
        _link(parent, step)
    elif entry.type == "hardlink":
        _hard_link(folders, step)
    else:
        _file(reader, parent, step)
    step.done.files += 1


def _folder(folders: Folders, step: _Step) -> None:
    parts, mode = step.parts, step.entry.mode & step.rules.modes
    if not parts:
        return
    parent = folders.at(parts[:-1])
    try:
        os.mkdir(parts[-1], mode | 0o700, dir_fd=parent)
    except FileExistsError:
        folders.at(parts)  # a folder, and no link
        return
    folder = open_folder(parts[-1], parent)
    try:
        os.chmod(folder, mode | 0o700)
    finally:
        os.close(folder)
    if mode & 0o700 != 0o700 and len(step.later) < _LATER:
        step.later.append((parts, mode))


def _link(parent: int, step: _Step) -> None:
    entry, name = step.entry, step.parts[-1]
    below = step.rules.links_below
    if below is not None and leads_out(step.parts, entry.target, below):
        step.done.leave_out(
            f"{shown(entry.name)} was left out: a symlink to {shown(entry.target)} leads out of the copied tree"
        )
        return
    spare = _temporary_name()
    os.symlink(entry.target, spare, dir_fd=parent)
    try:
        os.rename(spare, name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        with suppress(OSError):
            os.unlink(spare, dir_fd=parent)
        raise


def _hard_link(folders: Folders, step: _Step) -> None:
    """Give a file below the folder another name; a symlink is not followed, and nothing else is linked."""
    source = parts_of(step.entry.target)
    name = step.parts[-1]
    spare = _temporary_name()
    origin = os.dup(folders.at(source[:-1]))
    try:
        if not source or not stat.S_ISREG(os.stat(source[-1], dir_fd=origin, follow_symlinks=False).st_mode):
            raise Unsafe(f"{shown(step.entry.name)} is a hard link to {shown(step.entry.target)}, which is not a file")
        parent = folders.at(step.parts[:-1])
        os.link(source[-1], spare, src_dir_fd=origin, dst_dir_fd=parent, follow_symlinks=False)
        try:
            os.rename(spare, name, src_dir_fd=parent, dst_dir_fd=parent)
        finally:
            with suppress(FileNotFoundError):  # a rename between two names of one file changes nothing
                os.unlink(spare, dir_fd=parent)
    finally:
        os.close(origin)


def _file(reader: Reader, parent: int, step: _Step) -> None:
    entry = step.entry
    rules = step.rules
    done = step.done
    with AtomicFile(step.parts[-1], parent) as new:
        for piece in reader.pieces():
            done.written += new.write(piece)
            if rules.max_bytes is not None and done.written > rules.max_bytes:
                raise LimitExceeded(f"the archive holds more than {rules.max_bytes} bytes")
            done.bytes += len(piece)
            rules.progress(len(piece))
        new.finish(entry.mode & rules.modes, entry.mtime)


class AtomicFile:
    """New file that gets its name in the folder `parent` when `become` is called.

    An unfinished file leaves nothing behind (where the file system supports O_TMPFILE). Zeros are written as holes: a
    sparse file stays sparse.
    """

    def __init__(self, name: bytes, parent: int) -> None:
        self._name, self._parent = name, parent
        self._size = 0
        self._temporary = b""
        try:
            self.fd = os.open(b".", _NAMELESS, 0o600, dir_fd=parent)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT):
                raise
            self._temporary = _temporary_name()
            self.fd = os.open(self._temporary, _NEW, 0o600, dir_fd=parent)

    def __enter__(self) -> "AtomicFile":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)
        if self._temporary:
            with suppress(OSError):
                os.unlink(self._temporary, dir_fd=self._parent)

    def write(self, data: bytes) -> int:
        """Append data; return the number of bytes without holes. Raises OSError."""
        begin = at = written_bytes = 0  # to be written: `begin` to `at`
        while at < len(data):
            end = min(len(data), at + _HOLE_BYTES - (self._size + at) % _HOLE_BYTES)
            if data.startswith(_ZEROS[: end - at], at):
                written_bytes += self._put(data[begin:at], begin)
                begin = end
            at = end
        written_bytes += self._put(data[begin:at], begin)
        self._size += len(data)
        return written_bytes

    def _put(self, data: bytes, at: int) -> int:
        if data:
            os.lseek(self.fd, self._size + at, os.SEEK_SET)
            write_all(self.fd, data)
        return len(data)

    def finish(self, mode: int, mtime: int | None = None) -> None:
        """Finish the file: set its mode, time and name. Raises OSError."""
        os.ftruncate(self.fd, self._size)  # a hole at the end needs the file's final size
        os.fchmod(self.fd, mode)
        if mtime is not None:
            with suppress(OverflowError, OSError):  # time not supported by the file system
                os.utime(self.fd, (mtime, mtime))
        if not self._temporary:
            if self._linked(self._name):
                return
            spare = _temporary_name()
            self._linked(spare)
            self._temporary = spare
        os.rename(self._temporary, self._name, src_dir_fd=self._parent, dst_dir_fd=self._parent)
        self._temporary = b""

    def _linked(self, name: bytes) -> bool:
        """Link the nameless file to that name; False if it exists."""
        try:
            os.link(f"/proc/self/fd/{self.fd}", name, dst_dir_fd=self._parent, follow_symlinks=True)
        except FileExistsError:
            return False
        return True


def _temporary_name() -> bytes:
    return b".paddock-" + os.urandom(8).hex().encode()
