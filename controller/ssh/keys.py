"""Public keys of callers, for the SSH port: each acts as its owner, with the owner's grants of that moment."""

import base64
import json
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from controller.kinds.access.access import Caller
from controller.service import errors
from controller.service.front.ssh import SshKey

_MOST_KEYS, _MOST_OF_ONE, _MOST_BYTES = 10_000, 100, 4096


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key. It is of a token (its id), or of a user of this host (its uid)."""

    fingerprint: str
    key: str
    comment: str
    owner: str
    token_id: str = ""
    uid: int | None = None


class Keys:
    """The keys, in one file of the state folder. Thread-safe."""

    def __init__(self, file: Path) -> None:
        self._file, self._lock = file, threading.Lock()

    def add(self, caller: Caller, text: str) -> SshKey:
        """Add a key of the caller, a line as of authorized_keys. Raises BadRequest; Conflict."""
        if not caller.token_id and caller.uid is None:
            raise errors.BadRequest("a key belongs to a user of the host or to a token; the caller is neither")
        plain, comment = _parse_key(text)
        stored = StoredKey(
            fingerprint_of(plain), plain, comment=comment, owner=caller.name, token_id=caller.token_id, uid=caller.uid
        )
        with self._lock:
            keys = self._load()
            if former := keys.get(stored.fingerprint):
                if not _is_of(former, caller):
                    raise errors.Conflict("the key belongs to somebody else; make one of your own")
            elif len(keys) >= _MOST_KEYS or sum(_is_of(key, caller) for key in keys.values()) >= _MOST_OF_ONE:
                raise errors.TooManyRequests(f"at most {_MOST_OF_ONE} keys of one owner; remove some")
            self._save({**keys, stored.fingerprint: stored})
        return _as_ssh_key(stored)

    def of(self, caller: Caller) -> Sequence[SshKey]:
        """Return the caller's keys."""
        with self._lock:
            return [_as_ssh_key(key) for key in self._load().values() if _is_of(key, caller)]

    def remove(self, caller: Caller, fingerprint: str) -> None:
        """Remove a key of the caller. Raises NotFound."""
        with self._lock:
            keys = self._load()
            key = keys.get(fingerprint)
            if key is None or not _is_of(key, caller):
                raise errors.NotFound(f"{fingerprint[:100]}: is not a key of yours; `paddock ssh key list` shows them")
            del keys[fingerprint]
            self._save(keys)

    def find(self, text: str) -> StoredKey | None:
        """Return the stored key of a public key that a client has proven to have."""
        with self._lock:
            key = self._load().get(fingerprint_of(text))
        return key if key is not None and key.key == text else None

    def _load(self) -> dict[str, StoredKey]:
        try:
            return {entry["fingerprint"]: StoredKey(**entry) for entry in json.loads(self._file.read_text())}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise errors.ServiceUnavailable(f"{self._file}: can't be read ({error}); repair it or remove it") from error

    def _save(self, keys: Mapping[str, StoredKey]) -> None:
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = self._file.with_name(f"{self._file.name}.new")
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
            json.dump([asdict(key) for key in keys.values()], out)
            out.flush()
            os.fsync(out.fileno())
        new.replace(self._file)


def fingerprint_of(text: str) -> str:
    """Return the fingerprint of a public key, as ssh-keygen shows it. Raises BadRequest."""
    # Imported where it is used: it takes some MiB of a daemon that nobody asks for SSH.
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import ssh_key_fingerprint

    digest = ssh_key_fingerprint(_load_key(text), SHA256())
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def _parse_key(text: str) -> tuple[str, str]:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    words = text.strip().split(None, 2)
    if len(text) > _MOST_BYTES or "\n" in text.strip() or len(words) < 2:
        raise errors.BadRequest("the key is not one line of a public key; pass the file that ends in .pub")
    plain = _load_key(f"{words[0]} {words[1]}").public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    return plain, words[2][:200] if len(words) > 2 else ""


def _load_key(text: str) -> Any:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_ssh_public_key

    try:
        return load_ssh_public_key(text.encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        message = f"the key is not a public key of SSH: {error}; pass the file that ends in .pub"
        raise errors.BadRequest(message) from error


def _is_of(key: StoredKey, caller: Caller) -> bool:
    return (key.token_id, key.uid) == (caller.token_id, caller.uid)


def _as_ssh_key(key: StoredKey) -> SshKey:
    return SshKey(key.fingerprint, key.key.split(" ")[0], key.comment)
