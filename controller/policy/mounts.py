"""Bind mounts of a sandbox: admission, and the mounts that a spec asks for. Pure: paths are judged by their text.

The engine package resolves a path when it opens it, below the host root that is named here.
"""

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from controller.kinds.common.exec_paths import in_kernel_paths
from controller.kinds.runtime.mount import HostRoot, Mount, Slot
from controller.kinds.sandbox import SandboxSpec, Template, VolumeSource, WorkspaceMount
from controller.policy import credentials
from controller.policy.admission import Refusal
from controller.policy.images import is_own
from controller.policy.levels.levels import FULL_ISOLATION, Level, Policy

# Folders of keys and tokens. Neither they nor a parent of one may be mounted into a sandbox.
CREDENTIAL_FOLDERS = (".aws", ".azure", ".docker", ".gnupg", ".kube", ".password-store", ".ssh")
# System folders of the host. Neither they, nor their contents, nor their parents may be mounted.
SYSTEM_FOLDERS = (
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/lib64",
    "/proc",
    "/root",
    "/run",
    "/sbin",
    "/sys",
    "/usr",
    "/var/lib/containerd",
    "/var/lib/docker",
    "/var/lib/paddock",
    "/var/run",
)
_STANDARD = WorkspaceMount()
_WORKSPACE = "workspace"
_MOUNTED = ("tmpfs", "volumes", "volumeClaimTemplates", "secrets")


def system_folder(path: str) -> str:
    """Return the system folder that this path is, is in, or contains; "" for none."""
    found = (each for each in SYSTEM_FOLDERS if below(path, each) or below(each, path))
    return next(found, "")


def below(path: str, folder: str) -> bool:
    """Return True if the path is that folder, or in it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def root_of(path: str, roots: Iterable[HostRoot]) -> HostRoot | None:
    """Return the innermost host root that the path is below. It alone decides who may use the path."""
    found = [each for each in roots if below(path, each.path) and path != each.path]
    return max(found, key=lambda each: len(each.path), default=None)


def is_for(root: HostRoot, namespace: str) -> bool:
    """Return True if a host root is for sandboxes of that namespace."""
    return any(_matches(namespace, each) for each in root.namespaces)


def _matches(text: str, pattern: str) -> bool:
    """Match a pattern in which `*` stands for any characters. A namespace has no other special character."""
    head, star, tail = pattern.partition("*")
    if not star:
        return text == pattern
    return text.startswith(head) and any(_matches(text[at:], tail) for at in range(len(head), len(text) + 1))


def slots(spec: SandboxSpec, template: Template) -> tuple[Slot, ...]:
    """Return the container's slots for bind mounts, by path."""
    workspace = _workspace(spec, template)
    folders = [Slot(workspace.mount_path)] if workspace else []
    folders += [Slot(each.mount_path) for each in template.volumes]
    folders += [Slot(each.mount_path) for each in template.volume_claim_templates]
    files = [Slot(each.mount_path, file=True) for each in template.secrets]
    files += credentials.slots(spec)
    return tuple(sorted((*folders, *files), key=lambda each: each.path))


def mounts(spec: SandboxSpec, template: Template, name: str = "") -> tuple[Mount, ...]:
    """Return the mounts for these slots. A workspace without a folder is an empty one in memory.

    `name` is the sandbox's: its own volumes are named after it.
    """
    secrets = (Mount(each.mount_path, "secret", each.name, read_only=True) for each in template.secrets)
    volumes = (_volume(each.mount_path, each, read_only=each.read_only) for each in template.volumes)
    return (*_folder(spec, template), *volumes, *_claimed(template, name), *secrets, *credentials.mounts(spec))


def claimed_name(claim: str, sandbox: str) -> str:
    """Return the name of a sandbox's volume of a volumeClaimTemplate, as a Kubernetes StatefulSet names them."""
    return f"{claim}-{sandbox}"


def _claimed(template: Template, sandbox: str) -> Iterator[Mount]:
    for each in template.volume_claim_templates:
        yield Mount(
            each.mount_path,
            "volume",
            claimed_name(each.name, sandbox),
            size_bytes=each.size,
            passing=each.reclaim_policy == "Delete",
            claimed_by=sandbox,
        )


def _volume(path: str, asked: VolumeSource, *, read_only: bool) -> Mount:
    passing = asked.reclaim_policy == "Delete"
    return Mount(path, "volume", asked.name, read_only=read_only, size_bytes=asked.size, passing=passing)


def volumes(spec: SandboxSpec, template: Template, name: str) -> tuple[Mount, ...]:
    """Return the volumes that the sandbox of that name asks for, without duplicates."""
    found = {each.source: each for each in mounts(spec, template, name) if each.kind == "volume"}
    return tuple(found[name] for name in sorted(found))


