"""Bind mounts of a sandbox: admission, and the mounts that a spec asks for. Pure: paths are judged by their text.

The engine package resolves a path when it opens it, below the host root that is named here.
"""

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from controller.kinds.common.exec_paths import in_kernel_paths
from controller.kinds.runtime.mount import HostRoot, Mount, Slot
from controller.kinds.sandbox import SandboxSpec, Template, VolumeSource, WorkspaceMount
from controller.policy.container import credentials
from controller.policy.images import is_own
from controller.policy.levels.levels import FULL_ISOLATION, Level, Policy
from controller.policy.refusal import Refusal

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
    folders = (folder for folder in SYSTEM_FOLDERS if below(path, folder) or below(folder, path))
    return next(folders, "")


def below(path: str, folder: str) -> bool:
    """Return True if the path is that folder, or in it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def root_of(path: str, roots: Iterable[HostRoot]) -> HostRoot | None:
    """Return the innermost host root that the path is below. It alone decides who may use the path."""
    host_roots = [root for root in roots if below(path, root.path) and path != root.path]
    return max(host_roots, key=lambda root: len(root.path), default=None)


def is_for(root: HostRoot, namespace: str) -> bool:
    """Return True if a host root is for sandboxes of that namespace."""
    return any(_matches(namespace, pattern) for pattern in root.namespaces)


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
    folders += [Slot(volume.mount_path) for volume in template.volumes]
    folders += [Slot(claim.mount_path) for claim in template.volume_claim_templates]
    files = [Slot(secret.mount_path, file=True) for secret in template.secrets]
    files += [Slot(file.mount_path, file=True) for file in spec.files]
    files += credentials.slots(spec)
    folders += [Slot(folder.mount_path) for folder in spec.host_folders]
    return tuple(sorted((*folders, *files), key=lambda slot: slot.path))


def mounts(spec: SandboxSpec, template: Template, name: str = "") -> tuple[Mount, ...]:
    """Return the mounts for these slots. A workspace without a folder is an empty one in memory.

    `name` is the sandbox's: its own volumes are named after it.
    """
    secrets = (Mount(secret.mount_path, "secret", secret.name, read_only=True) for secret in template.secrets)
    volumes = (_volume(volume.mount_path, volume, read_only=volume.read_only) for volume in template.volumes)
    own = (*credentials.mounts(spec), *beside_template(spec))
    return (*_folder(spec, template), *volumes, *_claimed(template, name), *secrets, *own)


def beside_template(spec: SandboxSpec) -> tuple[Mount, ...]:
    """Return the folders of the host and the files that the sandbox has beside its workspace."""
    folders = (
        Mount(folder.mount_path, "host", folder.host_path, read_only=folder.read_only) for folder in spec.host_folders
    )
    return (*folders, *(Mount(file.mount_path, "text", file.text, read_only=True) for file in spec.files))


def claimed_name(claim: str, sandbox: str) -> str:
    """Return the name of a sandbox's volume of a volumeClaimTemplate, as a Kubernetes StatefulSet names them."""
    return f"{claim}-{sandbox}"


def _claimed(template: Template, sandbox: str) -> Iterator[Mount]:
    for claim in template.volume_claim_templates:
        yield Mount(
            claim.mount_path,
            "volume",
            claimed_name(claim.name, sandbox),
            size_bytes=claim.size,
            is_reclaimed=claim.reclaim_policy == "Delete",
            claimed_by=sandbox,
        )


def _volume(path: str, source: VolumeSource, *, read_only: bool) -> Mount:
    is_reclaimed = source.reclaim_policy == "Delete"
    return Mount(path, "volume", source.name, read_only=read_only, size_bytes=source.size, is_reclaimed=is_reclaimed)


def volumes(spec: SandboxSpec, template: Template, name: str) -> tuple[Mount, ...]:
    """Return the volumes that the sandbox of that name asks for, without duplicates."""
    by_source = {mount.source: mount for mount in mounts(spec, template, name) if mount.kind == "volume"}
    return tuple(by_source[name] for name in sorted(by_source))


def _folder(spec: SandboxSpec, template: Template) -> Iterator[Mount]:
    workspace, requested = _workspace(spec, template), spec.workspace
    if workspace is not None and requested is None:
        yield Mount(workspace.mount_path, "memory", size_bytes=workspace.size)
    elif workspace is not None and requested is not None and requested.volume is not None:
        yield _volume(workspace.mount_path, requested.volume, read_only=requested.read_only)
    elif workspace is not None and requested is not None:
        yield Mount(workspace.mount_path, "host", requested.host_path or "", read_only=requested.read_only)


