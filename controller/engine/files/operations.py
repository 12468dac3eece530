"""Operations of worker.py in a sandbox's root. They run as the sandbox's user, with its permissions.

Each operation takes a Job and returns its result; one that sends data reports metadata first, by `head`. Only the
standard library and controller.archive are imported.
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
from controller.archive.unpack import AtomicFile, Rules, unpack
from controller.engine.files import sftp
from controller.engine.files.results import Result, TooLarge
from controller.engine.files.sandbox_root import (
    NotAFile,
    clean,
    kernel_file_system,
    open_file,
    open_folder,
    open_path,
    split,
)

_LIST_BYTES = 2 << 20  # of names and link targets; as JSON they may be six times as long
_PASSWD_BYTES = 1 << 18
_PASSWD_UID, _PASSWD_HOME, _PASSWD_SHELL = 2, 5, 6  # its fields
_SHELLS = ("/bin/bash", "/bin/sh")  # of a user without an entry
_NO_SHELLS = ("nologin", "false")
_TYPES = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "symlink"}


class Job(NamedTuple):
    """One operation: its request, input and output.

    `read(n)` returns input, b"" at its end; `write` takes output; `head` sends metadata before the data. `draw(fd, n)`,
    if set, outputs up to n bytes of a file and returns their number, 0 at its end.
    """

    root: int
    ask: Result
    read: Callable[[int], bytes]
    write: Callable[[bytes], None]
    head: Callable[[Result], None]
    draw: Callable[[int, int], int] | None = None

    def give(self, piece: Piece) -> int:
        """Output a piece of an archive; return its size. Raises OSError."""
        if isinstance(piece, Span):
            if self.draw:
                return self.draw(piece.fd, piece.size)
            piece = piece.read()
        self.write(piece)
        return len(piece)

    @property
    def path(self) -> bytes:
        """Requested path, absolute in the sandbox."""
        return self.absolute(str(self.ask["path"]))

    def absolute(self, path: str) -> bytes:
        """Return a path of the request as an absolute one in the sandbox."""
        if path == "~" or path.startswith("~/"):
            path = home(self.root, self.ask) + path[1:]
        return clean(path, str(self.ask.get("working_dir") or "/"))


def stat_(job: Job) -> Result:
    """Stat a path."""
    flags = os.O_PATH | (0 if job.ask.get("follow", True) else os.O_NOFOLLOW)
    fd = open_path(job.root, job.path, flags)
    try:
        names = [component for component in job.path.split(b"/") if component not in (b"", b".")]
        return _stat_result(names[-1] if names else b"/", os.fstat(fd), lambda: os.readlink(b"", dir_fd=fd))
    finally:
        os.close(fd)


def list_(job: Job) -> Result:
    """List a folder by name: at most `limit` entries, bounded in bytes. Folders that can't be read are left closed."""
    listing = _Listing(int(job.ask["limit"]))
    listing.add(open_folder(job.root, job.path), b"", int(job.ask.get("depth") or 1))
    return {"items": sorted(listing.items, key=lambda entry: str(entry["name"])), "truncated": listing.truncated}


class _Listing:
    """Entries of a folder and of those below it, whose names are relative paths."""

    def __init__(self, limit: int) -> None:
        self._limit, self._count, self._bytes = limit, 0, 0
        self.items: list[Result] = []
        self.truncated = False

    def add(self, folder: int, prefix: bytes, depth: int) -> None:
        """Add the entries of a folder, which is closed at the end."""
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    self._count += 1
                    self.truncated = self.truncated or self._count > self._limit or self._bytes > _LIST_BYTES
                    if self.truncated:
                        return
                    with suppress(FileNotFoundError):
                        self._add(os.fsencode(entry.name), folder, prefix, depth)
        finally:
            os.close(folder)

    def _add(self, name: bytes, folder: int, prefix: bytes, depth: int) -> None:
        item = _entry(name, folder)
        item["name"] = (prefix + name).decode("utf-8", "replace")
        self.items.append(item)
        self._bytes += len(item["name"]) + len(item.get("target", ""))
        if depth > 1 and item["type"] == "folder":
            with suppress(PermissionError, NotADirectoryError):
                self.add(open_below(name, folder), prefix + name + b"/", depth - 1)


def mkdir(job: Job) -> Result:
    """Create a folder, with its parents on request."""
    folder, name = split(job.path)
    if not name:
        raise NotAFile("Exists", "it already exists")
    if job.ask.get("parents"):
        _make_all(job.root, job.path)
        return stat_(job)
    parent = _open_parent(job.root, folder)
    try:
        os.mkdir(name, int(job.ask.get("mode") or 0o755), dir_fd=parent)
        return _entry(name, parent)
    finally:
        os.close(parent)