def _folder(spec: SandboxSpec, template: Template) -> Iterator[Mount]:
    workspace, asked = _workspace(spec, template), spec.workspace
    if workspace is not None and asked is None:
        yield Mount(workspace.mount_path, "memory", size_bytes=workspace.size)
    elif workspace is not None and asked is not None and asked.volume is not None:
        yield _volume(workspace.mount_path, asked.volume, read_only=asked.read_only)
    elif workspace is not None and asked is not None:
        yield Mount(workspace.mount_path, "host", asked.host_path or "", read_only=asked.read_only)


def in_memory(spec: SandboxSpec | None, template: Template) -> int:
    """Return the memory in bytes that the mounts may fill. `spec` None: of a template by itself."""
    if spec is None:
        return template.workspace.size if template.workspace else 0
    return sum(each.size_bytes for each in mounts(spec, template) if each.kind == "memory")


def _workspace(spec: SandboxSpec, template: Template) -> WorkspaceMount | None:
    return template.workspace or (_STANDARD if spec.workspace else None)


def refused(spec: SandboxSpec, template: Template, level: Level, policy: Policy) -> Iterator[Refusal]:
    """Yield every reason to refuse the mounts of the sandbox itself."""
    asked = spec.workspace
    if asked is None:
        return
    if template.workspace is None:
        others = [("spec.template.secrets", each.mount_path) for each in template.secrets]
        others += [("spec.template.volumes", each.mount_path) for each in template.volumes]
        own = template.volume_claim_templates
        others += [("spec.template.volumeClaimTemplates", each.mount_path) for each in own]
        yield from _places(template, [("spec.workspace", _STANDARD.mount_path), *others])
    if asked.host_path is None:
        return
    no_source = tuple(source_refused(spec, policy))
    if no_source:
        yield from no_source
        return
    root = None if _is_of_another_host(spec, policy) else root_of(asked.host_path, policy.host_roots)
    if not asked.read_only and level.host_folders != "read-write":
        words = f"level {level.name} mounts host folders read-only; write `readOnly: true`, or use another level"
        yield Refusal("spec.workspace.readOnly", words)
    elif not asked.read_only and root is not None and root.read_only:
        words = f"{root.path} is read-only (setting host_roots); write `readOnly: true`"
        yield Refusal("spec.workspace.readOnly", words)


def source_refused(spec: SandboxSpec, policy: Policy) -> Iterator[Refusal]:
    """Yield the reason to refuse the host folder of a sandbox, whatever its template."""
    asked = spec.workspace
    if asked is None or not asked.host_path or _is_of_another_host(spec, policy):
        return
    if words := host_folder(asked.host_path, policy.host_roots):
        yield Refusal("spec.workspace.hostPath", words)


def _is_of_another_host(spec: SandboxSpec, policy: Policy) -> bool:
    """Return True if the spec names another host; a folder is of one host, so one that names none is judged here."""
    return policy.elsewhere and spec.host is not None


def template_refused(template: Template) -> Iterator[Refusal]:
    """Yield every reason to refuse the mounts of a template; the fields are those below it."""
    asked = [("workspace.mountPath", template.workspace.mount_path)] if template.workspace is not None else []
    files = [(f"secrets[{number}].mountPath", each.mount_path) for number, each in enumerate(template.secrets)]
    volumes = [(f"volumes[{number}].mountPath", each.mount_path) for number, each in enumerate(template.volumes)]
    claims = [
        (f"volumeClaimTemplates[{number}].mountPath", each.mount_path)
        for number, each in enumerate(template.volume_claim_templates)
    ]
    yield from _places(template, [*asked, *files, *volumes, *claims])
    sizes: dict[str, int] = {}
    for number, each in enumerate(template.volumes):
        if sizes.setdefault(each.name, each.size) != each.size:
            yield Refusal(f"volumes[{number}].size", f"the volume `{each.name}` is requested in two sizes; keep one")
    taken = {each.name: "volumes" for each in template.volumes}
    for number, claim in enumerate(template.volume_claim_templates):
        if claim.name in taken:
            words = f"`{claim.name}` is the name of another one in `{taken[claim.name]}`; rename one"
            yield Refusal(f"volumeClaimTemplates[{number}].name", words)
        taken.setdefault(claim.name, "volumeClaimTemplates")


def clashes(spec: SandboxSpec, template: Template, name: str) -> Iterator[Refusal]:
    """Yield a refusal for each volume that the sandbox names and also owns by a volumeClaimTemplate."""
    own = {claimed_name(each.name, name): each.name for each in template.volume_claim_templates}
    named = [(f"spec.template.volumes[{number}].name", each.name) for number, each in enumerate(template.volumes)]
    if spec.workspace is not None and spec.workspace.volume is not None:
        named.append(("spec.workspace.volume.name", spec.workspace.volume.name))
    for field, volume in named:
        if volume in own:
            words = f"`{volume}` is this sandbox's own volume of volumeClaimTemplate `{own[volume]}`; rename one"
            yield Refusal(field, words)


