"""Files of the workspace; each path is resolved by the kernel so that nothing leads out of it."""

from __future__ import annotations

import base64
import binascii
import errno
import itertools
import os
import stat
import time

from . import linux
from .replies import Reply, ToolError, plain

try:
    from _sha256 import sha256  # type: ignore[import-not-found]  # hashlib would load OpenSSL: 4 MB
except ImportError:  # only Python 3.11, which the agent's image has, names it so
    from hashlib import sha256

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing and collections.abc would take half a megabyte
    from collections.abc import Generator, Iterator
    from typing import Any

    Work = Generator[None, None, Reply]  # what may take long yields now and then, for others have their turn


OUTSIDE = "path is outside the workspace"
MAX_HASHED = 256 * 1024 * 1024
MAX_ENTRIES = 5000
_MAX_ENTRIES_OF_A_FOLDER = 100_000
_MAX_DEPTH = 64

_WORDS = {
    errno.ENOENT: "no such file or folder",
    errno.EXDEV: OUTSIDE,
    errno.ELOOP: OUTSIDE,  # a magic link, or a circle of symbolic links
    errno.EACCES: "permission denied",
    errno.EPERM: "operation not permitted",
    errno.ENOTDIR: "a part of the path is not a folder",
    errno.EISDIR: "is a folder",
    errno.ENOTEMPTY: "the folder is not empty; use recursive: true",
    errno.EEXIST: "exists already",
    errno.ENXIO: "is not a regular file",
    errno.ENAMETOOLONG: "the path is too long",
    errno.ENOSPC: "no space is left on the volume",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the file system is read-only",
    errno.EFBIG: "the file is too large",
    errno.ETXTBSY: "the file is a running program",
    errno.EBUSY: "is in use, a mount point for instance",
    errno.EMFILE: "the agent has too many open files; try again",
    errno.EINVAL: "the path is not valid here",
}


def in_words(path: str, error: OSError) -> ToolError:
    reason = _WORDS.get(error.errno or 0) or os.strerror(error.errno or 0).lower()
    return ToolError(f"{path or '.'}: {reason}")


def kind_of(mode: int) -> str:
    for test, name in (
        (stat.S_ISREG, "file"),
        (stat.S_ISDIR, "folder"),
        (stat.S_ISLNK, "symlink"),
        (stat.S_ISFIFO, "fifo"),
        (stat.S_ISSOCK, "socket"),
    ):
        if test(mode):
            return name
    return "device"


class Workspace:
    """The folder below which every path lies."""

    def __init__(self, root: str) -> None:
        self.root = os.path.normpath(root)
        self._fd = -1

    def fd(self) -> int:
        """Return the root folder's descriptor; it may appear after the agent's start."""
        if self._fd < 0:
            try:
                self._fd = os.open(self.root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            except OSError as error:
                raise ToolError(
                    f"the workspace `{self.root}` can't be opened: {os.strerror(error.errno or 0)}"
                ) from None
        return self._fd

    def relative(self, path: str) -> str:
        """Return the path below the root, `.` for the root; the kernel judges `..` and links later."""
        if "\0" in path:
            raise ToolError("path: has a NUL character")
        if path.startswith("/"):
            inside = self.root.rstrip("/") + "/"
            if path.rstrip("/") != self.root.rstrip("/") and not path.startswith(inside):
                raise ToolError(f"{path}: {OUTSIDE}")
            path = path[len(inside) :]
        return path.strip("/") or "."

    def open(self, path: str, flags: int, mode: int = 0) -> int:
        try:
            return linux.openat2(self.fd(), os.fsencode(self.relative(path)), flags, mode)
        except OSError as error:
            raise in_words(path, error) from None
        except UnicodeEncodeError:
            raise ToolError("path: is not valid text") from None

    def folder(self, path: str) -> int:
        return self.open(path, os.O_RDONLY | os.O_DIRECTORY)

    def parent(self, path: str) -> tuple[int, bytes]:
        """Open the folder that holds PATH; return it with the last name."""
        relative = self.relative(path)
        folder, _, name = relative.rpartition("/")
        if name == "..":
            raise ToolError(f"{path}: {OUTSIDE}" if ".." in (relative, folder) else f"{path}: ends in `..`; name it")
        if name in ("", "."):
            raise ToolError(f"{path}: is the workspace itself")
        return self.open(folder or ".", os.O_PATH | os.O_DIRECTORY), os.fsencode(name)

    def regular(self, path: str) -> tuple[int, os.stat_result]:
        """Open a regular file for reading; a FIFO or device is refused before it is opened."""
        handle = self.open(path, os.O_PATH)
        try:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise ToolError(f"{path}: is a {kind_of(found.st_mode)}, not a regular file")
            # The descriptor is that very file: no second resolution can be led astray.
            return os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), found
        except OSError as error:
            raise in_words(path, error) from None
        finally:
            os.close(handle)

    def real(self, path: str) -> str:
        """Follow a symbolic link within the workspace; return PATH where there is none (or nothing yet)."""
        try:
            handle = linux.openat2(self.fd(), os.fsencode(self.relative(path)), os.O_PATH)
        except OSError as error:
            if error.errno == errno.ENOENT:
                return path
            raise in_words(path, error) from None
        try:
            target = os.readlink(f"/proc/self/fd/{handle}")
        finally:
            os.close(handle)
        base = os.readlink(f"/proc/self/fd/{self.fd()}").rstrip("/")
        return target[len(base) + 1 :] or "." if (target + "/").startswith(base + "/") else path


