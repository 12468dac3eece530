"""Volumes, binds and tmpfs folders of a Compose service."""

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import TypeAdapter, ValidationError

from controller.documents.compose.part import Part, listed, mapping, scalar
from controller.documents.compose.values import quantity
from controller.documents.yaml_tree import Node
from controller.kinds.base import Name

DEFAULT_VOLUME, DEFAULT_TMPFS = "1Gi", "64Mi"
_NAME: TypeAdapter[str] = TypeAdapter(Name)
_SOCKETS = ("docker.sock", "containerd.sock", "podman.sock", "paddock.sock")
_NO_EFFECT = ("cached", "delegated", "consistent", "default")
_NO_SOCKET = "a sandbox never gets an engine's socket; remove it (agents use Paddock's own tools over MCP instead)"
_ONE_BIND = "a sandbox binds one folder of the host; bind their common parent, or write named volumes"
_RELATIVE = "the folder of this file is not known here; write the absolute path"
_VOLUME_KEYS = ("driver", "driver_opts", "labels", "name")


@dataclass(frozen=True, slots=True)
class Volume:
    """A named volume of the file: the name that the namespace knows it by, and its size."""

    name: Node
    size: Node


@dataclass(slots=True)
class Mounts:
    """The mounts of one service, as nodes of its spec."""

    volumes: list[Node] = field(default_factory=list)
    tmpfs: list[Node] = field(default_factory=list)
    source: Node | None = None
    workspace: Node | None = None


def is_name(text: str) -> bool:
    """Return True for a valid name of an object."""
    try:
        return bool(_NAME.validate_python(text))
    except ValidationError:
        return False


def like_name(text: str) -> str:
    """Return the valid name that is most like this text."""
    return re.sub(r"[^a-z0-9-]+", "-", text.lower()).strip("-")[:52].strip("-") or "app"


def declared(part: Part | None, project: str) -> dict[str, Volume]:
    """Return the file's volumes; problems for those that are more than a name and a size."""
    found: dict[str, Volume] = {}
    for name, each in part.fields().items() if part is not None else ():
        if not is_name(name):
            each.refuse(f"`{name}` can't be part of a volume's name; write `{like_name(name)}`", at_key=True)
        each.known(*_VOLUME_KEYS, external="volumes of others have no size here; write `name:` with the volume's name")
        driver, own = each.child("driver"), each.child("name")
        if driver is not None and driver.text() not in (None, "local"):
            driver.refuse("a volume is a file system on this host; remove it")
        options = each.child("driver_opts")
        size = options.child("size") if options is not None else None
        if options is not None:
            words = "a volume with options of its own could be any folder of the host; write `size` alone"
            options.known("size", **{key: words for key in options.fields() if key != "size"})
        amount = quantity(size) if size is not None else DEFAULT_VOLUME
        if size is None:
            each.note(f"the volume gets {DEFAULT_VOLUME}; write `driver_opts: {{size: 2g}}` for another size")
        place = size.node if size is not None else (each.key or each.node)
        shown = own.text() if own is not None else f"{project}-{name}"
        at = own.node if own is not None else (each.key or each.node)
        found[name] = Volume(scalar(shown, at), scalar(amount, place))
    return found


