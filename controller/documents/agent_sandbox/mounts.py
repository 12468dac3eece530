"""Volumes of a pod as folders in memory and volumes of each sandbox. Pure."""

from collections.abc import Sequence
from typing import Any

from controller.documents.agent_sandbox.report import Json, Subject
from controller.kinds.volume import DEFAULT_TMPFS, DEFAULT_VOLUME

_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - inside the sandbox
_SINGLE = ("ReadWriteOnce", "ReadWriteOncePod")
_ONE_FILE = "a secret of the operator is one file: write `secrets: [{name, mountPath}]` for each"
_REMEDIES = {
    "secret": _ONE_FILE,
    "projected": _ONE_FILE,
    "configMap": "build its files into the image, or copy them (`paddock cp`)",
    "hostPath": "a sandbox has no folder of the host but its `workspace: {hostPath: ...}`",
}
_WRITE = "write it as `volumes: [{name, mountPath, size}]` of Paddock"


def mounts_of(
    subject: Subject, container: Json, path: str, volumes: Sequence[Json], claims: Sequence[Json]
) -> dict[str, Any]:
    """Return the fields of a template for what the container mounts."""
    sources = {str(volume.get("name")): volume for volume in volumes}
    templates = {claim_name(subject, claim): claim for claim in claims}
    fields: dict[str, Any] = {"tmpfs": [], "volumeClaimTemplates": []}
    mounts = subject.tables(container, "volumeMounts", path)
    for number, mount in enumerate(mounts):
        name, at = str(mount.get("name")), f"{path}.volumeMounts[{number}]"
        subject.check(mount, at, ("name", "mountPath", "readOnly"), harmless={"mountPropagation": "None"})
        source = sources.get(name, {})
        if name in templates:
            fields["volumeClaimTemplates"].append(_claim(subject, mount, templates[name]))
        elif "emptyDir" in source:
            size = _empty_folder(subject, source)
            if mount.get("mountPath") == _SHARED_MEMORY:
                fields["shmSize"] = size
            else:
                fields["tmpfs"].append({"mountPath": mount.get("mountPath"), "size": size})
        else:
            kinds = [key for key in source if key != "name"]
            remedy = _REMEDIES.get(kinds[0] if kinds else "", _WRITE)
            subject.fault(f"volume {name} ({', '.join(kinds) or 'no source'})", remedy)
            continue
        if mount.get("readOnly"):
            message = "this volume would be writable; write `volumes: [{name, mountPath, readOnly: true}]` of Paddock"
            subject.fault(f"{at}.readOnly", message)
    for name in sorted({*sources, *templates} - {str(volume_mount.get("name")) for volume_mount in mounts}):
        subject.note(f"volume {name}", "left out: nothing mounts it")
    return {key: value for key, value in fields.items() if value}


def claim_name(subject: Subject, claim: Json) -> str:
    """Return the name of a claim's template."""
    return str(subject.table(claim, "metadata", "volumeClaimTemplates").get("name"))


def _empty_folder(subject: Subject, volume: Json) -> Any:
    """Return the size of an empty folder."""
    name = f"volume {volume.get('name')}"
    source, at = subject.table(volume, "emptyDir", name), f"{name}.emptyDir"
    subject.check(volume, name, ("name", "emptyDir"))
    subject.check(source, at, ("sizeLimit", "medium"))
    size = source.get("sizeLimit", DEFAULT_TMPFS)
    unsized = "" if "sizeLimit" in source else f", of {size} as it has no sizeLimit"
    subject.note(at, f"a folder in memory here{unsized}; it counts as memory, and does not outlive its container")
    return size


def _claim(subject: Subject, mount: Json, template: Json) -> dict[str, Any]:
    """Return the volume of each sandbox for a mounted claim."""
    name = mount.get("name")
    at = f"volumeClaimTemplates[{name}]"
    subject.check(template, at, ("metadata", "spec", "apiVersion", "kind", "status"))
    metadata, spec = subject.table(template, "metadata", at), subject.table(template, "spec", at)
    labels = "a volume here has none"
    created = {"creationTimestamp": None}
    subject.check(metadata, f"{at}.metadata", ("name",), {"labels": labels, "annotations": labels}, created)
    noted = {
        "storageClassName": "volumes are on the sandbox's host",
        "volumeAttributesClassName": "volumes are on the sandbox's host",
    }
    subject.check(spec, f"{at}.spec", ("resources", "accessModes"), noted, {"volumeMode": "Filesystem"})
    if shared := [mode for mode in subject.texts(spec, "accessModes", f"{at}.spec") if mode not in _SINGLE]:
        subject.note(f"{at}.spec.accessModes", f"{', '.join(shared)}: the volume is of one sandbox here")
    resources = subject.table(spec, "resources", f"{at}.spec")
    subject.check(resources, f"{at}.spec.resources", ("requests",))
    size = subject.table(resources, "requests", f"{at}.spec.resources").get("storage")
    unsized = "" if size else f"has {DEFAULT_VOLUME} as it asks for no storage, and "
    message = f"{unsized}stays when its sandbox is deleted; write `reclaimPolicy: Delete` to delete it, too"
    subject.note(at, message)
    return {"name": name, "mountPath": mount.get("mountPath"), "size": str(size or DEFAULT_VOLUME)}
