"""Kinds of Kubernetes and agent-sandbox, and what they are here. Pure."""

from typing import NamedTuple

from controller.version import API_GROUP

AGENT_SANDBOX_GROUPS = ("agents.x-k8s.io", "extensions.agents.x-k8s.io")
_POOL = "copies that are ready are a SandboxPool (`sandboxpools`), and one app is a Sandbox (`sandboxes`)"
_JOB = "a job is a Sandbox with `restartPolicy: Never`, or `paddock run`; several stages are a Workflow"
_REACHED = "ports of a sandbox are reached by `paddock port-forward NAME PORT`, or `paddock open NAME PORT`"
_ACCESS = "permissions belong to tokens; see `paddock token list` and `paddock auth can-i --list`"


class ForeignKind(NamedTuple):
    """A kind of others: its words on a command line, and what takes its place."""

    words: tuple[str, ...]
    advice: str


_KINDS = {
    "ClusterRole": ForeignKind(("clusterroles", "clusterrole"), _ACCESS),
    "ClusterRoleBinding": ForeignKind(("clusterrolebindings", "clusterrolebinding"), _ACCESS),
    "ConfigMap": ForeignKind(
        ("configmaps", "configmap", "cm"),
        "settings are `env` of a template, and files are copied with `paddock cp` or are in the image",
    ),
    "Container": ForeignKind(("containers", "container"), "a container is a Sandbox; write `sandboxes`"),
    "CronJob": ForeignKind(("cronjobs", "cronjob", "cj"), f"{_JOB}; a timer of the host starts it again"),
    "CustomResourceDefinition": ForeignKind(
        ("customresourcedefinitions", "crds", "crd"), "kinds are built in; `paddock api-resources` lists them"
    ),
    "DaemonSet": ForeignKind(("daemonsets", "daemonset", "ds"), _POOL),
    "Deployment": ForeignKind(("deployments", "deployment", "deploy"), _POOL),
    "Endpoints": ForeignKind(("endpoints", "ep", "endpointslices"), _REACHED),
    "HorizontalPodAutoscaler": ForeignKind(
        ("horizontalpodautoscalers", "horizontalpodautoscaler", "hpa"),
        "a SandboxPool keeps `warmReplicas` ready and grows to `maxReplicas` by itself",
    ),
    "Image": ForeignKind(("images", "image"), "images are no objects; write `paddock image list`"),
    "Ingress": ForeignKind(("ingresses", "ingress", "ing"), _REACHED),
    "Job": ForeignKind(("jobs", "job"), _JOB),
    "LimitRange": ForeignKind(("limitranges", "limitrange", "limits"), "a Quota has `perSandbox`; write `quotas`"),
    "Namespace": ForeignKind(
        ("namespaces", "namespace", "ns"),
        "namespaces are not created or listed: write any name with -n, and -A for all of them",
    ),
    "NetworkPolicy": ForeignKind(
        ("networkpolicies", "networkpolicy", "netpol"),
        "the security level and `network: {allowedHosts: [...]}` decide; see `paddock network check`",
    ),
    "Node": ForeignKind(("nodes", "node", "no"), "a node is a Host; write `hosts`, or `paddock host list`"),
    "PersistentVolume": ForeignKind(("persistentvolumes", "persistentvolume", "pv"), "write `volumes`"),
    "PersistentVolumeClaim": ForeignKind(
        ("persistentvolumeclaims", "persistentvolumeclaim", "pvc"), "a sandbox names its `volumes`; write `volumes`"
    ),
    "Pod": ForeignKind(("pods", "pod", "po"), "a pod is a Sandbox; write `sandboxes`"),
    "ReplicaSet": ForeignKind(("replicasets", "replicaset", "rs"), _POOL),
    "ReplicationController": ForeignKind(("replicationcontrollers", "replicationcontroller", "rc"), _POOL),
    "ResourceQuota": ForeignKind(("resourcequotas", "resourcequota"), "it is called Quota; write `quotas`"),
    "Role": ForeignKind(("roles", "role"), _ACCESS),
    "RoleBinding": ForeignKind(("rolebindings", "rolebinding"), _ACCESS),
    "Secret": ForeignKind(
        ("secrets", "secret"), "secrets are the operator's; write `sudo paddock secret list` on the host"
    ),
    "Service": ForeignKind(("services", "service", "svc"), _REACHED),
    "ServiceAccount": ForeignKind(("serviceaccounts", "serviceaccount", "sa"), _ACCESS),
    "StatefulSet": ForeignKind(("statefulsets", "statefulset", "sts"), _POOL),
    "StorageClass": ForeignKind(("storageclasses", "storageclass", "sc"), "every volume is one of Docker's"),
}
_BY_WORD = {word: foreign_kind.advice for foreign_kind in _KINDS.values() for word in foreign_kind.words}


def word_advice(word: str) -> str:
    """Return what to write in place of a foreign kind on a command line; "" for any other word."""
    plural, _, group = word.lower().partition(".")
    return "" if group == API_GROUP else _BY_WORD.get(plural, "")


def document_advice(api_version: str, kind: str) -> str:
    """Return what to write in place of a foreign document; "" if it is of no known tool."""
    if api_version.partition("/")[0] in AGENT_SANDBOX_GROUPS:
        return "of agent-sandbox; write `paddock import agent-sandbox -f FILE | paddock apply -f -`"
    if kind in _KINDS and not api_version.startswith(f"{API_GROUP}/"):
        manifest = (
            "write its container's image, command and env into `template` of a Sandbox, or `paddock run -d IMAGE`"
        )
        return f"of Kubernetes; {manifest if kind == 'Pod' else _KINDS[kind].advice}"
    return ""