def remove(job: Job) -> Result:
    """Remove a file, a link or a folder; recursively on request only."""
    folder, name = split(job.path)
    if not name:
        raise NotAFile("BadPath", "the root of a sandbox can't be removed; delete the sandbox")
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


def read(job: Job) -> Result:
    """Read a regular file, up to its size at the start."""
    fd = open_file(job.root, job.path)
    try:
        status = os.fstat(fd)
        _bounded(status.st_size, job)
        job.head(_stat_result(split(job.path)[1], status, lambda: b""))
        for piece in contents(fd, status):
            job.give(piece)
        if os.lseek(fd, 0, os.SEEK_CUR) < status.st_size:
            raise NotAFile("Changed", "the file shrank while it was read; retry")
    finally:
        os.close(fd)
    return {}


def write(job: Job) -> Result:
    """Replace or create a regular file atomically, once all input has arrived. A symlink is replaced."""
    folder, name = split(job.path)
    if not name:
        raise NotAFile("IsAFolder", "it is a folder; give the path of a file")
    parent, count = _open_parent(job.root, folder, create=bool(job.ask.get("parents"))), 0
    try:
        mode = job.ask.get("mode")
        if mode is None:
            mode = _mode_of(name, parent)
        with AtomicFile(name, parent) as new:
            while piece := job.read(PIECE_BYTES):
                count += len(piece)
                _bounded(count, job)
                new.write(piece)
            new.finish(int(mode) & 0o777)
        return _entry(name, parent)
    finally:
        os.close(parent)


