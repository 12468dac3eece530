"""SFTP, version 3 with OpenSSH's extensions, in a sandbox's root: the operation `sftp` of worker.py.

It runs as the sandbox's user, with its permissions. Paths are resolved in the sandbox's root (sandbox_root.py). Only
the standard library and this package's modules for workers are imported. Requests are answered in their order.
"""

import errno
import os
import posixpath
import stat
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from controller.engine.files.results import CutOff, Result, describe
from controller.engine.files.sandbox_root import (
    NotAFile,
    clean,
    kernel_file_system,
    open_file,
    open_folder,
    open_path,
    split,
)

VERSION = 3
MOST_PACKET_BYTES, MOST_DATA_BYTES, MOST_HANDLES = 256 << 10, 255 << 10, 256
_INPUT_BYTES = 1 << 18
_ANSWER_BYTES = 1 << 18  # answers are written together, up to so many bytes
_NAMES, _NAMES_BYTES = 200, 128 << 10  # of one answer
_UMASK = 0o022  # of what is created; a client may set any mode afterwards
_HALF_YEAR_SECONDS = 183 * 86_400

INIT, VERSION_ANSWER = 1, 2
OPEN, CLOSE, READ, WRITE, LSTAT, FSTAT, SETSTAT, FSETSTAT, OPENDIR, READDIR = range(3, 13)
REMOVE, MKDIR, RMDIR, REALPATH, STAT, RENAME, READLINK, SYMLINK = range(13, 21)
STATUS, HANDLE, DATA, NAME, ATTRS = range(101, 106)
EXTENDED, EXTENDED_REPLY = 200, 201
OK, EOF, NO_SUCH_FILE, PERMISSION_DENIED, FAILURE, BAD_MESSAGE, _, _, OP_UNSUPPORTED = range(9)
_CODES = {errno.ENOENT: NO_SUCH_FILE, errno.ENOTDIR: NO_SUCH_FILE, errno.EACCES: PERMISSION_DENIED}
FOR_PEOPLE = b"en-x-paddock"  # the language tag of such a message: OpenSSH's clients say "Failure" alone
ADVICE = {
    errno.ENOSPC: "remove files in the sandbox, or give it more space (workspace, tmpfs or volume in its spec)",
    errno.EDQUOT: "remove files in the sandbox, or give it more space (workspace, tmpfs or volume in its spec)",
    errno.EFBIG: "split it, or use `paddock cp`; the operator sets the bound",
}
_CODES |= {errno.EPERM: PERMISSION_DENIED, errno.EROFS: PERMISSION_DENIED}
_TO_READ, _TO_WRITE, _APPENDS, _CREATES, _TRUNCATES, _IS_NEW = (1 << bit for bit in range(6))
_SIZE, _OWNER, _MODE, _TIMES, _MORE = 1, 2, 4, 8, 0x8000_0000
_EXTENSIONS = {
    b"posix-rename@openssh.com": b"1",
    b"statvfs@openssh.com": b"2",
    b"hardlink@openssh.com": b"1",
    b"fsync@openssh.com": b"1",
    b"lsetstat@openssh.com": b"1",
    b"limits@openssh.com": b"1",
    b"expand-path@openssh.com": b"1",
}
_U32, _U64, _HEAD = struct.Struct(">I"), struct.Struct(">Q"), struct.Struct(">IBI")


class Malformed(Exception):
    """A packet that is not one of SFTP."""


class Attributes(NamedTuple):
    """Attributes of a file that a client sets; None: unchanged."""

    size: int | None = None
    owner: tuple[int, int] | None = None
    mode: int | None = None
    times: tuple[int, int] | None = None


