"""Variables by which programs in a sandbox find the model gateway."""

from collections.abc import Mapping
from types import MappingProxyType

PORT = 8090
"""Port of the gateway on 127.0.0.1 of each sandbox."""
HOST = "models.paddock.internal"
"""Name of 127.0.0.1 in a sandbox that was created with models."""
_URL = f"http://127.0.0.1:{PORT}"
NO_KEY = "paddock"
"""Stands for a key where clients insist on one. The gateway drops it."""

VARIABLES: Mapping[str, str] = MappingProxyType(
    {
        "ANTHROPIC_API_KEY": NO_KEY,
        "ANTHROPIC_BASE_URL": _URL,
        "OPENAI_API_KEY": NO_KEY,
        "OPENAI_BASE_URL": f"{_URL}/v1",
    }
)


def with_models(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with those of the gateway, where they have none of their own.

    A key or URL of the user's own for one API leaves both of that API to the user.
    """
    own_apis = {name.partition("_")[0] for name in env if name in VARIABLES}
    return {**{name: value for name, value in VARIABLES.items() if name.partition("_")[0] not in own_apis}, **env}