def move(job: Job) -> Result:
    """Rename a file, link or folder; what is at the new path is replaced, unless it is a folder with contents."""
    (source, name), (folder, new) = split(job.path), split(job.absolute(str(job.ask["target"])))
    if not name or not new:
        raise NotAFile("BadPath", "the root of a sandbox can't be moved, nor replaced")
    parent = open_folder(job.root, source)
    try:
        os.stat(name, dir_fd=parent, follow_symlinks=False)  # before folders are created for it
        target = _open_parent(job.root, folder, create=bool(job.ask.get("parents")))
        try:
            os.rename(name, new, src_dir_fd=parent, dst_dir_fd=target)
            return _entry(new, target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            raise NotAFile("BadPath", "the two paths are on different file systems; copy it, then remove it") from None
        finally:
            os.close(target)
    finally:
        os.close(parent)


def pack_(job: Job) -> Result:
    """Send a file, link or tree as a tar stream with the first name `top`."""
    top = clean(job.ask["top"]).lstrip(b"/")
    path, sent = job.path, 0
    path = path[:-1] if path.endswith(b"/.") else path
    into = path.endswith(b"/")
    folder, name = (path, b"") if into else split(path)
    fd = open_path(job.root, path if into else folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK)
    try:
        status = os.fstat(fd) if into else os.stat(name, dir_fd=fd, follow_symlinks=False)
        job.head(_stat_result(name or b"/", status, lambda: os.readlink(name, dir_fd=fd)))
        for piece in _packed(job, fd, b"." if into else name, top):
            sent += job.give(piece)
            try:
                _bounded(sent, job)
            except TooLarge as error:
                # Maybe in the middle of a file: then its reader finds it truncated, and nothing worse.
                job.write(note(FAILED, str(error).encode()))
                raise
    finally:
        os.close(fd)
    return {}


def _packed(job: Job, fd: int, name: bytes, top: bytes) -> Iterator[Piece]:
    if job.ask.get("follow"):
        with suppress(NotAFile):
            file = open_file(job.root, job.path)
            try:
                yield from pack_file(file, top)
            finally:
                os.close(file)
            return
    yield from pack(fd, name, top, leave_out=kernel_file_system)


def unpack_(job: Job) -> Result:
    """Unpack a tar stream into a folder."""
    folder = (
        _open_parent(job.root, job.path, create=True) if job.ask.get("parents") else open_folder(job.root, job.path)
    )
    try:
        rules = Rules(links_below=None, max_bytes=int(job.ask["max_bytes"]), hard_links=True)
        done = unpack(Reader(job.read), folder, rules)
        while job.read(PIECE_BYTES):
            pass  # data after the end mark
    finally:
        os.close(folder)
    return {"files": done.files, "bytes": done.bytes, "leftOut": done.left_out, "leftOutCount": done.left_out_count}


def login(job: Job) -> Result:
    """Return the shell and the home of the sandbox's user; the shell is empty if the image has none."""
    entry = _passwd_entry(job.root)
    stated_shell = entry[_PASSWD_SHELL] if entry else ""
    shells = (shell for shell in (stated_shell, *_SHELLS) if shell and shell.rpartition("/")[2] not in _NO_SHELLS)
    return {
        "shell": next((shell for shell in shells if _is_program(job.root, shell)), ""),
        "home": str(job.ask.get("home") or (entry[_PASSWD_HOME] if entry else "") or "/"),
        "name": entry[0] if entry else "",
    }


def _is_program(root: int, path: str) -> bool:
    """Tell whether a path leads to a regular file that somebody may execute."""
    try:
        fd = open_path(root, path.encode("utf-8", "surrogateescape"), os.O_PATH)
    except OSError:
        return False
    try:
        mode = os.fstat(fd).st_mode
    finally:
        os.close(fd)
    return stat.S_ISREG(mode) and bool(mode & 0o111)


def sftp_(job: Job) -> Result:
    """Answer SFTP until the input ends."""
    sftp.serve(job.root, job.ask, job.read, job.write, home(job.root, job.ask))
    return {}


OPERATIONS: dict[str, Callable[[Job], Result]] = {
    "sftp": sftp_,
    "login": login,
    "stat": stat_,
    "list": list_,
    "mkdir": mkdir,
    "remove": remove,
    "read": read,
    "write": write,
    "move": move,
    "pack": pack_,
    "unpack": unpack_,
}


def home(root: int, ask: Result) -> str:
    """Return the home of the sandbox's user as its commands have it: its HOME, else that of /etc/passwd, else `/`."""
    if ask.get("home"):
        return str(ask["home"])
    entry = _passwd_entry(root)
    return (entry[_PASSWD_HOME] if entry else "") or "/"


def _passwd_entry(root: int) -> list[str] | None:
    """Return the fields of the sandbox's user in /etc/passwd; None without an entry."""
    with suppress(OSError, NotAFile):
        fd = open_file(root, b"/etc/passwd")
        try:
            text = os.read(fd, _PASSWD_BYTES).decode("utf-8", "surrogateescape")
        finally:
            os.close(fd)
        for fields in (line.split(":") for line in text.split("\n")):
            if len(fields) > _PASSWD_SHELL and fields[_PASSWD_UID] == str(os.getuid()):
                return fields
    return None


def _open_parent(root: int, folder: bytes, *, create: bool = False) -> int:
    """Open the folder of a new file; `create` what is missing of it.

    Raises OSError, and NotAFile with its name if it does not exist.
    """
    try:
        return open_folder(root, folder)
    except FileNotFoundError:
        if create:
            _make_all(root, folder)
            return open_folder(root, folder)
        text = f"the folder {folder.decode('utf-8', 'replace')} does not exist; create it first"
        raise NotAFile("NotFound", text) from None


def _bounded(count: int, job: Job) -> None:
    limit = int(job.ask["max_bytes"])
    if count > limit:
        raise TooLarge(f"it is larger than {limit} bytes, the limit of a transfer (transfer_max_bytes)")


def _entry(name: bytes, parent: int) -> Result:
    status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    return _stat_result(name, status, lambda: os.readlink(name, dir_fd=parent))


def _stat_result(name: bytes, status: os.stat_result, target: Callable[[], bytes]) -> Result:
    entry: Result = {
        "name": name.decode("utf-8", "replace"),
        "type": _TYPES.get(stat.S_IFMT(status.st_mode), "other"),
        "size": status.st_size,
        "mode": f"{stat.S_IMODE(status.st_mode):04o}",
        "uid": status.st_uid,
        "gid": status.st_gid,
        "modified": status.st_mtime,
    }
    if entry["type"] == "symlink":
        with suppress(OSError):
            entry["target"] = target().decode("utf-8", "replace")
    return entry


def _mode_of(name: bytes, parent: int) -> int:
    """Return the mode of the replaced file, else the default."""
    try:
        mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return 0o644
    if stat.S_ISDIR(mode):
        raise NotAFile("IsAFolder", "it is a folder; give the path of a file")
    return stat.S_IMODE(mode) if stat.S_ISREG(mode) else 0o644


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
    """Remove a folder with all below it; links are not followed. Raises OSError."""
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
    """Remove all but folders; return the name of a remaining folder, or None."""
    with os.scandir(folder) as entries:
        for entry in entries:
            name = os.fsencode(entry.name)
            with suppress(FileNotFoundError):
                if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                    return name
                os.unlink(name, dir_fd=folder)
    return None
