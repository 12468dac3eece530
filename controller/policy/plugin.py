"""Admission of a Plugin: its objects as they will be, and the permissions that they need, computed from them."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from controller.documents.error_messages import faults
from controller.kinds.base import Model, Name
from controller.kinds.common.problem import field_text
from controller.kinds.plugin import ConfigField, Permission, PluginSpec
from controller.kinds.registry import Kind, discover
from controller.policy.admission import admit as admit_kind
from controller.policy.levels.levels import FULL_ISOLATION, Policy
from controller.policy.refusal import Refusal
from controller.version import API_VERSION

_KINDS = ("Sandbox", "SandboxTemplate", "SandboxPool", "MCPServer", "Workflow", "Provider", "ModelServer")
_WHOLE = re.compile(r"\$\(config\.([A-Za-z_][A-Za-z0-9_-]*)\)")
_TYPES: Mapping[str, type] = {"string": str, "integer": int, "boolean": bool}
_REFERENCES: Mapping[str, str] = {
    "templateRef": "SandboxTemplate",
    "providerRef": "Provider",
    "modelServerRef": "ModelServer",
}
_TOP = ("apiVersion", "kind", "metadata", "spec")
_NAME: TypeAdapter[str] = TypeAdapter(Name)
_MISSING = object()


def admit(spec: PluginSpec, policy: Policy) -> tuple[Refusal, ...]:
    """Return every reason to refuse a plugin. Missing grants are none: they are a condition."""
    refusals = [*_configuration(spec)]
    configured = not refusals
    keys: set[tuple[str, str]] = set()
    for number, document in enumerate(spec.objects):
        at = f"spec.objects[{number}]"
        refusals += _object(spec, document, at, policy, configured=configured)
        key = (str(document.get("kind")), name_of(document))
        if key in keys:
            refusals.append(Refusal(at, f"{key[0]} `{key[1]}` is written twice; keep one"))
        keys.add(key)
    if not refusals:
        declared = flat(spec.permissions)
        for permission in sorted(needed_permissions(spec) - declared):
            message = f"its objects need {_text(permission)}, which is not declared; add it to `permissions`"
            refusals.append(Refusal("spec.permissions", message))
    return tuple(refusals)


def rendered(spec: PluginSpec) -> list[dict[str, Any]]:
    """Return the objects with their settings filled in."""
    values = settings(spec)
    return [_fill(document, values) for document in spec.objects]


def settings(spec: PluginSpec) -> dict[str, Any]:
    """Return the settings in force: those chosen, else the defaults."""
    return {name: spec.config.get(name, field.default) for name, field in spec.configuration.items()}


def needed_permissions(spec: PluginSpec) -> frozenset[tuple[str, str]]:
    """Return the permissions that the objects need, computed from them: (kind, name)."""
    permissions: set[tuple[str, str]] = set()
    for document in rendered(spec):
        kind = discover().by_name(str(document.get("kind")))
        if kind is not None:
            permissions |= set(_needs(document.get("spec", {})))
    return frozenset(permissions)


def flat(permissions: Iterable[Permission]) -> frozenset[tuple[str, str]]:
    """Return permissions one by one: (kind, name)."""
    pairs: set[tuple[str, str]] = set()
    for permission in permissions:
        pairs |= {("network", host) for host in permission.network or ()}
        pairs |= {("secret", permission.secret)} if permission.secret else set()
        pairs |= {("volume", permission.volume)} if permission.volume else set()
        pairs |= {("level", permission.level)} if permission.level else set()
    return frozenset(pairs)


def missing_permissions(spec: PluginSpec) -> list[str]:
    """Return the needed permissions that are not granted, in words."""
    return [_text(permission) for permission in sorted(needed_permissions(spec) - flat(spec.granted))]


def name_of(document: Mapping[str, Any]) -> str:
    """Return the name that a document gives its object; "" if it gives none."""
    metadata = document.get("metadata")
    return str(metadata.get("name", "")) if isinstance(metadata, Mapping) else ""


def _text(permission: tuple[str, str]) -> str:
    kind, name = permission
    return f"network to {name}" if kind == "network" else f"{kind} `{name}`"


def _configuration(spec: PluginSpec) -> Iterator[Refusal]:
    for name, value in spec.config.items():
        field = spec.configuration.get(name)
        if field is None:
            listed = ", ".join(sorted(spec.configuration)) or "none"
            yield Refusal(f"spec.config.{name}", f"`{name}` is not a setting of this plugin; it has {listed}")
        elif not _is_of(field, value):
            yield Refusal(f"spec.config.{name}", f"must be of type {field.type}; write such a value")
    for name, field in spec.configuration.items():
        if field.default is not None and not _is_of(field, field.default):
            yield Refusal(f"spec.configuration.{name}.default", f"must be of type {field.type}; write such a value")
        if field.default is None and name not in spec.config:
            yield Refusal("spec.config", f"`{name}` is not set, and has no default; set it")


def _is_of(field: ConfigField, value: Any) -> bool:
    return type(value) is _TYPES[field.type]


def _object(
    spec: PluginSpec, document: Mapping[str, Any], at: str, policy: Policy, *, configured: bool
) -> Iterator[Refusal]:
    """Yield the refusals of one object. With wrong settings (not `configured`) its values are not judged."""
    kind = discover().by_name(str(document.get("kind")))
    if kind is None or kind.name not in _KINDS:
        listed = ", ".join(kind_name for kind_name in _KINDS if discover().by_name(kind_name))
        yield Refusal(f"{at}.kind", f"`{document.get('kind')}` is no kind for plugins; they hold {listed}")
        return
    yield from _shape(document, at)
    unknown = sorted({reference for reference in _references(document) if reference not in spec.configuration})
    for reference in unknown:
        yield Refusal(at, f"`$(config.{reference})` is no setting of this plugin; add it to `configuration`")
    partial = sorted(set(_partial(document)))
    for text in partial:
        message = f"`{text[:100]}`: $(config.NAME) stands for a whole value only; make the whole value a setting"
        yield Refusal(at, message)
    if unknown or partial or not configured:
        return
    filled = _fill(document, settings(spec))
    own_objects = {(str(sibling.get("kind")), name_of(sibling)) for sibling in spec.objects}
    never = [
        *_forbidden_refusals(filled.get("spec"), f"{at}.spec"),
        *_foreign(filled.get("spec"), f"{at}.spec", own_objects),
    ]
    yield from never or _valid(kind, filled.get("spec", {}), at, policy)


def _shape(document: Mapping[str, Any], at: str) -> Iterator[Refusal]:
    for field in sorted(document.keys() - set(_TOP)):
        yield Refusal(f"{at}.{field}", f"is not for objects of plugins; they have {', '.join(_TOP)}")
    if document.get("apiVersion", API_VERSION) != API_VERSION:
        yield Refusal(f"{at}.apiVersion", f"is not served here; write `{API_VERSION}`")
    metadata = document.get("metadata")
    extra = sorted(metadata.keys() - {"name", "labels", "annotations"}) if isinstance(metadata, Mapping) else []
    for field in extra:
        yield Refusal(f"{at}.metadata.{field}", "is set by Paddock: the objects are the plugin's, in its namespace")
    try:
        _NAME.validate_python(name_of(document))
    except ValidationError:
        yield Refusal(f"{at}.metadata.name", "is not a name; write lower-case letters, digits and `-`, at most 52")


def _valid(kind: Kind, document: Any, at: str, policy: Policy) -> Iterator[Refusal]:
    try:
        model: Model = kind.spec.model_validate(document, by_alias=True, by_name=False)
    except ValidationError as error:
        for fault in faults(kind.spec, error, ("spec",), lambda _path: ""):
            yield Refusal(f"{at}.{field_text(fault.path)}", fault.message)
        return
    for refusal in admit_kind(kind, model, policy):
        yield Refusal(f"{at}.{refusal.field}", refusal.message)


def _forbidden_refusals(node: Any, at: str) -> Iterator[Refusal]:
    """Yield refusals of what no plugin may hold, wherever it stands."""
    if isinstance(node, Mapping):
        for name, value in node.items():
            where = f"{at}.{name}"
            if name == "hostPath":
                yield Refusal(where, "a plugin can't bind folders of the host; use `volume:`")
            elif name in ("localNetwork", "peers") and value == "Allowed":
                yield Refusal(where, "a plugin can't join other networks; set it on a sandbox of your own")
            elif name == "trust" and value == "verified":
                yield Refusal(where, "a plugin can't call a server verified; an admin does that on the MCPServer")
            yield from _forbidden_refusals(value, where)
    elif isinstance(node, list | tuple):
        for number, value in enumerate(node):
            yield from _forbidden_refusals(value, f"{at}[{number}]")


def _foreign(node: Any, at: str, own_objects: set[tuple[str, str]]) -> Iterator[Refusal]:
    """Yield refusals of references to others' objects: these may hold what the plugin has no permission for."""
    if isinstance(node, Mapping):
        for name, value in node.items():
            kind = _REFERENCES.get(str(name))
            if kind and isinstance(value, Mapping) and (kind, str(value.get("name"))) not in own_objects:
                message = f"{kind} `{value.get('name')}` is no object of this plugin; add it to `objects`"
                yield Refusal(f"{at}.{name}.name", message)
            if name == "agent" and isinstance(value, Mapping) and "provider" in value:
                source = str(value["provider"])
                if not {("Provider", source), ("ModelServer", source)} & own_objects:
                    message = f"`{source}` is no Provider or ModelServer of this plugin; add it to `objects`"
                    yield Refusal(f"{at}.agent.provider", message)
            yield from _foreign(value, f"{at}.{name}", own_objects)
    elif isinstance(node, list | tuple):
        for number, value in enumerate(node):
            yield from _foreign(value, f"{at}[{number}]", own_objects)


