"""Volumes, binds and tmpfs folders of a Compose service."""

import hashlib
import posixpath
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pydantic import TypeAdapter, ValidationError

from controller.documents.compose.element import Element, list_node, mapping_node, scalar
from controller.documents.compose.texts import as_file
from controller.documents.compose.values import quantity
from controller.documents.yaml_tree import Node
from controller.kinds.base import Name
from controller.kinds.common.exec_paths import mount_place, normal_path
from controller.kinds.volume import DEFAULT_TMPFS, DEFAULT_VOLUME

_LONGEST = 52  # letters of a name
_DIGITS = 8
_NAME: TypeAdapter[str] = TypeAdapter(Name)
_SOCKETS = ("docker.sock", "containerd.sock", "podman.sock", "paddock.sock")
_NO_EFFECT = ("cached", "delegated", "consistent", "default")
_NO_SOCKET = "a sandbox never gets an engine's socket; remove it (agents use Paddock's own tools over MCP instead)"
CLOCKS = ("/etc/localtime", "/etc/timezone")
TEMPORARY = ("/run", "/tmp", "/var/tmp")  # noqa: S108 - in the sandbox
_RELATIVE = "the folder of this file is not known here; write the absolute path"
_VOLUME_KEYS = ("driver", "driver_opts", "labels", "name")


@dataclass(frozen=True, slots=True)
class Volume:
    """A named volume of the file: the name that the namespace knows it by, and its size.

    `is_named`: the file gives that name itself, so other projects may use the volume, too.
    """

    name: Node
    size: Node
    is_named: bool = False


@dataclass(slots=True)
class Mounts:
    """The mounts of one service, as nodes of its spec."""

    volumes: list[Node] = field(default_factory=list)
    tmpfs: list[Node] = field(default_factory=list)
    source: Node | None = None
    workspace: Node | None = None
    folders: list[Node] = field(default_factory=list)
    files: list[Node] = field(default_factory=list)
    bind_targets: list[str] = field(default_factory=list)


def is_name(text: str) -> bool:
    """Return True for a valid name of an object."""
    try:
        return bool(_NAME.validate_python(text))
    except ValidationError:
        return False


def like_name(text: str) -> str:
    """Return the valid name that is most like this text."""
    return re.sub(r"[^a-z0-9-]+", "-", text.lower()).strip("-")[:_LONGEST].strip("-") or "app"


def nameless_volume(prefix: str, target: str) -> str:
    """Return the name of a volume that the file mounts there without naming one."""
    return like_name(f"{prefix}-{target}")


def image_volume(prefix: str, target: str, other_names: Collection[str] = ()) -> str:
    """Return the name of a volume that covers a VOLUME: that of a nameless one.

    It has a hash where it would be cut, differs from the folder's by more than `/`, or is among `other_names`.
    """
    name = nameless_volume(prefix, target)
    if name == f"{like_name(prefix)}-{target.replace('/', '-')}" and name not in other_names:
        return name
    digest = hashlib.sha256(f"{prefix}-{target}".encode()).hexdigest()[:_DIGITS]
    return f"{name[: _LONGEST - _DIGITS - 1].strip('-')}-{digest}"


def is_nameless(name: str, prefix: str, target: str) -> bool:
    """Return True for the name of a volume that is named by its place, for whatever reason it is there."""
    plain = nameless_volume(prefix, target)
    return name in (plain, image_volume(prefix, target), image_volume(prefix, target, (plain,)))


@dataclass(frozen=True, slots=True)
class Cover:
    """A VOLUME of an image where nothing is mounted, and the obstacle to a mount there ("": none)."""

    path: str
    """Folder, as the image names it."""
    in_memory: bool
    """A folder of temporary files."""
    obstacle: str
    """Reason why it can't be mounted, with a remedy that says where to mount."""


