"""ModelServer: a model in a container of this host, in a sandbox of its own, for the sandboxes that name it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, ValidationError

from controller.kinds.base import Flag, Form, Model, Text, Whole
from controller.kinds.meta import StoredObject
from controller.kinds.provider import READY, condition_of
from controller.kinds.registry import Column, Kind
from controller.kinds.sandbox import LONGEST_SECONDS, Argument, EnvVar, ImageName, Resources, VolumeMount, age

SERVER_LABEL = "paddock/model-server"
"""On the sandbox of a server: the server's name."""


class ServerTemplate(Model):
    """The container of the server. It runs at full-isolation, so it has no network and a read-only root."""

    image: ImageName
    """Image with the server and its weights. It has to serve the form OpenAI on its port."""
    command: Annotated[tuple[Argument, ...] | None, Field(min_length=1, max_length=1024)] = None
    """The command and its arguments; the image's own if left out."""
    env: Annotated[tuple[EnvVar, ...], Field(max_length=512)] = ()
    """Environment variables. Whoever may read this object can read them: put no secrets here."""
    volumes: Annotated[tuple[VolumeMount, ...], Field(max_length=32)] = ()
    """Volumes of the namespace, such as one with weights."""


class ServerLifecycle(Model):
    """Times of the server."""

    idle_timeout_seconds: Annotated[Whole, Field(ge=1, le=LONGEST_SECONDS)] = 900
    """Seconds without a request after which it is stopped. The next request starts it."""
    keep_running: Flag = False
    """Never stop it."""
    shutdown_grace_period_seconds: Annotated[Whole, Field(ge=0, le=3600)] = 10
    """Seconds from the image's stop signal (else SIGTERM) to SIGKILL when it is stopped."""
    startup_deadline_seconds: Annotated[Whole, Field(ge=1, le=86_400)] = 600
    """Seconds for it to load its model; then it is started again."""


class ModelServerSpec(Model):
    """A server of models, in a sandbox of its own. Its users name it in `models:`; its name is the model's name."""

    template: ServerTemplate
    """The container to run."""
    port: Annotated[Whole, Field(ge=1, le=65535)] = 8080
    """Port on its 127.0.0.1 at which it serves."""
    health_path: Annotated[
        Text,
        Field(max_length=1024, pattern=r"^/[A-Za-z0-9._~/-]*$"),
        Form("a path, such as /health"),
    ] = "/health"
    """Path that answers with success once it can serve."""
    model: Annotated[Text, Field(max_length=128, pattern=r"^[A-Za-z0-9._:/@+-]*$"), Form("the name of a model")] = ""
    """Name by which the server itself knows its model. Left out: the name of this object."""
    resources: Resources = Resources()
    """Resources of its sandbox; `limits.gpus` are its GPUs."""
    lifecycle: ServerLifecycle = ServerLifecycle()
    """Stopping when idle, and the time a start may take."""


@dataclass(frozen=True, slots=True)
class StoredModelServer:
    """A stored server with its spec parsed; None if this version can't read it."""

    obj: StoredObject
    spec: ModelServerSpec | None


def stored_model_server(obj: StoredObject) -> StoredModelServer:
    """Return the object with its spec parsed."""
    try:
        return StoredModelServer(obj, ModelServerSpec.model_validate(obj.spec))
    except ValidationError:
        return StoredModelServer(obj, None)


def _image(obj: StoredObject) -> str:
    template: Mapping[str, Any] = obj.spec.get("template", {})
    return str(template.get("image", "-"))


KIND = Kind(
    name="ModelServer",
    plural="modelservers",
    short_names=("ms",),
    spec=ModelServerSpec,
    columns=(
        Column("READY", lambda obj, _now: str(condition_of(obj, READY).get("status", "Unknown"))),
        Column("STATUS", lambda obj, _now: str(condition_of(obj, READY).get("reason", "Pending"))),
        Column("SANDBOX", lambda obj, _now: str(obj.status.get("sandbox", "-"))),
        Column("IMAGE", lambda obj, _now: _image(obj)),
        Column("AGE", lambda obj, now: age(now - obj.created_at)),
    ),
)