def _needs(node: Any) -> Iterator[tuple[str, str]]:
    """Yield the permissions that a spec needs, from wherever they stand in it."""
    if isinstance(node, Mapping):
        for name, value in node.items():
            if name == "allowedHosts" and isinstance(value, list | tuple):
                yield from (("network", str(host)) for host in value)
            elif name == "url" and isinstance(value, str):
                yield "network", re.sub(r"^[a-z]+://([^/:]*).*$", r"\1", value)
            elif name == "securityLevel" and value != FULL_ISOLATION.name:
                yield "level", str(value)
            elif name == "secretRef" and isinstance(value, Mapping):
                yield "secret", str(value.get("name"))
            elif name in ("secrets", "volumes") and isinstance(value, list | tuple):
                kind = name.removesuffix("s")
                yield from ((kind, str(entry.get("name"))) for entry in value if isinstance(entry, Mapping))
            elif name == "volume" and isinstance(value, Mapping):
                yield "volume", str(value.get("name"))
            elif name == "host" and isinstance(value, str):
                yield "network", value
            # A permission may stand at any depth, as in a template within a pool.
            yield from _needs(value)
    elif isinstance(node, list | tuple):
        for value in node:
            yield from _needs(value)


def _fill(node: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(node, Mapping):
        return {name: _fill(child, values) for name, child in node.items()}
    if isinstance(node, list | tuple):
        return [_fill(child, values) for child in node]
    reference = _WHOLE.fullmatch(node) if isinstance(node, str) else None
    value = values.get(reference[1], _MISSING) if reference else _MISSING
    return node if value is _MISSING else value


def _scalars(node: Any) -> Iterator[str]:
    if isinstance(node, Mapping):
        for name, child in node.items():
            yield str(name)
            yield from _scalars(child)
    elif isinstance(node, list | tuple):
        for child in node:
            yield from _scalars(child)
    elif isinstance(node, str):
        yield node


def _references(node: Any) -> Iterator[str]:
    return (match[1] for text in _scalars(node) for match in _WHOLE.finditer(text))


def _partial(node: Any) -> Iterator[str]:
    """Yield texts, and keys, that hold a reference among other text."""
    if isinstance(node, Mapping):
        for name, child in node.items():
            if "$(config." in str(name):
                yield str(name)
            yield from _partial(child)
    elif isinstance(node, list | tuple):
        for child in node:
            yield from _partial(child)
    elif isinstance(node, str) and "$(config." in node and not _WHOLE.fullmatch(node):
        yield node