def shared(template: Template) -> tuple[str, ...]:
    """Return the volumes that every sandbox of this template writes to: no SandboxPool may use such a template."""
    return tuple(dict.fromkeys(each.name for each in template.volumes if not each.read_only))


def with_workspace_volume(kind: str, spec: Mapping[str, Any], policy: Policy, size_bytes: int) -> Mapping[str, Any]:
    """Return the spec of a new Sandbox or SandboxTemplate, with a volume for its workspace if it has nothing there.

    It is for levels with a writable root, where the workspace is lost with the container, and for Paddock's own images:
    what another image has in that folder would be hidden.
    """
    if not size_bytes or kind not in ("Sandbox", "SandboxTemplate"):
        return spec
    template = spec.get("template") if kind == "Sandbox" else spec
    if not isinstance(template, Mapping) or spec.get("workspace") or template.get("workspace") is not None:
        return spec
    level_name = spec.get("securityLevel") or template.get("securityLevel") or FULL_ISOLATION.name
    level = policy.levels.get(level_name) if isinstance(level_name, str) else None
    image = template.get("image")
    if level is None or level.read_only_root or not isinstance(image, str) or not is_own(image):
        return spec
    if any(_is_near(mount) for place in _MOUNTED for mount in template.get(place) or ()):
        return spec
    claims = template.get("volumeClaimTemplates") or []
    volume = {"name": _WORKSPACE, "mountPath": _STANDARD.mount_path, "size": size_bytes, "reclaimPolicy": "Delete"}
    completed = {**template, "volumeClaimTemplates": [*claims, volume]}
    return {**spec, "template": completed} if kind == "Sandbox" else completed


def _is_near(mount: Any) -> bool:
    """Return True if a mount is at the workspace, below or above it, or has the name of its volume."""
    if not isinstance(mount, Mapping):
        return True  # the schema refuses it
    path = str(mount.get("mountPath", ""))
    return below(path, _STANDARD.mount_path) or below(_STANDARD.mount_path, path) or mount.get("name") == _WORKSPACE


def of_one_host(spec: SandboxSpec, template: Template, name: str) -> tuple[str, ...]:
    """Return what the sandbox mounts that is on one host, and may be there already: folders, volumes that stay."""
    found = mounts(spec, template, name)
    folders = (f"folder {each.source}" for each in found if each.kind == "host")
    kept = (each for each in found if each.kind == "volume" and not (each.passing and each.claimed_by))
    return (*folders, *(f"volume {each.source}" for each in kept))


def is_plain(path: str) -> bool:
    """Return True if an absolute path is normalized. POSIX lets `normpath` keep two slashes in front."""
    return posixpath.normpath(path) == path and not path.startswith("//")


def host_folder(path: str, roots: Iterable[HostRoot]) -> str:
    """Return why this folder of the host is never bound, by its path alone; "" if it may be."""
    roots = tuple(roots)
    if not is_plain(path):
        return f"`{path}` must be a normalized absolute path; use no `.`, `..`, doubled or trailing `/`"
    found = next((each for each in path.split("/") if each in CREDENTIAL_FOLDERS), "")
    if found:
        return f"`{path}` contains credentials ({found}); mount only the project's folder"
    system = system_folder(path)
    if system:
        return f"`{path}` is a system folder ({system}); mount only the project's folder"
    if root_of(path, roots) is None:
        known = ", ".join(each.path for each in roots)
        where = f"a folder below {known}" if known else "nothing, until the operator sets host_roots"
        return f"`{path}` is not below a host root; allowed here: {where}"
    return ""


def _places(template: Template, asked: list[tuple[str, str]]) -> Iterator[Refusal]:
    """Yield the reasons against mount points: each is a mount of its own, besides all others."""
    taken = [each.mount_path for each in template.tmpfs]
    places: list[str] = []
    for field, path in asked:
        if not is_plain(path) or path == "/":
            yield Refusal(
                field, f"`{path}` must be a normalized absolute path; use no `.`, `..`, doubled or trailing `/`"
            )
        elif in_kernel_paths(path):
            yield Refusal(field, f"`{path}` belongs to the kernel and the engine; mount somewhere else")
        near = next((each for each in taken if below(each, path)), "")
        near = near or next((each for each in places if below(path, each)), "")
        if near:
            yield Refusal(field, f"`{path}` and the mount {near} overlap; use separate paths")
        taken.append(path)
        places.append(path)