def _describe(path: str, found: os.stat_result) -> dict[str, Any]:
    return {
        "path": path,
        "type": kind_of(found.st_mode),
        "size": found.st_size,
        "mode": f"{stat.S_IMODE(found.st_mode):04o}",
        "modified": found.st_mtime_ns // 1_000_000 / 1000,
    }


def _digest(handle: int, path: str) -> Generator[None, None, str]:
    if os.fstat(handle).st_size > MAX_HASHED:
        raise ToolError(f"{path}: is larger than {MAX_HASHED >> 20} MiB; run sha256sum with exec")
    digest, at = sha256(), 0
    while data := os.pread(handle, 1 << 18, at):
        digest.update(data)
        at += len(data)
        yield
    return str(digest.hexdigest())


def read(workspace: Workspace, arguments: dict[str, Any]) -> Reply:
    path, offset, encoding = arguments["path"], arguments["offset"], arguments["encoding"]
    wanted = arguments["limit"]
    handle, found = workspace.regular(path)
    try:
        data = os.pread(handle, wanted + 1, offset)
    except OSError as error:
        raise in_words(path, error) from None
    finally:
        os.close(handle)
    more = len(data) > wanted
    data = data[:wanted]
    whole = offset == 0 and not more
    facts = _describe(workspace.relative(path), found)
    facts["sha256"] = sha256(data).hexdigest() if whole else ""

    def render(limit: int) -> tuple[dict[str, Any], str]:
        part = data[:limit]
        cut = more or len(part) < len(data)
        content, used, length = _encode(part, encoding, cut, path)
        structured = {
            **facts,
            "content": content,
            "encoding": used,
            "offset": offset,
            "truncated": cut,
            "nextOffset": offset + length,
        }
        text = (
            content
            if used == "text"
            else f"{path}: {length} bytes that are no text, in base64 in the structured content"
        )
        return structured, text

    render(wanted)  # an encoding that does not fit is refused before the answer begins
    return Reply(render)


def _encode(data: bytes, encoding: str, cut: bool, path: str) -> tuple[str, str, int]:
    """Return the content, its encoding and the bytes that it stands for."""
    if encoding != "base64":
        # A cut may go through a character: leave its first bytes for the next part.
        for spare in range(4 if cut else 1):
            part = data[: len(data) - spare]
            try:
                return part.decode("utf-8"), "text", len(part)
            except UnicodeDecodeError:
                continue
        if encoding == "text":
            raise ToolError(f"{path}: is not UTF-8 text; read it with encoding: base64")
    return base64.b64encode(data).decode("ascii"), "base64", len(data)


def decode_content(content: str, encoding: str) -> bytes:
    if encoding == "base64":
        try:
            return base64.b64decode(content, validate=True)
        except (binascii.Error, ValueError):
            raise ToolError("content: is not valid base64") from None
    try:
        return content.encode("utf-8")
    except UnicodeEncodeError:
        raise ToolError("content: has half a surrogate pair, which UTF-8 can't hold") from None


def write(workspace: Workspace, arguments: dict[str, Any]) -> Work:
    """Replace a file as a whole: who reads it sees the old content or the new, never a part."""
    path = workspace.real(arguments["path"])
    data = decode_content(arguments["content"], arguments["encoding"])
    if arguments["parents"]:
        _make_parents(workspace, path)
    folder, name = workspace.parent(path)
    try:
        old = _existing(folder, name, path)
        if "if_sha256" in arguments:
            yield from _check_unchanged(workspace, path, old, arguments["if_sha256"])
            _check_same(path, old, _existing(folder, name, path))
        mode = int(arguments["mode"], 8) if "mode" in arguments else stat.S_IMODE(old.st_mode) if old else None
        _replace(folder, name, data, mode)
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError as error:
        raise in_words(path, error) from None
    finally:
        os.close(folder)
    relative = workspace.relative(path)
    facts = {**_describe(relative, found), "sha256": sha256(data).hexdigest(), "created": old is None}
    return plain(facts, f"{relative}: {len(data)} bytes written")