class MountReader:
    """Reads `volumes:` and `tmpfs:` of one service. `folder` is the file's own ("": not known)."""

    def __init__(self, volumes: Mapping[str, Volume], folder: str) -> None:
        self._volumes, self._folder = volumes, folder
        self.found = Mounts()

    def volumes(self, part: Part) -> None:
        """Read the list of volumes and binds."""
        for each in part.items():
            if each.node.fields is not None:
                self._long(each)
            elif each.text() is not None:
                self._short(each)

    def tmpfs(self, part: Part) -> None:
        """Read `tmpfs:`: one folder or several, each with options after a colon."""
        for each in part.texts():
            path, _, options = each.node.text.partition(":")
            size: str | None = DEFAULT_TMPFS
            noexec: bool | None = None
            for option in filter(None, options.split(",")):
                name, _, value = option.partition("=")
                if name == "size":
                    size = quantity(Part(scalar(value, each.node), each.report, each.path))
                elif option in ("exec", "noexec"):
                    noexec = option == "noexec"
                elif option not in ("rw", "nosuid", "nodev"):
                    each.refuse(f"option `{option}` has no effect here; write `{path}:size=64m`")
            self._tmpfs(each, path, size, noexec)

    def _tmpfs(self, part: Part, path: str, size: str | None, noexec: bool | None = None) -> None:
        fields: dict[str, Node | None] = {
            "mountPath": scalar(path, part.node),
            "size": scalar(size or DEFAULT_TMPFS, part.node),
        }
        if noexec is not None:
            fields["noexec"] = scalar(noexec, part.node)
        self.found.tmpfs.append(mapping(fields, part.node))

    def _short(self, part: Part) -> None:
        pieces = part.node.text.split(":")
        if len(pieces) == 1:
            part.refuse(f"a volume without a name would be lost; write `NAME:{pieces[0]}`, or `tmpfs: [{pieces[0]}]`")
            return
        if len(pieces) > 3:
            part.refuse("must be SOURCE:TARGET or SOURCE:TARGET:ro")
            return
        options = pieces[2].split(",") if len(pieces) == 3 else []
        unknown = [each for each in options if each not in ("ro", "rw", *_NO_EFFECT)]
        if unknown:
            part.refuse(f"option `{unknown[0]}` is not supported; only `ro` and `rw` are")
        self._mount(part, pieces[0], pieces[1], read_only="ro" in options)

    def _long(self, part: Part) -> None:
        part.known("type", "source", "target", "read_only", "tmpfs", "volume", "bind", "consistency")
        kind, source, target = part.child("type"), part.child("source"), part.child("target")
        for name, allowed in (("volume", ()), ("bind", ("create_host_path",)), ("tmpfs", ("size",))):
            if (options := part.child(name)) is not None:
                options.known(*allowed)
        read_only = part.child("read_only")
        only = read_only.flag() if read_only is not None else False
        if kind is None or kind.text() not in ("volume", "bind", "tmpfs"):
            (kind or part).refuse("`type` must be volume, bind or tmpfs")
        elif target is None or target.text() is None:
            part.refuse("needs a `target:`")
        elif kind.node.text == "tmpfs":
            options = part.child("tmpfs")
            size = options.child("size") if options is not None else None
            self._tmpfs(target, target.node.text, quantity(size) if size is not None else DEFAULT_TMPFS)
        elif source is None or source.text() is None:
            part.refuse("needs a `source:`; a volume without a name would be lost")
        else:
            self._mount(source, source.node.text, target.node.text, read_only=bool(only), as_=kind.node.text)

    def _mount(self, part: Part, source: str, target: str, *, read_only: bool, as_: str = "") -> None:
        if posixpath.basename(source) in _SOCKETS or posixpath.basename(target) in _SOCKETS:
            part.refuse(_NO_SOCKET)
        elif source.startswith("~"):
            part.refuse("`~` is another folder for each user; write the absolute path")
        elif source.startswith(("/", ".")):
            if as_ == "volume":
                part.refuse("the source of a volume is a name; write `type: bind`")
            else:
                self._bind(part, source, target, read_only=read_only)
        elif as_ == "bind":
            part.refuse("the source of a bind is a path; write it absolute")
        else:
            self._volume(part, source, target, read_only=read_only)

    def _bind(self, part: Part, source: str, target: str, *, read_only: bool) -> None:
        if self.found.source is not None:
            part.refuse(_ONE_BIND)
            return
        if not source.startswith("/"):
            if not self._folder:
                part.refuse(_RELATIVE)
                return
            source = posixpath.normpath(posixpath.join(self._folder, source))
        elif source != "/":
            source = source.rstrip("/")
        fields = {"hostPath": scalar(source, part.node), "readOnly": scalar(read_only, part.node)}
        self.found.source = mapping(fields, part.node)
        self.found.workspace = mapping({"mountPath": scalar(target, part.node)}, part.node)

    def _volume(self, part: Part, name: str, target: str, *, read_only: bool) -> None:
        volume = self._volumes.get(name)
        if volume is None:
            part.refuse(f"there is no volume `{name}` in this file; add it at the end: `volumes: {{{name}: {{}}}}`")
            return
        fields = {
            "name": volume.name,
            "mountPath": scalar(target, part.node),
            "size": volume.size,
            "readOnly": scalar(True, part.node) if read_only else None,
        }
        self.found.volumes.append(mapping(fields, part.node))


def as_list(nodes: list[Node], at: Node) -> Node | None:
    """Return a list of these nodes; None if there are none."""
    return listed(nodes, at) if nodes else None
