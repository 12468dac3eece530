"""State of the model gateway, as the reconcile pass sees it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

LISTENING = "Listening"
ANSWERING, NOT_TRIED = "Answering", "NotTried"


@dataclass(frozen=True, slots=True)
class ModelsState:
    """State of a sandbox's listener, or of a source of models, with the reason of its condition."""

    reason: str
    message: str = ""


_NONE: Mapping[str, ModelsState] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class GatewayView:
    """States by uid: of the sandboxes that name models, of providers, and of model servers without a sandbox."""

    sandboxes: Mapping[str, ModelsState] = field(default_factory=lambda: _NONE)
    providers: Mapping[str, ModelsState] = field(default_factory=lambda: _NONE)
    servers: Mapping[str, ModelsState] = field(default_factory=lambda: _NONE)


NO_GATEWAY = GatewayView()