def _existing(folder: int, name: bytes, path: str) -> os.stat_result | None:
    try:
        old = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(old.st_mode):
        raise ToolError(f"{path}: is a {kind_of(old.st_mode)}, not a regular file")
    return old


def _check_unchanged(
    workspace: Workspace, path: str, old: os.stat_result | None, expected: str
) -> Generator[None, None, None]:
    if not expected:
        if old is not None:
            raise ToolError(f"{path}: exists already, and if_sha256 is empty; read it and give its sha256")
        return
    if old is None:
        raise ToolError(f"{path}: no such file, and if_sha256 is given; leave it out to create the file")
    handle, _ = workspace.regular(path)
    try:
        actual = yield from _digest(handle, path)
    finally:
        os.close(handle)
    if actual != expected.lower():
        raise ToolError(f"{path}: has changed, its sha256 is {actual}; read it again")


def _check_same(path: str, before: os.stat_result | None, now: os.stat_result | None) -> None:
    """Refuse a file that was replaced or written to while it was compared."""

    def signature(found: os.stat_result | None) -> tuple[int, ...]:
        return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns) if found else ()

    if signature(before) != signature(now):
        raise ToolError(f"{path}: has changed just now; read it again")


def _replace(folder: int, name: bytes, data: bytes, mode: int | None) -> None:
    temporary = b".paddock-%d-%d" % (os.getpid(), time.monotonic_ns())
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(temporary, flags, 0o666, dir_fd=folder)
    try:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(handle, view) :]
            if mode is not None:
                os.fchmod(handle, mode)
        finally:
            os.close(handle)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        os.unlink(temporary, dir_fd=folder)
        raise


def _make_parents(workspace: Workspace, path: str) -> None:
    parts = workspace.relative(path).split("/")[:-1]
    for count in range(1, len(parts) + 1):
        if parts[count - 1] in ("", ".", ".."):
            continue
        folder, name = workspace.parent("/".join(parts[:count]))
        try:
            os.mkdir(name, 0o777, dir_fd=folder)
        except FileExistsError:
            pass
        except OSError as error:
            raise in_words(path, error) from None
        finally:
            os.close(folder)


def describe(workspace: Workspace, arguments: dict[str, Any]) -> Work:
    path = workspace.relative(arguments["path"])
    facts = facts_of(workspace, path)
    if arguments["sha256"]:
        handle, _ = workspace.regular(path)
        try:
            facts["sha256"] = yield from _digest(handle, path)
        finally:
            os.close(handle)
    return plain(facts, f"{facts['type']} {facts['mode']} {facts['size']} {path}")


def facts_of(workspace: Workspace, path: str) -> dict[str, Any]:
    if path == ".":
        return _describe(path, os.fstat(workspace.fd()))
    folder, name = workspace.parent(path)
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        facts = {**_describe(path, found), "uid": found.st_uid, "gid": found.st_gid}
        if stat.S_ISLNK(found.st_mode):
            facts["target"] = text_of(os.readlink(name, dir_fd=folder))
        return facts
    except OSError as error:
        raise in_words(path, error) from None
    finally:
        os.close(folder)


def text_of(name: bytes | str) -> str:
    """Return a name as text that JSON can carry; bytes that are no UTF-8 are shown as such."""
    raw = os.fsencode(name)
    return raw.decode("utf-8", "backslashreplace")


