"""The pod of a manifest as the template of a sandbox. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from controller.documents.agent_sandbox.mounts import mounts_of
from controller.documents.agent_sandbox.probes import probes_of
from controller.documents.agent_sandbox.report import Json, Subject
from controller.documents.agent_sandbox.variables import expand, variables_of
from controller.documents.aliases import PROBES
from controller.kinds.runtime.user_ids import LOWEST_FREE_ID

PATH = "spec.podTemplate.spec"
OF_SANDBOX = ("restartPolicy", "terminationGracePeriodSeconds", "activeDeadlineSeconds")
"""Fields of a pod that a Sandbox has beside its template."""
_PLACED = "Paddock chooses the host"
_ACCOUNT = "a sandbox has no service account"
_NAMED = "the sandbox's name is its host name"
_RESOLVER = "names are resolved by the sandbox's own proxy"
_OF_POD = {
    **dict.fromkeys(("affinity", "nodeName", "nodeSelector", "schedulerName", "tolerations"), _PLACED),
    "topologySpreadConstraints": _PLACED,
    **dict.fromkeys(("automountServiceAccountToken", "serviceAccount", "serviceAccountName"), _ACCOUNT),
    "enableServiceLinks": "there are no services",
    **dict.fromkeys(("hostname", "subdomain", "setHostnameAsFQDN"), _NAMED),
    **dict.fromkeys(("dnsPolicy", "dnsConfig"), _RESOLVER),
    "imagePullSecrets": "the host's engine logs in to registries",
    "priorityClassName": "write a number into `priority`",
    "preemptionPolicy": "a sandbox stops no other",
    "shareProcessNamespace": "a sandbox is one container",
}
_HARMLESS_OF_POD = {
    **dict.fromkeys(("hostNetwork", "hostPID", "hostIPC"), False),
    "hostUsers": True,
    "os": {"name": "linux"},
}
_REFUSED_OF_POD = {
    "initContainers": "a sandbox is one container; run them first in its `command`, or build their work into the image",
    "hostAliases": "a sandbox has no names of its own; list hosts in `network: {allowedHosts: [...]}`",
}
_OF_CONTAINER = {
    "imagePullPolicy": "an image is pulled if it is missing, and pinned to its digest",
    "name": "a sandbox is one container",
    "resizePolicy": "limits are changed in place",
    "stdin": "`paddock exec -i` passes stdin",
    "stdinOnce": "`paddock exec -i` passes stdin",
    "tty": "`paddock exec -t` gives a terminal",
    "terminationMessagePath": "the end of the log is kept",
    "terminationMessagePolicy": "the end of the log is kept",
}
_USER = ("runAsUser", "runAsGroup", "runAsNonRoot", "readOnlyRootFilesystem", "allowPrivilegeEscalation")
_VOLUMES_GROUP = "volumes belong to the sandbox's user"
_OF_CONTEXT = {"fsGroup": _VOLUMES_GROUP, "fsGroupChangePolicy": _VOLUMES_GROUP}
_REFUSED_OF_CONTEXT = {"supplementalGroups": 'a sandbox has one group; write it in `user: "UID:GID"`'}
_LIMITS = {"cpu": "cpu", "memory": "memory", "ephemeral-storage": "disk", "nvidia.com/gpu": "gpus"}
_RUNTIMES = {"gvisor": "runsc"}


def template_of(
    subject: Subject,
    pod: Json,
    claims: Sequence[Json],
    more_variables: Mapping[str, str] | None = None,
    of_pod: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the template of a pod's sandbox. `more_variables` are a claim's."""
    subject.check(
        pod,
        PATH,
        ("containers", "volumes", *OF_SANDBOX, "securityContext", "runtimeClassName"),
        noted=_OF_POD,
        harmless=_HARMLESS_OF_POD,
        remedies=_REFUSED_OF_POD,
    )
    containers = subject.tables(pod, "containers", PATH)
    if len(containers) != 1:
        names = ", ".join(f"`{extra.get('name')}`" for extra in containers[1:])
        remark = f"; left out: {names}" if names else ""
        subject.fault(f"{PATH}.containers", f"has {len(containers)} containers; a sandbox is exactly one{remark}")
    if not containers:
        return {}
    container, at = containers[0], f"{PATH}.containers[0]"
    translated = ("image", "command", "args", "workingDir", "env", "resources", "securityContext", "volumeMounts")
    subject.check(container, at, (*translated, "ports", *PROBES), _OF_CONTAINER)
    _check_ports(subject, container, at)
    values = {**variables_of(subject, container, at, of_pod or {}), **(more_variables or {})}
    template: dict[str, Any] = {key: container[key] for key in ("image", "workingDir") if container.get(key)}
    for key in ("command", "args"):
        if texts := subject.texts(container, key, at):
            template[key] = [expand(text, values) for text in texts]
    template |= _security(subject, pod, container, at)
    if runtime := pod.get("runtimeClassName"):
        template["runtime"] = _RUNTIMES.get(str(runtime), runtime)
        message = f"the engine's runtime `{template['runtime']}` here, which the host must have"
        subject.note(f"{PATH}.runtimeClassName", message)
    if values:
        template["env"] = [{"name": name, "value": value} for name, value in values.items()]
    if limits := _limits(subject, subject.table(container, "resources", at), f"{at}.resources"):
        template["resources"] = {"limits": limits}
    template |= probes_of(subject, container, at)
    template |= mounts_of(subject, container, at, subject.tables(pod, "volumes", PATH), claims)
    _note_the_level(subject, template)
    return template


