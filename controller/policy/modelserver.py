"""Admission of a ModelServer, and the sandbox that it owns. Pure."""

import hashlib
from typing import Any

from controller.kinds.modelserver import SERVER_LABEL, ModelServerSpec
from controller.kinds.sandbox import SandboxSpec
from controller.policy import sandbox
from controller.policy.levels.levels import FULL_ISOLATION, Policy
from controller.policy.refusal import Refusal
from controller.version import API_VERSION

_NAME_LETTERS = 52
_PREFIX = "model-"


def admit(spec: ModelServerSpec, policy: Policy) -> tuple[Refusal, ...]:
    """Return every reason why the sandbox of a server can't run, at the fields of the server."""
    refusals = sandbox.admit(SandboxSpec.model_validate(owned_spec(spec)), policy)
    return tuple(Refusal(_field(refusal.field), refusal.message) for refusal in refusals)


def sandbox_name(server: str) -> str:
    """Return the name of a server's sandbox."""
    name = f"{_PREFIX}{server}"
    if len(name) <= _NAME_LETTERS:
        return name
    digest = hashlib.sha256(server.encode()).hexdigest()[:8]
    return f"{name[: _NAME_LETTERS - 9].rstrip('-')}-{digest}"


def owned_spec(spec: ModelServerSpec) -> dict[str, Any]:
    """Return the spec of a server's sandbox: full-isolation, ready once its health path answers, stopped when idle."""
    template = spec.template.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
    lifecycle: dict[str, Any] = {
        "idleTimeoutSeconds": spec.lifecycle.idle_timeout_seconds,
        "keepRunning": spec.lifecycle.keep_running,
        "shutdownGracePeriodSeconds": spec.lifecycle.shutdown_grace_period_seconds,
        "startupDeadlineSeconds": spec.lifecycle.startup_deadline_seconds,
        "onIdle": "Suspend",
        "onSuspend": "Discard",  # its weights are in its image or a volume; nobody writes files in memory there
    }
    probe = {
        "httpGet": {"port": spec.port, "path": spec.health_path},
        "periodSeconds": 1,
        "timeoutSeconds": 5,
    }
    return {
        "template": {**template, "securityLevel": FULL_ISOLATION.name, "readiness": probe},
        "resources": spec.resources.model_dump(mode="json", by_alias=True, exclude_none=True),
        "lifecycle": lifecycle,
    }


def owned_sandbox(name: str, spec: ModelServerSpec) -> dict[str, Any]:
    """Return the document of a server's sandbox."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Sandbox",
        "metadata": {
            "name": sandbox_name(name),
            "labels": {SERVER_LABEL: name},
            "ownerReferences": [{"kind": "ModelServer", "name": name, "controller": True}],
        },
        "spec": owned_spec(spec),
    }


def _field(path: str) -> str:
    return path.replace("spec.template.resources.", "spec.resources.")