def listing(workspace: Workspace, arguments: dict[str, Any]) -> Reply:
    path = workspace.relative(arguments["path"])
    after, limit = arguments.get("after", ""), arguments["limit"]
    entries: list[dict[str, Any]] = []
    more = False
    for entry in walk(workspace, path, arguments["recursive"]):
        if after and entry["path"].split("/") <= after.split("/"):
            continue
        if len(entries) == limit:
            more = True
            break
        entries.append(entry)

    def render(room: int) -> tuple[dict[str, Any], str]:
        count = max(1, min(len(entries), room // 128))  # an entry takes some 120 bytes, twice
        part = entries[:count]
        cut = more or count < len(entries)
        structured: dict[str, Any] = {"path": path, "entries": part, "truncated": cut}
        if cut and part:
            structured["next"] = part[-1]["path"]
        lines = [_line(each) for each in part]
        return structured, "\n".join(lines + (["[more: call again with after]"] if cut else []))

    return Reply(render)


def _line(entry: dict[str, Any]) -> str:
    if "notListed" in entry:
        return f"{entry['path']}/ [not listed: {entry['notListed']}]"
    return str(entry["path"]) + ("/" if entry["type"] == "folder" else "")


def walk(workspace: Workspace, path: str, recursive: bool = False) -> Iterator[dict[str, Any]]:
    """Yield the entries below PATH in the order of their path's parts; links are shown and not followed.

    A folder whose entries are left out says why in `notListed`.
    """
    return _walk(workspace, _scan(workspace, path, nested=False), _MAX_DEPTH if recursive else 1, recursive)


def _walk(
    workspace: Workspace, found: list[tuple[str, dict[str, Any]]], depth: int, recursive: bool
) -> Iterator[dict[str, Any]]:
    for inner, facts in found:
        deeper: list[tuple[str, dict[str, Any]]] = []
        if recursive and facts["type"] == "folder":
            try:
                if depth == 1:
                    raise ToolError(f"{inner}: is deeper than {_MAX_DEPTH} folders; list it by its path")
                deeper = _scan(workspace, inner, nested=True)
            except ToolError as error:
                facts["notListed"] = str(error).rpartition(": ")[2]
        yield facts
        if deeper:
            yield from _walk(workspace, deeper, depth - 1, recursive)


def _scan(workspace: Workspace, path: str, nested: bool) -> list[tuple[str, dict[str, Any]]]:
    """Return the entries of one folder: the path as the kernel knows it, and what is shown."""
    handle = workspace.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW * nested)
    try:
        with os.scandir(handle) as entries:
            names = sorted(entry.name for entry in itertools.islice(entries, _MAX_ENTRIES_OF_A_FOLDER + 1))
        if len(names) > _MAX_ENTRIES_OF_A_FOLDER:
            raise ToolError(f"{path}: has more than {_MAX_ENTRIES_OF_A_FOLDER} entries; list it with exec")
        prefix = "" if path == "." else path + "/"
        found = []
        for name in names:
            try:
                status = os.stat(name, dir_fd=handle, follow_symlinks=False)
            except OSError:
                continue  # it went away meanwhile
            found.append((prefix + name, _describe(prefix + text_of(name), status)))
        return found
    finally:
        os.close(handle)


def remove(workspace: Workspace, arguments: dict[str, Any]) -> Work:
    path = workspace.relative(arguments["path"])
    folder, name = workspace.parent(path)
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if not stat.S_ISDIR(found.st_mode):
            os.unlink(name, dir_fd=folder)
            count = 1
        elif arguments["recursive"]:
            count = yield from _remove_tree(folder, name)
        else:
            os.rmdir(name, dir_fd=folder)
            count = 1
    except OSError as error:
        raise in_words(path, error) from None
    finally:
        os.close(folder)
    return plain({"path": path, "removed": count}, f"{path}: removed ({count} entries)")


def _remove_tree(folder: int, name: bytes, depth: int = 0) -> Generator[None, None, int]:
    """Remove a folder with all below it; links are removed and not followed."""
    if depth > 200:
        raise OSError(errno.ENAMETOOLONG, "")
    handle = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    count = 1
    try:
        with os.scandir(handle) as entries:
            inner = [(os.fsencode(entry.name), entry.is_dir(follow_symlinks=False)) for entry in entries]
        for each, is_folder in inner:
            if is_folder:
                count += yield from _remove_tree(handle, each, depth + 1)
            else:
                os.unlink(each, dir_fd=handle)
                count += 1
                yield
    finally:
        os.close(handle)
    os.rmdir(name, dir_fd=folder)
    return count


def move(workspace: Workspace, arguments: dict[str, Any]) -> Reply:
    source, target = workspace.relative(arguments["from"]), workspace.relative(arguments["to"])
    old_folder, old = workspace.parent(source)
    try:
        if arguments["parents"]:
            _make_parents(workspace, target)
        new_folder, new = workspace.parent(target)
        try:
            if arguments["overwrite"]:
                os.rename(old, new, src_dir_fd=old_folder, dst_dir_fd=new_folder)
            else:
                linux.rename_new(old_folder, old, new_folder, new)
        finally:
            os.close(new_folder)
    except OSError as error:
        if error.errno == errno.EXDEV:  # of rename: here it is no matter of the workspace's bounds
            raise ToolError(f"{target}: is on another volume than {source}; copy it with exec") from None
        where = target if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.EISDIR) else source
        raise in_words(where, error) from None
    finally:
        os.close(old_folder)
    return plain({"from": source, "to": target}, f"{source} -> {target}")