def covers(paths: Sequence[str], in_memory: Collection[str], targets: Collection[str]) -> Iterator[Cover]:
    """Yield the VOLUMEs that none of the `targets` covers; those `in_memory` may have other mounts in them."""
    memory_places, places = set(map(mount_place, in_memory)), list(map(mount_place, targets))
    image_places = set(map(mount_place, paths))
    for path in sorted(set(map(normal_path, paths))):
        place = mount_place(path)
        if place in places:
            continue
        is_temporary = place in TEMPORARY
        inner = next((target for target in places if target.startswith(f"{place}/")), "")
        outer = next(
            (target for target in places if place.startswith(f"{target}/") and target not in memory_places), ""
        )
        obstacle = ""
        if path == "/":
            obstacle = "the image keeps data in / (VOLUME), which can't be a volume; build it without"
        elif is_temporary:
            memory_places.add(place)
        elif inner:
            obstacle = (
                f"the image keeps data in {path} (VOLUME), and a volume there can't have {inner} in it; have it in"
                f" memory (`tmpfs: ['{path}:size=256m']`), or mount {path} alone"
            )
        elif outer:
            remedy = f"mount {path} instead"
            if outer in image_places:  # a mount at the inner one alone would be refused for the outer one
                remedy = f"have {outer} in memory (`tmpfs: ['{outer}:size=256m']`)"
            obstacle = f"the image keeps data in {path} (VOLUME), in the mount {outer}; {remedy}"
        yield Cover(path, is_temporary, obstacle)
        places.append(place)


def read_volumes(element: Element | None, project: str) -> dict[str, Volume]:
    """Return the file's volumes; problems for those that are more than a name and a size."""
    volumes: dict[str, Volume] = {}
    for name, volume in element.fields().items() if element is not None else ():
        volume.check_keys(
            *_VOLUME_KEYS, external="volumes of others have no size here; write `name:` with the volume's name"
        )
        driver, name_element = volume.child("driver"), volume.child("name")
        if driver is not None and driver.text() not in (None, "local"):
            driver.refuse("a volume is a file system on this host; remove it")
        options = volume.child("driver_opts")
        size = options.child("size") if options is not None else None
        if options is not None:
            remedy = "a volume with options of its own could be any folder of the host; write `size` alone"
            options.check_keys("size", **{key: remedy for key in options.fields() if key != "size"})
        amount = quantity(size) if size is not None else DEFAULT_VOLUME
        if size is None:
            volume.note(f"the volume gets {DEFAULT_VOLUME}; write `driver_opts: {{size: 2g}}` for another size")
        place = size.node if size is not None else (volume.key or volume.node)
        volume_name = like_name((name_element.text() if name_element is not None else None) or f"{project}-{name}")
        if any(volume_name == other.name.value for other in volumes.values()):
            volume.refuse(f"another volume is named `{volume_name}` here, too; rename one of them", at_key=True)
        at = name_element.node if name_element is not None else (volume.key or volume.node)
        volumes[name] = Volume(scalar(volume_name, at), scalar(amount, place), name_element is not None)
    return volumes