class Fields:
    """Reader of the fields of a packet. Raises Malformed."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def u32(self) -> int:
        return int(_U32.unpack(self._take(4))[0])

    def u64(self) -> int:
        return int(_U64.unpack(self._take(8))[0])

    def string(self) -> bytes:
        return self._take(self.u32())

    def attributes(self) -> Attributes:
        """Read attributes; extended ones are skipped."""
        flags = self.u32()
        size = self.u64() if flags & _SIZE else None
        owner = (self.u32(), self.u32()) if flags & _OWNER else None
        mode = self.u32() & 0o7777 if flags & _MODE else None
        times = (self.u32(), self.u32()) if flags & _TIMES else None
        for _ in range(2 * self.u32() if flags & _MORE else 0):
            self.string()
        return Attributes(size, owner, mode, times)

    def _take(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._data):
            raise Malformed("a field is longer than its packet")
        data, self._at = self._data[self._at : end], end
        return data


class Handle(NamedTuple):
    """An open file, or an open folder with the entries that are not listed yet."""

    fd: int
    appends: bool = False
    entries: "os._ScandirIterator[str] | None" = None

    def close(self) -> None:
        if self.entries is not None:
            self.entries.close()
        os.close(self.fd)


def string(data: bytes) -> bytes:
    """Encode a string."""
    return _U32.pack(len(data)) + data


def attributes_of(info: os.stat_result) -> bytes:
    """Encode what is known of a file."""
    packed = struct.pack(">IQII", _SIZE | _OWNER | _MODE | _TIMES, info.st_size, info.st_uid, info.st_gid)
    return packed + struct.pack(">III", info.st_mode, _seconds(info.st_atime), _seconds(info.st_mtime))


def _seconds(value: float) -> int:
    return min(max(int(value), 0), 0xFFFF_FFFF)


def serve(root: int, ask: Result, read: Callable[[int], bytes], write: Callable[[bytes], None], home: str) -> None:
    """Answer requests until the input ends. Raises CutOff for bytes that are not SFTP."""
    server = Server(root, str(ask.get("working_dir") or "/"), home, int(ask.get("max_bytes") or 0))
    received, answers = b"", bytearray()
    try:
        while piece := read(_INPUT_BYTES):
            received = received + piece if received else piece
            at = 0
            while len(received) - at >= _U32.size:
                (size,) = _U32.unpack_from(received, at)
                if not 0 < size <= MOST_PACKET_BYTES + 1024:
                    raise CutOff(f"sftp: a packet of {size} bytes")
                if len(received) - at < _U32.size + size:
                    break
                at += _U32.size
                answers += server.answer(received[at : at + size])
                at += size
                if len(answers) >= _ANSWER_BYTES:
                    write(bytes(answers))
                    answers.clear()
            received = received[at:]
            if answers:
                write(bytes(answers))
                answers.clear()
    finally:
        server.close()


class Server:
    """Answers the packets of one client."""

    def __init__(self, root: int, working_dir: str, home: str, most_bytes: int) -> None:
        self._root, self._working_dir, self._home, self._most_bytes = root, working_dir, home, most_bytes
        self._handles: dict[bytes, Handle] = {}
        self._number = 0
        self._methods: dict[int, Callable[[int, Fields], bytes]] = {
            OPEN: self._open,
            CLOSE: self._close,
            READ: self._read,
            WRITE: self._write,
            LSTAT: lambda number, fields: self._stat(number, fields, follow=False),
            FSTAT: self._fstat,
            SETSTAT: lambda number, fields: self._setstat(number, fields, follow=True),
            FSETSTAT: self._fsetstat,
            OPENDIR: self._opendir,
            READDIR: self._readdir,
            REMOVE: self._remove,
            MKDIR: self._mkdir,
            RMDIR: self._rmdir,
            REALPATH: self._realpath,
            STAT: lambda number, fields: self._stat(number, fields, follow=True),
            RENAME: lambda number, fields: self._rename(number, fields, replaces=False),
            READLINK: self._readlink,
            SYMLINK: self._symlink,
            EXTENDED: self._extended,
        }
        self._extended_methods: dict[bytes, Callable[[int, Fields], bytes]] = {
            b"posix-rename@openssh.com": lambda number, fields: self._rename(number, fields, replaces=True),
            b"statvfs@openssh.com": self._statvfs,
            b"hardlink@openssh.com": self._hardlink,
            b"fsync@openssh.com": self._fsync,
            b"lsetstat@openssh.com": lambda number, fields: self._setstat(number, fields, follow=False),
            b"limits@openssh.com": self._limits,
            b"expand-path@openssh.com": self._expand_path,
        }

    def answer(self, packet: bytes) -> bytes:
        """Return the answer to a packet (without its length), with its length. Raises CutOff."""
        type_, fields = packet[0], Fields(packet[1:])
        try:
            if type_ == INIT:
                fields.u32()
                body = b"".join(string(name) + string(value) for name, value in _EXTENSIONS.items())
                return _packet(VERSION_ANSWER, VERSION, body)
            number = fields.u32()
        except Malformed as error:
            raise CutOff(f"sftp: {error}") from error
        method = self._methods.get(type_)
        if method is None:
            return status(number, OP_UNSUPPORTED, f"request {type_} is not one of SFTP version 3")
        try:
            return method(number, fields)
        except Malformed as error:
            return status(number, BAD_MESSAGE, str(error))
        except NotAFile as error:
            return status(number, FAILURE, str(error))
        except OSError as error:
            advice = ADVICE.get(error.errno or 0, "")
            if advice:
                return status(number, FAILURE, f"{describe(error)[1]}; {advice}", FOR_PEOPLE)
            return status(number, _CODES.get(error.errno or 0, FAILURE), describe(error)[1])

    def close(self) -> None:
        """Close all handles."""
        for handle in self._handles.values():
            handle.close()
        self._handles.clear()

    # Paths and handles

    def _path(self, fields: Fields) -> bytes:
        return clean(fields.string().decode("utf-8", "surrogateescape") or ".", self._working_dir)

    def _parent(self, path: bytes) -> tuple[int, bytes]:
        """Open the folder of a path; return it and the name below it."""
        folder, name = split(path)
        if not name:
            raise NotAFile("BadPath", "it is the root of the sandbox")
        return open_folder(self._root, folder), name

    def _handle(self, fields: Fields) -> Handle:
        handle = self._handles.get(fields.string())
        if handle is None:
            raise OSError(errno.EBADF, "the handle is not open")
        return handle

    def _opened(self, number: int, handle: Handle) -> bytes:
        if len(self._handles) >= MOST_HANDLES:
            handle.close()
            raise OSError(errno.EMFILE, f"{MOST_HANDLES} files are open; close some")
        self._number += 1
        name = _U32.pack(self._number & 0xFFFF_FFFF)
        self._handles[name] = handle
        return _packet(HANDLE, number, string(name))

    # Files

    def _open(self, number: int, fields: Fields) -> bytes:
        path, flags, attributes = self._path(fields), fields.u32(), fields.attributes()
        if not flags & _TO_WRITE:
            return self._opened(number, Handle(open_file(self._root, path)))
        return self._opened(number, Handle(self._to_write(path, flags, attributes.mode), bool(flags & _APPENDS)))

    def _to_write(self, path: bytes, flags: int, mode: int | None) -> int:
        """Open a regular file for writing, and create it on request. Raises OSError, NotAFile."""
        how = os.O_RDWR if flags & _TO_READ else os.O_WRONLY
        how |= os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | (os.O_APPEND if flags & _APPENDS else 0)
        if flags & _CREATES:
            with suppress(FileExistsError):
                # A file system of the kernel creates none; a link to nothing is not followed.
                return open_path(
                    self._root, path, how | os.O_CREAT | os.O_EXCL, (0o644 if mode is None else mode) & ~_UMASK & 0o777
                )
            if flags & _IS_NEW:
                raise FileExistsError(errno.EEXIST, "it already exists")
        checked = open_file(self._root, path, reads=False)
        try:
            fd = os.open(f"/proc/self/fd/{checked}", how | (os.O_TRUNC if flags & _TRUNCATES else 0))
        finally:
            os.close(checked)
        return fd

    def _close(self, number: int, fields: Fields) -> bytes:
        handle = self._handles.pop(fields.string(), None)
        if handle is None:
            raise OSError(errno.EBADF, "the handle is not open")
        handle.close()
        return status(number, OK)

    def _read(self, number: int, fields: Fields) -> bytes:
        handle, offset, count = self._handle(fields), fields.u64(), fields.u32()
        data = os.pread(handle.fd, min(count, MOST_DATA_BYTES), min(offset, (1 << 63) - 1)) if count else b""
        if not data:
            return status(number, EOF)
        return _HEAD.pack(len(data) + 9, DATA, number) + _U32.pack(len(data)) + data

    def _write(self, number: int, fields: Fields) -> bytes:
        handle, offset, data = self._handle(fields), fields.u64(), fields.string()
        if self._most_bytes and offset + len(data) > self._most_bytes:
            raise OSError(errno.EFBIG, f"a file may have {self._most_bytes} bytes (transfer_max_bytes)")
        while data:
            count = os.write(handle.fd, data) if handle.appends else os.pwrite(handle.fd, data, offset)
            data, offset = data[count:], offset + count
        return status(number, OK)

    def _fsync(self, number: int, fields: Fields) -> bytes:
        os.fsync(self._handle(fields).fd)
        return status(number, OK)

    def _remove(self, number: int, fields: Fields) -> bytes:
        parent, name = self._parent(self._path(fields))
        try:
            os.unlink(name, dir_fd=parent)
        finally:
            os.close(parent)
        return status(number, OK)

    def _rename(self, number: int, fields: Fields, *, replaces: bool) -> bytes:
        source, name = self._parent(self._path(fields))
        try:
            target, new_name = self._parent(self._path(fields))
            try:
                if not replaces and _exists(new_name, target):
                    raise FileExistsError(errno.EEXIST, "the new name already exists")
                os.rename(name, new_name, src_dir_fd=source, dst_dir_fd=target)
            finally:
                os.close(target)
        finally:
            os.close(source)
        return status(number, OK)

    # Attributes

    def _stat(self, number: int, fields: Fields, *, follow: bool) -> bytes:
        fd = open_path(self._root, self._path(fields), os.O_PATH | (0 if follow else os.O_NOFOLLOW))
        try:
            return _packet(ATTRS, number, attributes_of(os.fstat(fd)))
        finally:
            os.close(fd)

    def _fstat(self, number: int, fields: Fields) -> bytes:
        return _packet(ATTRS, number, attributes_of(os.fstat(self._handle(fields).fd)))

    def _setstat(self, number: int, fields: Fields, *, follow: bool) -> bytes:
        path, attributes = self._path(fields), fields.attributes()
        if follow:
            fd = open_path(self._root, path, os.O_PATH)
            try:
                _apply(fd, attributes)
            finally:
                os.close(fd)
            return status(number, OK)
        parent, name = self._parent(path)
        try:
            if attributes.times is not None:  # Linux has no other attributes of links that a user sets
                os.utime(name, attributes.times, dir_fd=parent, follow_symlinks=False)
        finally:
            os.close(parent)
        return status(number, OK)

    def _fsetstat(self, number: int, fields: Fields) -> bytes:
        handle = self._handle(fields)
        _apply(handle.fd, fields.attributes())
        return status(number, OK)

    def _statvfs(self, number: int, fields: Fields) -> bytes:
        fd = open_path(self._root, self._path(fields), os.O_PATH)
        try:
            info = os.statvfs(f"/proc/self/fd/{fd}")
        finally:
            os.close(fd)
        values = [info.f_bsize, info.f_frsize, info.f_blocks, info.f_bfree, info.f_bavail, info.f_files]
        values += [info.f_ffree, info.f_favail, info.f_fsid, info.f_flag & 3, info.f_namemax]
        packed = struct.pack(">11Q", *(value & 0xFFFF_FFFF_FFFF_FFFF for value in values))
        return _packet(EXTENDED_REPLY, number, packed)

    def _limits(self, number: int, _fields: Fields) -> bytes:
        values = (MOST_PACKET_BYTES, MOST_DATA_BYTES, MOST_DATA_BYTES, MOST_HANDLES)
        return _packet(EXTENDED_REPLY, number, struct.pack(">4Q", *values))

    # Folders and links

    def _opendir(self, number: int, fields: Fields) -> bytes:
        fd = open_folder(self._root, self._path(fields))
        return self._opened(number, Handle(fd, entries=os.scandir(fd)))

    def _readdir(self, number: int, fields: Fields) -> bytes:
        handle = self._handle(fields)
        if handle.entries is None:
            raise OSError(errno.ENOTDIR, "the handle is not of a folder")
        names: list[bytes] = []
        size = 0
        for entry in handle.entries:
            with suppress(FileNotFoundError):
                info = os.stat(entry.name, dir_fd=handle.fd, follow_symlinks=False)
                name = os.fsencode(entry.name)
                names.append(string(name) + string(_long_name(name, info)) + attributes_of(info))
                size += len(names[-1])
            if len(names) >= _NAMES or size >= _NAMES_BYTES:
                break
        if not names:
            return status(number, EOF)
        return _packet(NAME, number, _U32.pack(len(names)) + b"".join(names))

    def _mkdir(self, number: int, fields: Fields) -> bytes:
        path, attributes = self._path(fields), fields.attributes()
        parent, name = self._parent(path)
        try:
            os.mkdir(name, (0o777 if attributes.mode is None else attributes.mode) & ~_UMASK & 0o777, dir_fd=parent)
        finally:
            os.close(parent)
        return status(number, OK)

    def _rmdir(self, number: int, fields: Fields) -> bytes:
        parent, name = self._parent(self._path(fields))
        try:
            os.rmdir(name, dir_fd=parent)
        finally:
            os.close(parent)
        return status(number, OK)

    def _realpath(self, number: int, fields: Fields) -> bytes:
        return _name_packet(number, _normal(self._path(fields)))

    def _expand_path(self, number: int, fields: Fields) -> bytes:
        path = fields.string().decode("utf-8", "surrogateescape")
        if path == "~" or path.startswith("~/"):
            path = self._home + path[1:]
        return _name_packet(number, _normal(clean(path or ".", self._working_dir)))

    def _readlink(self, number: int, fields: Fields) -> bytes:
        fd = open_path(self._root, self._path(fields), os.O_PATH | os.O_NOFOLLOW)
        try:
            if not stat.S_ISLNK(os.fstat(fd).st_mode):
                raise OSError(errno.EINVAL, "it is not a symlink")
            return _name_packet(number, os.readlink(b"", dir_fd=fd))
        finally:
            os.close(fd)

    def _symlink(self, number: int, fields: Fields) -> bytes:
        target = fields.string()  # OpenSSH sends the target first, and every client follows it
        parent, name = self._parent(self._path(fields))
        try:
            os.symlink(target, name, dir_fd=parent)
        finally:
            os.close(parent)
        return status(number, OK)

    def _hardlink(self, number: int, fields: Fields) -> bytes:
        source, name = self._parent(self._path(fields))
        try:
            target, new_name = self._parent(self._path(fields))
            try:
                os.link(name, new_name, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)
            finally:
                os.close(target)
        finally:
            os.close(source)
        return status(number, OK)

    def _extended(self, number: int, fields: Fields) -> bytes:
        name = fields.string()
        method = self._extended_methods.get(name)
        if method is None:
            return status(number, OP_UNSUPPORTED, f"the extension {name[:64].decode(errors='replace')} is not served")
        return method(number, fields)


def status(number: int, code: int, message: str = "", language: bytes = b"en") -> bytes:
    """Return a status. In the language FOR_PEOPLE people are shown its message (controller/ssh/sftp_messages.py)."""
    text = message.encode("utf-8", "replace")
    return _packet(STATUS, number, _U32.pack(code) + string(text) + string(language if text else b""))


def _packet(type_: int, number: int, body: bytes) -> bytes:
    return _HEAD.pack(len(body) + 5, type_, number) + body


def _name_packet(number: int, path: bytes) -> bytes:
    empty = _U32.pack(0)
    return _packet(NAME, number, _U32.pack(1) + string(path) + string(path) + empty)


def _normal(path: bytes) -> bytes:
    return b"/" + posixpath.normpath(path).lstrip(b"/")


def _exists(name: bytes, folder: int) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _apply(fd: int, attributes: Attributes) -> None:
    """Set the attributes of an open file or path. Raises OSError, NotAFile."""
    why = kernel_file_system(fd)
    if why:
        raise NotAFile("NotAFile", f"{why}; use exec for it")
    path = f"/proc/self/fd/{fd}"
    if attributes.size is not None:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise NotAFile("NotAFile", "it is not a regular file")
        os.truncate(path, attributes.size)
    if attributes.owner is not None:
        info = os.fstat(fd)
        if attributes.owner != (info.st_uid, info.st_gid):
            os.chown(path, *attributes.owner)
    if attributes.mode is not None:
        os.chmod(path, attributes.mode)
    if attributes.times is not None:
        os.utime(path, attributes.times)


def _long_name(name: bytes, info: os.stat_result) -> bytes:
    """Return a line as of `ls -l`, which clients show to people."""
    at = time.gmtime(_seconds(info.st_mtime))
    recent = abs(time.time() - info.st_mtime) < _HALF_YEAR_SECONDS
    date = time.strftime("%b %d %H:%M" if recent else "%b %d  %Y", at)
    mode, size = stat.filemode(info.st_mode), info.st_size
    line = f"{mode} {info.st_nlink:4d} {info.st_uid:<8d} {info.st_gid:<8d} {size:8d} {date} "
    return line.encode() + name
