"""Provider: a model API that sandboxes use through the gateway, which adds the key: no sandbox ever has it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from controller.kinds.base import Form, Model, Name, Text, Whole
from controller.kinds.meta import StoredObject, stored_condition
from controller.kinds.registry import Column, Kind
from controller.kinds.sandbox import age

READY = "Ready"
_URL = (
    r"^https?://(\[[0-9a-fA-F:.]{2,45}\]|[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?)(:[0-9]{1,5})?"
    r"(/[A-Za-z0-9._~-]+)*/?$"
)

Url = Annotated[
    Text,
    Field(max_length=1024, pattern=_URL),
    Form("an http or https URL without user, query and fragment, such as https://api.example.com/v1"),
]
ModelPattern = Annotated[
    Text,
    Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9._:/@*+-]+$"),
    Form("the name of a model; `*` stands for any characters"),
]


class KeySecret(Model):
    """A secret of the host for this namespace."""

    name: Name
    """Name of the secret, as `paddock secret set` got it."""


class ProviderLimits(Model):
    """Budgets of all users of the provider together. Left out: none."""

    requests_per_minute: Annotated[Whole | None, Field(ge=1, le=1_000_000)] = None
    """Requests in a minute. Further ones are answered with 429."""
    concurrent: Annotated[Whole | None, Field(ge=1, le=10_000)] = None
    """Requests at a time."""
    tokens_per_day: Annotated[Whole | None, Field(ge=1, le=1 << 50)] = None
    """Tokens, in and out, in a day (UTC). Those of an answer that does not report them are estimated."""


class ProviderTimeouts(Model):
    """Seconds to wait for the provider."""

    first_byte_seconds: Annotated[Whole, Field(ge=1, le=3600)] = 300
    """Seconds until its answer begins."""
    idle_seconds: Annotated[Whole, Field(ge=1, le=3600)] = 120
    """Seconds between two parts of its answer."""
    total_seconds: Annotated[Whole, Field(ge=1, le=86_400)] = 3600
    """Seconds for the whole answer."""


class ProviderSpec(Model):
    """A model API outside. Sandboxes that name it in `models:` reach it at http://127.0.0.1:8090, without its key."""

    type: Literal["OpenAI", "Anthropic"]
    """Form of the API. Many others, such as Gemini, vLLM, LiteLLM and Ollama, serve the form OpenAI."""
    url: Url
    """Base URL. For OpenAI the part before /chat/completions (without a path: /v1), for Anthropic before /v1/messages.

    Addresses that are not public, and http, need the setting provider_hosts.
    """
    certificate_authority: Annotated[
        Text | None, Field(min_length=1, max_length=1 << 16), Form("certificates in PEM form, without keys")
    ] = None
    """Authorities (PEM) that sign its certificate; no others are trusted for it. Left out: those of this host."""
    secret_ref: KeySecret | None = None
    """Secret with its key. Left out: requests are sent without one."""
    models: Annotated[tuple[ModelPattern, ...], Field(min_length=1, max_length=256)] = ("*",)
    """Models that may be used; others do not exist for its users."""
    limits: ProviderLimits = ProviderLimits()
    """Budgets of all its users together."""
    timeouts: ProviderTimeouts = ProviderTimeouts()
    """Seconds to wait for it."""


@dataclass(frozen=True, slots=True)
class StoredProvider:
    """A stored provider with its spec parsed; None if this version can't read it."""

    obj: StoredObject
    spec: ProviderSpec | None


def stored_provider(obj: StoredObject) -> StoredProvider:
    """Return the object with its spec parsed."""
    try:
        return StoredProvider(obj, ProviderSpec.model_validate(obj.spec))
    except ValidationError:
        return StoredProvider(obj, None)


def condition_of(obj: StoredObject, type_: str = READY) -> Mapping[str, Any]:
    """Return a stored condition; empty if there is none yet."""
    return stored_condition(obj, type_)


def _status(obj: StoredObject, _now: float) -> str:
    ready = condition_of(obj)
    if not ready:
        return "Pending"
    return "Ready" if ready["status"] == "True" else str(ready["reason"])


KIND = Kind(
    name="Provider",
    plural="providers",
    short_names=("prov",),
    spec=ProviderSpec,
    columns=(
        Column("STATUS", _status),
        Column("TYPE", lambda obj, _now: str(obj.spec.get("type", "-"))),
        Column("MODELS", lambda obj, _now: ",".join(map(str, obj.spec.get("models", ("*",))))),
        Column("URL", lambda obj, _now: str(obj.spec.get("url", "-"))),
        Column("AGE", lambda obj, now: age(now - obj.created_at)),
    ),
)