def _check_ports(subject: Subject, container: Json, at: str) -> None:
    for number, port in enumerate(subject.tables(container, "ports", at)):
        place = f"{at}.ports[{number}]"
        listens = "nothing listens on the host by itself; use `paddock port-forward`"
        remedies = {"hostPort": listens, "hostIP": listens}
        noted = {"protocol": "only tcp is forwarded"}
        subject.check(
            port, place, ("name", "containerPort"), noted=noted, harmless={"protocol": "TCP"}, remedies=remedies
        )
    if container.get("ports"):
        subject.note(f"{at}.ports", "left out: every port is reached by `paddock port-forward`")


def _security(subject: Subject, pod: Json, container: Json, at: str) -> dict[str, Any]:
    """Translate both contexts: each field of the container's goes before the pod's."""
    context: dict[str, Any] = {}
    for parent, path in ((pod, PATH), (container, at)):
        fields = subject.table(parent, "securityContext", path)
        _check_context(subject, fields, f"{path}.securityContext")
        context |= {key: value for key, value in fields.items() if value is not None}
    template: dict[str, Any] = {}
    if "runAsUser" in context:
        group = f":{context['runAsGroup']}" if "runAsGroup" in context else ""
        template["user"] = f"{context['runAsUser']}{group}"
        if isinstance(context["runAsUser"], int) and context["runAsUser"] < LOWEST_FREE_ID:
            message = (
                f"a user below {LOWEST_FREE_ID} needs another securityLevel than full-isolation; write a higher one"
            )
            subject.note(f"{at}.securityContext.runAsUser", message)
    elif "runAsGroup" in context:
        subject.fault(f"{at}.securityContext.runAsGroup", "needs `runAsUser`: the image's user is not known here")
    narrowing = {key: True for key in ("runAsNonRoot", "readOnlyRootFilesystem") if context.get(key)}
    if context.get("allowPrivilegeEscalation") is False:
        narrowing["noNewPrivileges"] = True
    capabilities = subject.table(context, "capabilities", f"{at}.securityContext")
    template["security"] = {
        **narrowing,
        **_drop_capabilities(subject, capabilities, f"{at}.securityContext.capabilities"),
    }
    return {key: value for key, value in template.items() if value}


def _check_context(subject: Subject, context: Json, at: str) -> None:
    harmless = {"privileged": False, "procMount": "Default", "appArmorProfile": {"type": "RuntimeDefault"}}
    translated = (*_USER, "capabilities", "seccompProfile")
    subject.check(context, at, translated, noted=_OF_CONTEXT, harmless=harmless, remedies=_REFUSED_OF_CONTEXT)
    if context.get("allowPrivilegeEscalation"):
        subject.fault(f"{at}.allowPrivilegeEscalation", "is never possible; remove it")
    profile = subject.table(context, "seccompProfile", at).get("type", "RuntimeDefault")
    if profile != "RuntimeDefault":
        subject.fault(f"{at}.seccompProfile", f"{profile} is not possible; write `security: {{seccompProfile: ...}}`")
    elif context.get("seccompProfile"):
        subject.note(f"{at}.seccompProfile", "left out: the securityLevel has one")


def _drop_capabilities(subject: Subject, capabilities: Json, at: str) -> dict[str, Any]:
    subject.check(capabilities, at, ("add", "drop"))
    if capabilities.get("add"):
        remedy = "write `security: {capabilities: [...]}`, and a securityLevel that allows them"
        subject.fault(f"{at}.add", remedy)
    dropped = [capability.upper() for capability in subject.texts(capabilities, "drop", at)]
    if "ALL" in dropped:
        return {"capabilities": []}
    if dropped:
        subject.fault(f"{at}.drop", "name those to keep: `security: {capabilities: [...]}`")
    return {}


def _limits(subject: Subject, resources: Json, at: str) -> dict[str, Any]:
    subject.check(resources, at, ("limits", "requests"))
    limits, requests = subject.table(resources, "limits", at), subject.table(resources, "requests", at)
    if raised := [key for key in requests if key not in limits and key in _LIMITS]:
        subject.note(f"{at}.requests", f"{', '.join(raised)}: becomes the limit here, which is what is reserved")
    elif requests:
        subject.note(f"{at}.requests", "left out: limits are what is reserved here")
    for key in {**requests, **limits}:
        if key not in _LIMITS:
            subject.fault(f"{at}.limits.{key}", f"is not limited here; known: {', '.join(_LIMITS)}")
    return {_LIMITS[key]: value for key, value in {**requests, **limits}.items() if key in _LIMITS}


def _note_the_level(subject: Subject, template: Json) -> None:
    """Note what the strictest security level takes from a pod that does not give it up itself."""
    security, limits = template.get("security", {}), template.get("resources", {}).get("limits", {})
    differences = {
        "no network (`network: {allowedHosts: [...]}` at level development has some)": True,
        "a user of its own instead of the image's": "user" not in template,
        "folders in memory at /tmp and /workspace (its HOME)": True,
        "a root file system that is only read": not security.get("readOnlyRootFilesystem"),
        "no capabilities": "capabilities" not in security,
        "no new privileges": not security.get("noNewPrivileges"),
        "its limit of memory": "memory" not in limits,
        "its limit of processors": "cpu" not in limits,
        "its limit of processes": True,
    }
    summary = ", ".join(name for name, differs in differences.items() if differs)
    subject.note(
        "spec", f"at the securityLevel full-isolation it has {summary}; write another `securityLevel` if needed"
    )
