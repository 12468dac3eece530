"""Fake secrets."""

from collections.abc import Mapping

from controller.kinds.runtime.secret import NoSecret


class FakeSecrets:
    """ports.Secrets over a mapping of (namespace, name)."""

    def __init__(self, known: Mapping[tuple[str, str], bytes]) -> None:
        self._known = known

    def read(self, namespace: str, name: str) -> bytes:
        if (namespace, name) not in self._known:
            raise NoSecret(f"secret {namespace}/{name}: not found")
        return self._known[namespace, name]