def in_memory(spec: SandboxSpec | None, template: Template) -> int:
    """Return the memory in bytes that the mounts may fill. `spec` None: of a template by itself."""
    if spec is None:
        return template.workspace.size if template.workspace else 0
    return sum(mount.size_bytes for mount in mounts(spec, template) if mount.kind == "memory")


def _workspace(spec: SandboxSpec, template: Template) -> WorkspaceMount | None:
    return template.workspace or (_STANDARD if spec.workspace else None)


def refusals(spec: SandboxSpec, template: Template, level: Level, policy: Policy) -> Iterator[Refusal]:
    """Yield every reason to refuse the mounts of the sandbox itself."""
    mount_points = [
        (f"spec.hostFolders[{n}].mountPath", folder.mount_path) for n, folder in enumerate(spec.host_folders)
    ]
    mount_points += [(f"spec.files[{n}].mountPath", file.mount_path) for n, file in enumerate(spec.files)]
    if spec.workspace is not None and template.workspace is None:
        mount_points.append(("spec.workspace", _STANDARD.mount_path))
    if mount_points:
        templates = [("spec.template.secrets", secret.mount_path) for secret in template.secrets]
        templates += [("spec.template.volumes", volume.mount_path) for volume in template.volumes]
        claims = template.volume_claim_templates
        templates += [("spec.template.volumeClaimTemplates", claim.mount_path) for claim in claims]
        templates += [("spec.template.workspace", template.workspace.mount_path)] if template.workspace else []
        yield from _places(template, [*mount_points, *templates])
    no_source = tuple(source_refused(spec, policy))
    yield from no_source
    refused_fields = {refusal.field for refusal in no_source}
    for field, path, read_only in _host_paths(spec):
        if f"{field}.hostPath" not in refused_fields:
            yield from _writes(spec, field, path, level, policy, read_only=read_only)


def _writes(
    spec: SandboxSpec, field: str, path: str, level: Level, policy: Policy, *, read_only: bool
) -> Iterator[Refusal]:
    """Yield a refusal for a folder of the host that may not be written."""
    root = None if _is_of_another_host(spec, policy) else root_of(path, policy.host_roots)
    if not read_only and level.host_folders != "read-write":
        message = f"level {level.name} mounts host folders read-only; write `readOnly: true`, or use another level"
        yield Refusal(f"{field}.readOnly", message)
    elif not read_only and root is not None and root.read_only:
        message = f"{root.path} is read-only (setting host_roots); write `readOnly: true`"
        yield Refusal(f"{field}.readOnly", message)


def _host_paths(spec: SandboxSpec) -> Iterator[tuple[str, str, bool]]:
    """Yield (field, path, read_only) of all folders of the host."""
    if spec.workspace is not None and spec.workspace.host_path is not None:
        yield "spec.workspace", spec.workspace.host_path, spec.workspace.read_only
    for number, folder in enumerate(spec.host_folders):
        yield f"spec.hostFolders[{number}]", folder.host_path, folder.read_only


def source_refused(spec: SandboxSpec, policy: Policy) -> Iterator[Refusal]:
    """Yield the reasons to refuse the host folders of a sandbox, whatever its template."""
    if _is_of_another_host(spec, policy):
        return
    for field, path, _ in _host_paths(spec):
        if message := host_folder(path, policy.host_roots):
            yield Refusal(f"{field}.hostPath", message)


def _is_of_another_host(spec: SandboxSpec, policy: Policy) -> bool:
    """Return True if the spec names another host; a folder is of one host, so one that names none is judged here."""
    return policy.elsewhere and spec.host is not None


def template_refused(template: Template) -> Iterator[Refusal]:
    """Yield every reason to refuse the mounts of a template; the fields are those below it."""
    workspaces = [("workspace.mountPath", template.workspace.mount_path)] if template.workspace is not None else []
    files = [(f"secrets[{number}].mountPath", secret.mount_path) for number, secret in enumerate(template.secrets)]
    volumes = [(f"volumes[{number}].mountPath", volume.mount_path) for number, volume in enumerate(template.volumes)]
    claims = [
        (f"volumeClaimTemplates[{number}].mountPath", claim.mount_path)
        for number, claim in enumerate(template.volume_claim_templates)
    ]
    yield from _places(template, [*workspaces, *files, *volumes, *claims])
    sizes: dict[str, int] = {}
    for number, volume in enumerate(template.volumes):
        if sizes.setdefault(volume.name, volume.size) != volume.size:
            yield Refusal(f"volumes[{number}].size", f"the volume `{volume.name}` is requested in two sizes; keep one")
    field_by_name = {volume.name: "volumes" for volume in template.volumes}
    for number, claim in enumerate(template.volume_claim_templates):
        if claim.name in field_by_name:
            message = f"`{claim.name}` is the name of another one in `{field_by_name[claim.name]}`; rename one"
            yield Refusal(f"volumeClaimTemplates[{number}].name", message)
        field_by_name.setdefault(claim.name, "volumeClaimTemplates")


