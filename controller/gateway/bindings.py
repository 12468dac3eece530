"""Hosts of keys that were set before keys were bound to hosts.

`paddock secret set` binds a key to hosts, in the operator's folder. Keys without such hosts are bound once, at the
first start of a version that binds them: to the hosts of the providers that use them then.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import structlog

from controller.kinds.meta import StoredObject
from controller.kinds.provider import stored_provider
from controller.policy.provider import endpoint_of

_MOST_BYTES = 16 << 20
_log = structlog.get_logger("paddock.models")


def bindings_file(state_dir: Path) -> Path:
    """Return the file of the bindings in a state folder."""
    return state_dir / "models" / "hosts.json"


class Bindings:
    """Bindings of this host, in a file of the state folder. A file that can't be read binds nothing."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._hosts: Mapping[str, tuple[str, ...]] = _read(file)

    def hosts(self, namespace: str, name: str) -> tuple[str, ...]:
        """Return the hosts (host:port) of a namespace's key; empty: it is bound to none."""
        return self._hosts.get(f"{namespace}/{name}", ())

    def bind_used(self, providers: Iterable[StoredObject]) -> None:
        """Bind the keys of these providers to the hosts of their URLs, unless that was done before.

        Without the file of it, a key that a later provider names would be bound, too: OSError ends the start.
        """
        if self._file.exists():
            return
        hosts: dict[str, set[str]] = {}
        for provider in map(stored_provider, providers):
            endpoint = endpoint_of(provider.spec.url) if provider.spec is not None else None
            if provider.spec is not None and provider.spec.secret_ref is not None and endpoint is not None:
                key = f"{provider.obj.namespace}/{provider.spec.secret_ref.name}"
                hosts.setdefault(key, set()).add(endpoint.authority)
        bound = {key: tuple(sorted(authorities)) for key, authorities in hosts.items()}
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = self._file.with_suffix(".new")
        fresh.write_text(json.dumps(bound))
        fresh.replace(self._file)
        self._hosts = bound
        for key, authorities in bound.items():
            _log.info("provider key bound to hosts", secret=key, hosts=", ".join(authorities))


def _read(file: Path) -> Mapping[str, tuple[str, ...]]:
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise ValueError("too large")
        return {str(key): tuple(map(str, hosts)) for key, hosts in json.loads(file.read_text()).items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        _log.warning("hosts of provider keys not read; bind them with `paddock secret bind`", error=str(error))
        return {}
