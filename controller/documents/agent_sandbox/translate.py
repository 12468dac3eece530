"""The kinds of agent-sandbox as those of Paddock, and their references to each other. Pure.

Known are the versions v1alpha1, v1beta1 and v1. What a manifest refers to is looked for among those that are translated
together: a claim names a pool, the pool a template, and the template has fields that here belong to each Sandbox.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from controller.documents.agent_sandbox.container import OF_SANDBOX, PATH, template_of
from controller.documents.agent_sandbox.mounts import claim_name
from controller.documents.agent_sandbox.report import Json, Subject, Translation
from controller.version import API_VERSION

_GROUPS, _VERSIONS = ("agents.x-k8s.io", "extensions.agents.x-k8s.io"), ("v1alpha1", "v1beta1", "v1")
_KINDS = {
    "Sandbox": "Sandbox",
    "SandboxTemplate": "SandboxTemplate",
    "SandboxClaim": "Sandbox",
    "SandboxWarmPool": "SandboxPool",
}
_REACHED = "ports of a sandbox are reached by `paddock port-forward`, other sandboxes by `network: {peers: Allowed}`"
_HOSTS = "a sandbox reaches what `network: {allowedHosts: [...]}` names, and nothing reaches it by itself"
# Other kinds, as they come in the same files, and what is so here without them.
_OTHER_KINDS = {
    "Namespace": "a namespace begins with its first object",
    "Service": _REACHED,
    **dict.fromkeys(("Ingress", "Gateway", "HTTPRoute"), _REACHED),
    "NetworkPolicy": _HOSTS,
    **dict.fromkeys(
        ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"), "no service account"
    ),
    "RuntimeClass": "`runtime` names a runtime of the engine",
    "PodDisruptionBudget": "a sandbox is not evicted",
    **dict.fromkeys(("ConfigMap", "Secret", "PersistentVolumeClaim"), "what mounts it is reported"),
}
_SERVER_FIELDS = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink")
_METADATA = ("name", "namespace", "labels", "annotations")
_BLUEPRINT = ("podTemplate", "volumeClaimTemplates", "service")
_CLAIM_POLICY = "who may create a Sandbox here writes all of its fields"
_GRACE_SECONDS = 30  # of Kubernetes
_TIME = (
    "is a time of day; write `lifecycle: {activeDeadlineSeconds: ...}`, and `ttlSecondsAfterFinished: 0` there for"
    " shutdownPolicy Delete"
)
_OF_POOL = (
    "its members are replaced after a day (maxAgeSeconds) and after a change of the template, one by one, and have 30 s"
    " for their probes (startupDeadlineSeconds)"
)


def translate(manifests: Sequence[Json]) -> Translation:
    """Translate manifests in order."""
    translation = Translation()
    every = [listed_manifest for manifest in manifests for listed_manifest in _items(manifest)]
    for manifest in every:
        _Manifest(manifest, every, translation).translate()
    return translation


def _items(manifest: Json) -> Iterator[Json]:
    """Yield the objects of a list, or the one object."""
    items = manifest.get("items")
    if str(manifest.get("kind", "")).endswith("List") and isinstance(items, list):
        yield from (listed_manifest for listed_manifest in items if isinstance(listed_manifest, Mapping))
    else:
        yield manifest


def _metadata(manifest: Json) -> Json:
    metadata = manifest.get("metadata")
    return metadata if isinstance(metadata, Mapping) else {}


class _Manifest:
    """One manifest under translation, beside the others."""

    def __init__(self, manifest: Json, every: Sequence[Json], translation: Translation) -> None:
        self._manifest, self._every, self._translation = manifest, every, translation
        self._name = str(_metadata(manifest).get("name", "?"))
        self._namespace = str(_metadata(manifest).get("namespace") or "default")
        self._subject = Subject(f"{manifest.get('kind', 'document')}/{self._name}", translation)

    def translate(self) -> None:
        subject, kind = self._subject, str(self._manifest.get("kind"))
        group, _, version = str(self._manifest.get("apiVersion", "")).partition("/")
        if group not in _GROUPS and kind in _OTHER_KINDS:
            subject.note("", f"left out: {_OTHER_KINDS[kind]}")
            return
        if group not in _GROUPS or kind not in _KINDS:
            subject.fault("", f"not of {' or '.join(_GROUPS)} ({', '.join(_KINDS)}); translate it yourself")
            return
        if version not in _VERSIONS:
            subject.fault("apiVersion", f"`{version}` is not known; known: {', '.join(_VERSIONS)}")
            return
        subject.check(self._manifest, "", ("apiVersion", "kind", "metadata", "spec", "status"))
        metadata = subject.table(self._manifest, "metadata", "")
        subject.check(metadata, "metadata", (*_METADATA, *_SERVER_FIELDS), remedies={"generateName": "write a `name`"})
        metadata_fields = {key: metadata[key] for key in _METADATA if metadata.get(key)}
        spec = subject.table(self._manifest, "spec", "")
        translators = {
            "Sandbox": self._sandbox,
            "SandboxTemplate": self._template,
            "SandboxClaim": self._claim,
            "SandboxWarmPool": self._pool,
        }
        body = translators[kind](spec)
        pod_metadata = subject.table(spec, "additionalPodMetadata", "spec")
        for key in ("labels", "annotations") if pod_metadata else ():
            if pod_fields := subject.table(pod_metadata, key, "spec.additionalPodMetadata"):
                metadata_fields[key] = {**pod_fields, **subject.table(metadata, key, "metadata")}
        document = {"apiVersion": API_VERSION, "kind": _KINDS[kind], "metadata": metadata_fields, "spec": body}
        self._translation.documents.append(document)

    def _sandbox(self, spec: Json) -> dict[str, Any]:
        subject = self._subject
        translated = (*_BLUEPRINT, "replicas", "operatingMode", "shutdownTime", "shutdownPolicy")
        subject.check(spec, "spec", translated)
        self._note_service(spec)
        pod = self._pod(spec)
        claims = subject.tables(spec, "volumeClaimTemplates", "spec")
        of_pod = {"metadata.name": self._name, "metadata.namespace": self._namespace}
        body: dict[str, Any] = {"template": template_of(subject, pod, claims, of_pod=of_pod)}
        body |= self._of_sandbox(pod)
        self._check_end(spec, "spec")
        mode, replicas = spec.get("operatingMode"), spec.get("replicas")
        if mode not in (None, "Running", "Suspended"):
            subject.fault("spec.operatingMode", f"`{mode}` is not known; write `runState` of Paddock")
        if replicas not in (None, 0, 1):
            subject.fault("spec.replicas", "a Sandbox is one sandbox; write one Sandbox each, or a SandboxPool")
        if replicas == 0 or mode == "Suspended":
            body["runState"] = "Suspended"
            subject.note("spec", "while it is suspended, the files of its container are kept, too")
        return body

    def _template(self, spec: Json) -> dict[str, Any]:
        policies = dict.fromkeys(("envVarsInjectionPolicy", "volumeClaimTemplatesPolicy"), _CLAIM_POLICY)
        noted = {**policies, "networkPolicy": _HOSTS, "networkPolicyManagement": _HOSTS}
        self._subject.check(spec, "spec", _BLUEPRINT, noted)
        self._note_service(spec)
        pod = self._pod(spec)
        for key in OF_SANDBOX:
            if key in pod:
                message = "belongs to each Sandbox here; those of this template among these documents have it"
                self._subject.note(f"{PATH}.{key}", message)
        return template_of(self._subject, pod, self._subject.tables(spec, "volumeClaimTemplates", "spec"))

    def _claim(self, spec: Json) -> dict[str, Any]:
        """Return the spec of a Sandbox for a SandboxClaim."""
        subject = self._subject
        translated = ("sandboxTemplateRef", "warmPoolRef", "lifecycle", "warmpool", "env", "volumeClaimTemplates")
        subject.check(spec, "spec", (*translated, "additionalPodMetadata"))
        if spec.get("additionalPodMetadata"):
            subject.note("spec.additionalPodMetadata", "written as labels and annotations of the Sandbox")
            pod_metadata = subject.table(spec, "additionalPodMetadata", "spec")
            subject.check(pod_metadata, "spec.additionalPodMetadata", ("labels", "annotations"))
        name = self._template_name(spec)
        template, pod = self._template_and_pod(name)
        if template is None and name:
            message = f"`{name}` is not among these documents: restartPolicy and grace period are those of Kubernetes"
            subject.note("its template", message)
        body: dict[str, Any] = {"templateRef": {"name": name}}
        if spec.get("env") or spec.get("volumeClaimTemplates"):
            body = self._with_own(spec, template, pod) if template is not None else body
            message = f"needs its template `{name}` among these documents; translate them together"
            for key in ("env", "volumeClaimTemplates") if template is None else ():
                if spec.get(key):
                    subject.fault(f"spec.{key}", message)
        elif spec.get("warmpool") == "none":
            body["poolPolicy"] = "Never"
        lifecycle = subject.table(spec, "lifecycle", "spec")
        subject.check(lifecycle, "spec.lifecycle", ("shutdownTime", "shutdownPolicy", "ttlSecondsAfterFinished"))
        body |= self._of_sandbox(pod)
        if "ttlSecondsAfterFinished" in lifecycle:
            body["lifecycle"]["ttlSecondsAfterFinished"] = lifecycle["ttlSecondsAfterFinished"]
        self._check_end(lifecycle, "spec.lifecycle")
        return body

    def _template_name(self, spec: Json) -> str:
        """Return the name of a claim's template: it names that, or a pool of it."""
        subject = self._subject
        template_name = str(subject.table(spec, "sandboxTemplateRef", "spec").get("name", ""))
        pool_name = str(subject.table(spec, "warmPoolRef", "spec").get("name", ""))
        at = "spec.warmPoolRef"
        if not pool_name and spec.get("warmpool") not in (None, "none", "default", ""):
            pool_name, at = str(spec["warmpool"]), "spec.warmpool"
        if not pool_name:
            return template_name
        pool = self._manifest_of("SandboxWarmPool", pool_name)
        reference = subject.table(pool or {}, "spec", "its pool")
        of_pool = str(subject.table(reference, "sandboxTemplateRef", "its pool").get("name", ""))
        if not of_pool and not template_name:
            message = (
                f"pool `{pool_name}` is not among these documents, nor its template known; translate them together"
            )
            subject.fault(at, f"{message}, or write `templateRef`")
        elif template_name and of_pool and template_name != of_pool:
            subject.fault(
                at, f"pool `{pool_name}` is of the template `{of_pool}`, and the claim of `{template_name}`; keep one"
            )
        else:
            message = (
                "a warm sandbox of any pool of its template is claimed here, and a new one started if there is none"
            )
            subject.note(at, message)
        return template_name or of_pool

    def _with_own(self, spec: Json, template_spec: Json, pod: Json) -> dict[str, Any]:
        """Return the inline template of a claim with variables or volumes of its own: it starts cold, as there."""
        subject = self._subject
        containers = subject.tables(pod, "containers", PATH)
        names = [variable.get("name") for variable in subject.tables(containers[0], "env", PATH)] if containers else []
        variables: dict[str, str] = {}
        policy = template_spec.get("envVarsInjectionPolicy", "Disallowed")
        for number, variable in enumerate(subject.tables(spec, "env", "spec")):
            at, name = f"spec.env[{number}]", variable.get("name")
            subject.check(variable, at, ("name", "value", "containerName"))
            target = variable.get("containerName")
            if policy == "Disallowed" or (policy == "Allowed" and name in names):
                subject.fault(at, f"its template does not allow it (envVarsInjectionPolicy {policy}); remove it")
            elif target and containers and target != containers[0].get("name"):
                subject.fault(at, f"is of container `{target}`; a sandbox is exactly one container")
            else:
                variables[str(name)] = str(variable.get("value", ""))
        claims = {
            claim_name(subject, claim): claim for claim in subject.tables(template_spec, "volumeClaimTemplates", "")
        }
        policy = template_spec.get("volumeClaimTemplatesPolicy", "Disallowed")
        for claim in subject.tables(spec, "volumeClaimTemplates", "spec"):
            name = claim_name(subject, claim)
            if policy == "Disallowed" or (policy == "Allowed" and name in claims):
                message = f"its template does not allow it (volumeClaimTemplatesPolicy {policy}); remove it"
                subject.fault(f"spec.volumeClaimTemplates[{name}]", message)
            else:
                claims[name] = claim
        subject.note("spec", "has variables or volumes of its own: its template is written out, and it starts cold")
        return {"template": template_of(subject, pod, list(claims.values()), variables)}

    def _pool(self, spec: Json) -> dict[str, Any]:
        subject = self._subject
        subject.check(spec, "spec", ("replicas", "sandboxTemplateRef", "updateStrategy"))
        subject.note("spec.updateStrategy" if spec.get("updateStrategy") else "spec", _OF_POOL)
        name = subject.table(spec, "sandboxTemplateRef", "spec").get("name", "")
        _, pod = self._template_and_pod(str(name))
        return {
            "templateRef": {"name": name},
            "warmReplicas": 1 if spec.get("replicas") is None else spec["replicas"],
            "shutdownGracePeriodSeconds": pod.get("terminationGracePeriodSeconds", _GRACE_SECONDS),
        }

    def _template_and_pod(self, name: str) -> tuple[Json | None, Json]:
        """Return the spec of a SandboxTemplate (None: it is not among the documents), and its pod's."""
        template = self._manifest_of("SandboxTemplate", name)
        if template is None:
            return None, {}
        spec = self._subject.table(template, "spec", "its template")
        pod_template = self._subject.table(spec, "podTemplate", "its template.spec")
        return spec, self._subject.table(pod_template, "spec", "its template.spec.podTemplate")

    def _manifest_of(self, kind: str, name: str) -> Json | None:
        """Return the manifest of that kind and name in this one's namespace."""
        for manifest in self._every:
            metadata = _metadata(manifest)
            is_it = manifest.get("kind") == kind and metadata.get("name") == name
            if is_it and str(metadata.get("namespace") or "default") == self._namespace:
                return manifest
        return None

    def _note_service(self, spec: Json) -> None:
        if "service" in spec:
            self._subject.note("spec.service", f"left out: {_REACHED}")

    def _pod(self, spec: Json) -> Json:
        template = self._subject.table(spec, "podTemplate", "spec")
        noted = {"metadata": "labels and annotations are those of the Sandbox"}
        self._subject.check(template, "spec.podTemplate", ("spec",), noted)
        return self._subject.table(template, "spec", "spec.podTemplate")

    def _of_sandbox(self, pod: Json) -> dict[str, Any]:
        """Return the fields of a Sandbox beside its template. It runs until somebody ends it, as a pod does."""
        grace = pod.get("terminationGracePeriodSeconds", _GRACE_SECONDS)
        lifecycle = {"shutdownGracePeriodSeconds": grace, "keepRunning": True}
        if "activeDeadlineSeconds" in pod:
            lifecycle["activeDeadlineSeconds"] = pod["activeDeadlineSeconds"]
        return {"restartPolicy": pod.get("restartPolicy", "Always"), "lifecycle": lifecycle}

    def _check_end(self, fields: Json, path: str) -> None:
        subject, policy = self._subject, fields.get("shutdownPolicy", "Retain")
        if "shutdownTime" in fields:
            subject.fault(f"{path}.shutdownTime", _TIME)
        elif "ttlSecondsAfterFinished" in fields and policy == "Retain":
            subject.note(f"{path}.ttlSecondsAfterFinished", "the whole Sandbox is deleted then, and no claim stays")
        elif "shutdownPolicy" in fields and "ttlSecondsAfterFinished" not in fields:
            subject.note(f"{path}.shutdownPolicy", "left out: it has no effect without a time")
