"""Manifests of kubernetes-sigs/agent-sandbox as documents of Paddock, with a reason for each field that has none. Pure.

A field without a counterpart either changes nothing here (a note), or would change what runs (a fault).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from controller.documents.aliases import PROBES
from controller.version import API_VERSION

Json = Mapping[str, Any]
_GROUPS = ("agents.x-k8s.io", "extensions.agents.x-k8s.io")
_DEFAULT_TMPFS = "64Mi"
_ONE_HOST = "Paddock runs on one host"
# Fields that change nothing here, and why.
_NOTES = {
    "affinity": _ONE_HOST,
    "nodeName": _ONE_HOST,
    "nodeSelector": _ONE_HOST,
    "schedulerName": _ONE_HOST,
    "tolerations": _ONE_HOST,
    "topologySpreadConstraints": _ONE_HOST,
    "automountServiceAccountToken": "a sandbox has no service account",
    "serviceAccount": "a sandbox has no service account",
    "serviceAccountName": "a sandbox has no service account",
    "enableServiceLinks": "there are no services",
    "hostname": "the sandbox's name is its host name",
    "subdomain": "the sandbox's name is its host name",
    "imagePullPolicy": "an image is pulled if it is missing, and pinned to its digest",
    "imagePullSecrets": "the host's engine logs in to registries",
    "ports": "every port is reached by `paddock port-forward`",
    "name": "a sandbox is one container",
    "terminationMessagePath": "the end of the log is kept",
    "terminationMessagePolicy": "the end of the log is kept",
    "priorityClassName": "write a number into `priority`",
    "metadata": "labels and annotations are those of the Sandbox",
    "storageClassName": _ONE_HOST,
    "stdin": "`paddock exec -i` passes stdin",
    "tty": "`paddock exec -t` gives a terminal",
}
_USER = ("runAsUser", "runAsGroup", "runAsNonRoot", "readOnlyRootFilesystem", "allowPrivilegeEscalation")
_LIMITS = {"cpu": "cpu", "memory": "memory", "ephemeral-storage": "disk", "nvidia.com/gpu": "gpus"}


@dataclass(slots=True)
class Translation:
    """Documents of Paddock; notes are harmless, faults are fields whose meaning would be lost."""

    documents: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def translate(manifests: Sequence[Json]) -> Translation:
    """Translate manifests in order."""
    found = Translation()
    for each in manifests:
        _Manifest(each, found).run()
    return found


class _Manifest:
    """One manifest under translation."""

    def __init__(self, manifest: Json, found: Translation) -> None:
        self._manifest, self._found = manifest, found
        metadata = manifest.get("metadata") or {}
        self._place = f"{manifest.get('kind', 'document')}/{metadata.get('name', '?')}"

    def run(self) -> None:
        group = str(self._manifest.get("apiVersion", "")).partition("/")[0]
        kinds: dict[str, tuple[str, Callable[[Json], dict[str, Any]]]] = {
            "Sandbox": ("Sandbox", self._sandbox),
            "SandboxTemplate": ("SandboxTemplate", self._template),
            "SandboxClaim": ("Sandbox", self._claim),
            "SandboxWarmPool": ("SandboxPool", self._pool),
        }
        known = kinds.get(str(self._manifest.get("kind")))
        if group not in _GROUPS or known is None:
            self._fault("", f"not of {' or '.join(_GROUPS)} ({', '.join(kinds)}); translate it yourself")
            return
        kind, translate_ = known
        spec = translate_(self._manifest.get("spec") or {})
        metadata = self._manifest.get("metadata") or {}
        kept = {key: metadata[key] for key in ("name", "namespace", "labels", "annotations") if metadata.get(key)}
        self._found.documents.append({"apiVersion": API_VERSION, "kind": kind, "metadata": kept, "spec": spec})

    def _fault(self, path: str, remedy: str) -> None:
        self._found.faults.append(f"{self._place}: {path}: {remedy}" if path else f"{self._place}: {remedy}")

    def _rest(self, found: Json, path: str, known: Sequence[str]) -> None:
        """Report each field that is not translated."""
        for key in found:
            if key in known:
                continue
            if key in _NOTES:
                self._found.notes.append(f"{self._place}: {path}.{key}: left out: {_NOTES[key]}")
            else:
                self._fault(f"{path}.{key}", "has no counterpart; remove it, or write the Paddock field yourself")

    def _sandbox(self, spec: Json) -> dict[str, Any]:
        self._rest(spec, "spec", ("podTemplate", "volumeClaimTemplates", "replicas", "shutdownTime", "shutdownPolicy"))
        pod = self._pod(spec)
        made: dict[str, Any] = {"template": self._container(pod, spec.get("volumeClaimTemplates") or ())}
        lifecycle = self._ending(spec, "spec")
        if "terminationGracePeriodSeconds" in pod:
            lifecycle["shutdownGracePeriodSeconds"] = pod["terminationGracePeriodSeconds"]
        if "activeDeadlineSeconds" in pod:
            lifecycle["activeDeadlineSeconds"] = pod["activeDeadlineSeconds"]
        if lifecycle:
            made["lifecycle"] = lifecycle
        if pod.get("restartPolicy"):
            made["restartPolicy"] = pod["restartPolicy"]
        if spec.get("replicas") == 0:
            made["runState"] = "Suspended"
        elif spec.get("replicas", 1) != 1:
            self._fault("spec.replicas", "a Sandbox is one sandbox; write one Sandbox each, or a SandboxPool")
        return made

    def _template(self, spec: Json) -> dict[str, Any]:
        self._rest(spec, "spec", ("podTemplate", "volumeClaimTemplates"))
        pod = self._pod(spec)
        for key in ("terminationGracePeriodSeconds", "activeDeadlineSeconds", "restartPolicy"):
            if key in pod:
                self._fault(f"spec.podTemplate.spec.{key}", "belongs to each Sandbox here; write it into the claims")
        return self._container(pod, spec.get("volumeClaimTemplates") or ())

    def _claim(self, spec: Json) -> dict[str, Any]:
        self._rest(spec, "spec", ("sandboxTemplateRef", "lifecycle", "warmpool", "env"))
        made: dict[str, Any] = {"templateRef": {"name": (spec.get("sandboxTemplateRef") or {}).get("name", "")}}
        if spec.get("env"):
            self._fault("spec.env", "a claim's variables are given with each command; write `exec --env NAME=VALUE`")
        if spec.get("warmpool") == "none":
            made["poolPolicy"] = "Never"
        self._rest(spec.get("lifecycle") or {}, "spec.lifecycle", ("shutdownTime", "shutdownPolicy"))
        if lifecycle := self._ending(spec.get("lifecycle") or {}, "spec.lifecycle"):
            made["lifecycle"] = lifecycle
        return made

    def _pool(self, spec: Json) -> dict[str, Any]:
        self._rest(spec, "spec", ("replicas", "sandboxTemplateRef"))
        name = (spec.get("sandboxTemplateRef") or {}).get("name", "")
        return {"templateRef": {"name": name}, "warmReplicas": spec.get("replicas", 1)}

    def _pod(self, spec: Json) -> Json:
        template: Json = spec.get("podTemplate") or {}
        self._rest(template, "spec.podTemplate", ("spec",))
        pod: Json = template.get("spec") or {}
        return pod

    def _ending(self, found: Json, path: str) -> dict[str, Any]:
        if "shutdownTime" in found:
            self._fault(f"{path}.shutdownTime", "is a time of day; write `lifecycle: {activeDeadlineSeconds: ...}`")
        if found.get("shutdownPolicy") == "Delete":
            return {"ttlSecondsAfterFinished": 0}
        return {}

    def _container(self, pod: Json, claims: Sequence[Json]) -> dict[str, Any]:
        path = "spec.podTemplate.spec"
        known = ("containers", "volumes", "restartPolicy", "terminationGracePeriodSeconds", "activeDeadlineSeconds")
        self._rest(pod, path, (*known, "securityContext", "runtimeClassName"))
        containers: list[Json] = list(pod.get("containers") or [])
        if len(containers) != 1:
            self._fault(f"{path}.containers", f"has {len(containers)} containers; a sandbox is exactly one")
            return {}
        one, at = containers[0], f"{path}.containers[0]"
        plain = ("image", "workingDir")
        own = (*plain, "command", "args", "env", "resources", "securityContext", "volumeMounts", *PROBES)
        self._rest(one, at, own)
        made: dict[str, Any] = {key: one[key] for key in plain if key in one}
        made |= {key: one[key] for key in ("command", "args") if one.get(key)} | self._security(pod, path, one, at)
        if pod.get("runtimeClassName"):
            made["runtime"] = {"gvisor": "runsc"}.get(pod["runtimeClassName"], pod["runtimeClassName"])
        if env := self._env(one.get("env") or (), at):
            made["env"] = env
        if limits := self._limits(one.get("resources") or {}, at):
            made["resources"] = {"limits": limits}
        for theirs, ours in PROBES.items():
            if theirs in one:
                made[ours] = one[theirs]
        self._check_mounts(one.get("volumeMounts") or (), f"{at}.volumeMounts")
        return made | self._mounts(one.get("volumeMounts") or (), pod.get("volumes") or (), claims)

    def _security(self, pod: Json, path: str, one: Json, at: str) -> dict[str, Any]:
        """Translate both contexts: each field of the container's goes before the pod's."""
        context: dict[str, Any] = {}
        for each, place in ((pod, f"{path}.securityContext"), (one, f"{at}.securityContext")):
            own = each.get("securityContext") or {}
            self._check_context(own, place)
            context |= {key: value for key, value in own.items() if value is not None}
        made: dict[str, Any] = {}
        if "runAsUser" in context:
            group = f":{context['runAsGroup']}" if "runAsGroup" in context else ""
            made["user"] = f"{context['runAsUser']}{group}"
        elif "runAsGroup" in context:
            self._fault(f"{at}.securityContext.runAsGroup", "needs `runAsUser`: the image's user is not known here")
        narrowing = {key: True for key in ("runAsNonRoot", "readOnlyRootFilesystem") if context.get(key)}
        if context.get("allowPrivilegeEscalation") is False:
            narrowing["noNewPrivileges"] = True
        made["security"] = {**narrowing, **self._dropped(context.get("capabilities") or {}, at)}
        return {key: value for key, value in made.items() if value}

    def _check_context(self, context: Json, at: str) -> None:
        self._rest(context, at, (*_USER, "capabilities", "seccompProfile"))
        if context.get("allowPrivilegeEscalation"):
            self._fault(f"{at}.allowPrivilegeEscalation", "is never possible; remove it")
        profile = (context.get("seccompProfile") or {}).get("type", "RuntimeDefault")
        if profile != "RuntimeDefault":
            self._fault(f"{at}.seccompProfile", f"{profile} is not possible; write `security: {{seccompProfile: ...}}`")
        elif context.get("seccompProfile"):
            self._found.notes.append(f"{self._place}: {at}.seccompProfile: left out: the securityLevel has one")

    def _dropped(self, capabilities: Json, at: str) -> dict[str, Any]:
        place = f"{at}.securityContext.capabilities"
        self._rest(capabilities, place, ("add", "drop"))
        if capabilities.get("add"):
            remedy = "write `security: {capabilities: [...]}`, and a securityLevel that allows them"
            self._fault(f"{place}.add", remedy)
        dropped = [str(each).upper() for each in capabilities.get("drop") or ()]
        if "ALL" in dropped:
            return {"capabilities": []}
        if dropped:
            self._fault(f"{place}.drop", "name those to keep: `security: {capabilities: [...]}`")
        return {}

    def _env(self, variables: Sequence[Json], at: str) -> list[dict[str, Any]]:
        for number, each in enumerate(variables):
            self._rest(each, f"{at}.env[{number}]", ("name", "value", "valueFrom"))
            if "valueFrom" in each:
                remedy = "values are plain; write an operator's secret as a file: `secrets: [{name, mountPath}]`"
                self._fault(f"{at}.env[{number}].valueFrom", remedy)
        return [{"name": each.get("name", ""), "value": str(each.get("value", ""))} for each in variables]

    def _limits(self, resources: Json, at: str) -> dict[str, Any]:
        self._rest(resources, f"{at}.resources", ("limits", "requests"))
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        if requests:
            self._found.notes.append(f"{self._place}: {at}.resources.requests: limits are what is reserved here")
        asked = {**requests, **limits}
        for key in asked:
            if key not in _LIMITS:
                self._fault(f"{at}.resources.limits.{key}", f"is not limited here; known: {', '.join(_LIMITS)}")
        return {_LIMITS[key]: value for key, value in asked.items() if key in _LIMITS}

    def _check_mounts(self, mounts: Sequence[Json], at: str) -> None:
        for number, each in enumerate(mounts):
            self._rest(each, f"{at}[{number}]", ("name", "mountPath", "readOnly"))
            if each.get("readOnly"):
                remedy = (
                    "this volume would be writable; write `volumes: [{name, mountPath, readOnly: true}]` of Paddock"
                )
                self._fault(f"{at}[{number}].readOnly", remedy)

    def _mounts(self, mounts: Sequence[Json], volumes: Sequence[Json], claims: Sequence[Json]) -> dict[str, Any]:
        sources = {each.get("name"): each for each in volumes}
        sizes = {(each.get("metadata") or {}).get("name"): _storage(each) for each in claims}
        for number, each in enumerate(claims):
            at = f"spec.volumeClaimTemplates[{number}].spec"
            self._rest(each.get("spec") or {}, at, ("resources", "accessModes"))
        made: dict[str, list[Any]] = {"tmpfs": [], "volumeClaimTemplates": []}
        for each in mounts:
            name, path = each.get("name"), each.get("mountPath")
            source = sources.get(name) or {}
            if name in sizes:
                made["volumeClaimTemplates"].append({"name": name, "mountPath": path, "size": sizes[name]})
            elif "emptyDir" in source:
                self._rest(source["emptyDir"] or {}, f"volume {name}.emptyDir", ("sizeLimit", "medium"))
                size = (source["emptyDir"] or {}).get("sizeLimit", _DEFAULT_TMPFS)
                made["tmpfs"].append({"mountPath": path, "size": size})
            else:
                kinds = ", ".join(key for key in source if key != "name") or "no source"
                self._fault(f"volume {name} ({kinds})", "write it as `volumes: [{name, mountPath, size}]` of Paddock")
        return {key: value for key, value in made.items() if value}


def _storage(claim: Json) -> str:
    resources = (claim.get("spec") or {}).get("resources") or {}
    return str((resources.get("requests") or {}).get("storage", "1Gi"))