def clashes(spec: SandboxSpec, template: Template, name: str) -> Iterator[Refusal]:
    """Yield a refusal for each volume that the sandbox names and also owns by a volumeClaimTemplate."""
    claim_by_volume = {claimed_name(claim.name, name): claim.name for claim in template.volume_claim_templates}
    volume_fields = [
        (f"spec.template.volumes[{number}].name", volume.name) for number, volume in enumerate(template.volumes)
    ]
    if spec.workspace is not None and spec.workspace.volume is not None:
        volume_fields.append(("spec.workspace.volume.name", spec.workspace.volume.name))
    for field, volume in volume_fields:
        if volume in claim_by_volume:
            claim = claim_by_volume[volume]
            message = f"`{volume}` is this sandbox's own volume of volumeClaimTemplate `{claim}`; rename one"
            yield Refusal(field, message)


def shared_volumes(template: Template) -> tuple[str, ...]:
    """Return the volumes that every sandbox of this template writes to: no SandboxPool may use such a template."""
    return tuple(dict.fromkeys(volume.name for volume in template.volumes if not volume.read_only))


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
    # The spec is not validated yet: of any other form it stays as it is, and its validation says why.
    level_name = spec.get("securityLevel") or template.get("securityLevel") or FULL_ISOLATION.name
    level = policy.levels.get(level_name) if isinstance(level_name, str) else None
    image = template.get("image")
    if level is None or level.read_only_root or not isinstance(image, str) or not is_own(image):
        return spec
    # What somebody mounts at, above or below that folder is a decision about it.
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
    sandbox_mounts = mounts(spec, template, name)
    folders = (f"folder {mount.source}" for mount in sandbox_mounts if mount.kind == "host")
    lasting_volumes = (
        mount for mount in sandbox_mounts if mount.kind == "volume" and not (mount.is_reclaimed and mount.claimed_by)
    )
    return (*folders, *(f"volume {mount.source}" for mount in lasting_volumes))


def is_plain(path: str) -> bool:
    """Return True if an absolute path is normalized. POSIX lets `normpath` keep two slashes in front."""
    return posixpath.normpath(path) == path and not path.startswith("//")


def host_folder(path: str, roots: Iterable[HostRoot]) -> str:
    """Return why this folder of the host is never bound, by its path alone; "" if it may be."""
    roots = tuple(roots)
    if not is_plain(path):
        return f"`{path}` must be a normalized absolute path; use no `.`, `..`, doubled or trailing `/`"
    credential_folder = next((folder for folder in path.split("/") if folder in CREDENTIAL_FOLDERS), "")
    if credential_folder:
        return f"`{path}` contains credentials ({credential_folder}); mount only the project's folder"
    system = system_folder(path)
    if system:
        return f"`{path}` is a system folder ({system}); mount only the project's folder"
    if root_of(path, roots) is None:
        root_paths = ", ".join(root.path for root in roots)
        where = f"a folder below {root_paths}" if root_paths else "nothing, until the operator sets host_roots"
        return f"`{path}` is not below a host root; allowed here: {where}"
    return ""


def _places(template: Template, requested: list[tuple[str, str]]) -> Iterator[Refusal]:
    """Yield the reasons against mount points: each is a mount of its own, besides all others."""
    occupied = [folder.mount_path for folder in template.tmpfs]
    places: list[str] = []
    for field, path in requested:
        if not is_plain(path) or path == "/":
            yield Refusal(
                field, f"`{path}` must be a normalized absolute path; use no `.`, `..`, doubled or trailing `/`"
            )
        elif in_kernel_paths(path):
            yield Refusal(field, f"`{path}` belongs to the kernel and the engine; mount somewhere else")
        near = next((place for place in occupied if below(place, path)), "")
        near = near or next((place for place in places if below(path, place)), "")
        if near:
            yield Refusal(field, f"`{path}` and the mount {near} overlap; use separate paths")
        occupied.append(path)
        places.append(path)