class MountReader:
    """Reads `volumes:` and `tmpfs:` of one service. `folder` is the file's own ("": not known).

    `files` are the texts of files beside it, by their paths as written. A volume without a name gets `prefix` in front.
    """

    def __init__(self, volumes: Mapping[str, Volume], folder: str, files: Mapping[str, str], prefix: str) -> None:
        self._volumes, self._folder, self._files, self._prefix = volumes, folder, files, prefix
        self.mounts = Mounts()

    def volumes(self, element: Element) -> None:
        """Read the list of volumes and binds."""
        for mount in element.items():
            if mount.node.fields is not None:
                self._long(mount)
            elif mount.text() is not None:
                self._short(mount)

    def tmpfs(self, element: Element) -> None:
        """Read `tmpfs:`: one folder or several, each with options after a colon."""
        for mount in element.texts():
            path, _, options = mount.node.text.partition(":")
            size: str | None = DEFAULT_TMPFS
            noexec: bool | None = None
            for option in filter(None, options.split(",")):
                name, _, value = option.partition("=")
                if name == "size":
                    size = quantity(Element(scalar(value, mount.node), mount.report, mount.path))
                elif option in ("exec", "noexec"):
                    noexec = option == "noexec"
                elif option not in ("rw", "nosuid", "nodev") and name not in ("mode", "uid", "gid"):
                    mount.refuse(f"option `{option}` has no effect here; write `{path}:size=64m`")
            self._tmpfs(mount, mount_place(path) if path.startswith("/var/run") else path, size, noexec)

    def _tmpfs(self, element: Element, path: str, size: str | None, noexec: bool | None = None) -> None:
        fields: dict[str, Node | None] = {
            "mountPath": scalar(path, element.node),
            "size": scalar(size or DEFAULT_TMPFS, element.node),
        }
        if noexec is not None:
            fields["noexec"] = scalar(noexec, element.node)
        self.mounts.tmpfs.append(mapping_node(fields, element.node))

    def _short(self, element: Element) -> None:
        pieces = element.node.text.split(":")
        if len(pieces) == 1:
            self._anonymous(element, pieces[0])
            return
        if len(pieces) > 3:
            element.refuse("must be SOURCE:TARGET or SOURCE:TARGET:ro")
            return
        options = pieces[2].split(",") if len(pieces) == 3 else []
        unknown = [option for option in options if option not in ("ro", "rw", "z", "Z", "nocopy", *_NO_EFFECT)]
        if unknown:
            element.refuse(f"option `{unknown[0]}` is not supported; only `ro` and `rw` are")
        self._mount(element, pieces[0], pieces[1], read_only="ro" in options)

    def _long(self, element: Element) -> None:
        element.check_keys("type", "source", "target", "read_only", "tmpfs", "volume", "bind", "consistency")
        kind, source, target = element.child("type"), element.child("source"), element.child("target")
        for name, keys in (("volume", ("nocopy",)), ("bind", ("create_host_path", "selinux")), ("tmpfs", ("size",))):
            if (options := element.child(name)) is not None:
                options.check_keys(*keys)
        read_only = element.child("read_only")
        only = read_only.flag() if read_only is not None else False
        if kind is None or kind.text() not in ("volume", "bind", "tmpfs"):
            (kind or element).refuse("`type` must be volume, bind or tmpfs")
        elif target is None or target.text() is None:
            element.refuse("needs a `target:`")
        elif kind.node.text == "tmpfs":
            options = element.child("tmpfs")
            size = options.child("size") if options is not None else None
            text = target.node.text
            path = mount_place(text) if text.startswith("/var/run") else text
            self._tmpfs(target, path, quantity(size) if size is not None else DEFAULT_TMPFS)
        elif kind.node.text == "volume" and source is None:
            self._anonymous(element, target.node.text)
        elif source is None or source.text() is None:
            element.refuse("needs a `source:`")
        else:
            self._mount(source, source.node.text, target.node.text, read_only=bool(only), as_=kind.node.text)

    def _mount(self, element: Element, source: str, target: str, *, read_only: bool, as_: str = "") -> None:
        if posixpath.basename(source) in _SOCKETS or posixpath.basename(target) in _SOCKETS:
            element.refuse(_NO_SOCKET)
        elif source.startswith("~"):
            element.refuse("`~` is another folder for each user; write the absolute path")
        elif source.startswith(("/", ".")):
            if as_ == "volume":
                element.refuse("the source of a volume is a name; write `type: bind`")
            else:
                self._bind(element, source, target, read_only=read_only)
        elif as_ == "bind":
            element.refuse("the source of a bind is a path; write it absolute")
        else:
            self._volume(element, source, target, read_only=read_only)

    def _anonymous(self, element: Element, target: str) -> None:
        """Read a volume without a name. Below a bind it would show the image's own files, which no volume has here."""
        parent = next((path for path in self.mounts.bind_targets if target.startswith(f"{path}/")), "")
        if parent:
            element.refuse(
                f"the image's files at {target} can't be shown in the folder of the host at {parent}; leave out both,"
                " or build the image with the folder's files (`build:`)"
            )
            return
        self._nameless(element, nameless_volume(self._prefix, target), target)

    def _nameless(self, element: Element, name: str, target: str) -> None:
        self.mounts.volumes.append(
            mapping_node(
                {
                    "name": scalar(name, element.node),
                    "mountPath": scalar(target, element.node),
                    "size": scalar(DEFAULT_VOLUME, element.node),
                },
                element.node,
            )
        )

    def cover(self, image: Element, paths: Sequence[str], files: Sequence[Node]) -> None:
        """Mount a volume at each VOLUME of an image, where no other mount is; `files` are mounts, too.

        The engine would make it writable without a limit. Folders of temporary files are in memory.
        """
        mounts = self.mounts
        for mounts_of_type in (mounts.tmpfs, mounts.volumes, mounts.folders):
            mounts_of_type[:] = [_respelled(mount, paths) for mount in mounts_of_type]
        if mounts.workspace is not None:
            mounts.workspace = _respelled(mounts.workspace, paths)
        workspaces = [mounts.workspace] if mounts.workspace is not None else []
        in_memory = _targets(mounts.tmpfs)
        targets = [*in_memory, *_targets([*mounts.volumes, *mounts.folders, *workspaces, *files])]
        names = {str(volume.fields["name"][1].value) for volume in mounts.volumes if volume.fields}
        covered: list[str] = []
        for cover in covers(paths, in_memory, targets):
            if cover.obstacle:
                image.refuse(cover.obstacle)
            elif cover.in_memory:
                self._tmpfs(image, cover.path, None)
            else:
                name = image_volume(self._prefix, cover.path, names)
                self._nameless(image, name, cover.path)
                names.add(name)
                covered.append(cover.path)
        if covered:
            image.note(
                f"the image keeps data in {', '.join(covered)}: a volume of {DEFAULT_VOLUME} there, which stays until"
                f" `paddock compose down -v`; write `volumes: [data:{covered[0]}]` for one with a name and a size"
            )

    def _bind(self, element: Element, source: str, target: str, *, read_only: bool) -> None:
        if source in CLOCKS:
            element.note("changes nothing: a sandbox has UTC; set `TZ` in `environment:`")
            return
        if source in self._files:
            self.mounts.files.append(as_file(target, self._files[source], element.node))
            element.note("the sandbox gets a copy of the file, read-only; apply again after a change")
            return
        self.mounts.bind_targets.append(target)
        if not source.startswith("/"):
            if not self._folder:
                element.refuse(_RELATIVE)
                return
            source = posixpath.normpath(posixpath.join(self._folder, source))
        elif source != "/":
            source = source.rstrip("/")
        path, is_read_only = scalar(source, element.node), scalar(read_only, element.node)
        mount_path = scalar(target, element.node)
        if self.mounts.source is None:
            self.mounts.source = mapping_node({"hostPath": path, "readOnly": is_read_only}, element.node)
            self.mounts.workspace = mapping_node({"mountPath": mount_path}, element.node)
        else:
            fields = {"hostPath": path, "mountPath": mount_path, "readOnly": is_read_only}
            self.mounts.folders.append(mapping_node(fields, element.node))

    def _volume(self, element: Element, name: str, target: str, *, read_only: bool) -> None:
        volume = self._volumes.get(name)
        if volume is None:
            element.refuse(f"there is no volume `{name}` in this file; add it at the end: `volumes: {{{name}: {{}}}}`")
            return
        fields = {
            "name": volume.name,
            "mountPath": scalar(target, element.node),
            "size": volume.size,
            "readOnly": scalar(True, element.node) if read_only else None,
        }
        self.mounts.volumes.append(mapping_node(fields, element.node))


def _targets(mounts: Sequence[Node]) -> list[str]:
    return [str(mount.fields["mountPath"][1].value) for mount in mounts if mount.fields]


def _respelled(mount: Node, paths: Sequence[str]) -> Node:
    """Return the mount at the path that the image's VOLUME names for its place: the engine knows no other."""
    fields = mount.fields or {}
    key, target = fields["mountPath"]
    text = str(target.value)
    path = next((path for path in map(normal_path, paths) if mount_place(path) == mount_place(text)), text)
    if path == normal_path(text):
        return mount
    return replace(mount, fields={**fields, "mountPath": (key, scalar(path, target))})


def as_list(nodes: list[Node], at: Node) -> Node | None:
    """Return a list of these nodes; None if there are none."""
    return list_node(nodes, at) if nodes else None
