"""E2B's templates as they are here: a SandboxTemplate or pool of the namespace, or an image."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from controller.e2b.metadata import TEMPLATE as TEMPLATE_NAME
from controller.e2b.parts import Parts
from controller.kinds.access.access import AccessRequest
from controller.kinds.sandboxpool import KIND as POOL
from controller.kinds.sandboxsnapshot import KIND as SNAPSHOT
from controller.kinds.sandboxtemplate import KIND as TEMPLATE
from controller.policy.levels.levels import FULL_ISOLATION as STRICTEST
from controller.service.access import access
from controller.service.errors import NotFound

HOME = "/home/user"
_STRICTEST = STRICTEST.name
_HOME_SIZE = "256Mi"
_TMP = {"mountPath": "/tmp", "size": "64Mi"}  # noqa: S108 - in the sandbox
_SHOWN = 20
SPEC = "paddock.e2b/spec"  # of a snapshot: what a sandbox of it begins with


@dataclass(frozen=True, slots=True)
class Chosen:
    """The part of a Sandbox's spec that a template stands for, its security level, and its name."""

    spec: Mapping[str, Any]
    level: str
    name: str


def chosen(parts: Parts, namespace: str, template: str) -> Chosen:
    """Return the spec for a template's name: of the namespace, else of the setting e2b_templates, else an image's.

    Raises NotFound.
    """
    objects = parts.services.objects
    for kind in (TEMPLATE, POOL):
        if not is_name(template) or not access.may(AccessRequest("get", kind.name, namespace, template)):
            continue
        try:
            obj = objects.get(kind, namespace, template)
        except NotFound:
            continue
        if kind is TEMPLATE:
            level = str(obj.spec.get("securityLevel") or _STRICTEST)
            return Chosen({"templateRef": {"name": template}}, level, template)
        name = str(obj.spec["templateRef"]["name"])
        stored = objects.get(TEMPLATE, namespace, name)
        level = str(stored.spec.get("securityLevel") or _STRICTEST)
        return Chosen({"templateRef": {"name": name}, "poolPolicy": "Prefer"}, level, template)
    if (restored := _of_snapshot(parts, namespace, template)) is not None:
        return restored
    image = image_of(parts.rules.templates.get(template, ""), parts.services.images.has)
    image = image or (template if set(template) & set(":/") else "")
    if image:
        return Chosen({"template": of_image(image)}, _STRICTEST, template)
    names = sorted({*parts.rules.templates, *(obj.name for obj in objects.list(TEMPLATE, namespace).objects)})
    raise NotFound(
        f"template `{template[:100]}` not found; there are {', '.join(names[:_SHOWN]) or 'none'}: name one of them, an"
        f" image with its tag, or apply a SandboxTemplate of this name in the namespace `{namespace}`"
    )


def image_of(setting: str, is_here: Callable[[str], bool]) -> str:
    """Return the first image of the setting that is on this host, else the last one."""
    *preferred, last = (image.strip() for image in setting.split("|"))
    return next((image for image in preferred if is_here(image)), last)


def _of_snapshot(parts: Parts, namespace: str, name: str) -> Chosen | None:
    """Return the spec of a sandbox that begins from a snapshot of this name; None: there is none."""
    if not is_name(name) or not access.may(AccessRequest("get", SNAPSHOT.name, namespace, name)):
        return None
    try:
        obj = parts.services.objects.get(SNAPSHOT, namespace, name)
        copied = json.loads(obj.annotations.get(SPEC) or "null")
    except (NotFound, ValueError):
        return None
    if not isinstance(copied, dict):
        return None
    spec = {**copied, "restoreFrom": {"snapshotRef": {"name": name}}}
    if "templateRef" in copied:
        spec["poolPolicy"] = "Never"
    return Chosen(spec, level_of(parts, namespace, copied), obj.annotations.get(TEMPLATE_NAME) or name)


def is_name(text: str) -> bool:
    """Return True if an object may have this name."""
    plain = text.replace("-", "")
    return 0 < len(text) <= 52 and plain.isascii() and plain.isalnum() and text == text.lower()


def of_image(image: str) -> Mapping[str, Any]:
    """Return the container of an image as E2B's programs expect it: a writable home, where commands run."""
    return {
        "image": image,
        "agent": {"root": HOME},
        "workspace": {"mountPath": HOME, "size": _HOME_SIZE},
        "workingDir": HOME,
        "env": [{"name": "HOME", "value": HOME}, {"name": "USER", "value": "user"}],
    }


def level_of(parts: Parts, namespace: str, spec: Mapping[str, Any]) -> str:
    """Return the security level of a sandbox with this spec."""
    inline = spec.get("template")
    if spec.get("securityLevel"):
        return str(spec["securityLevel"])
    if inline is None and "templateRef" in spec:
        try:
            inline = parts.services.objects.get(TEMPLATE, namespace, str(spec["templateRef"]["name"])).spec
        except NotFound:
            inline = {}
    return str((inline or {}).get("securityLevel") or _STRICTEST)
