"""Links to ports of sandboxes: made for whoever may use the sandbox, and held by anybody.

A link ends with its expiry, with the sandbox, with its maker's token, and when all links of the sandbox are voided.
The key of their signatures lies in the state folder, not in the store.
"""

import hmac
import json
import os
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controller.kinds.access.access import AccessRequest, Caller, Decision
from controller.kinds.registry import Registry
from controller.kinds.runtime.preview import (
    DEFAULT_SECONDS,
    MOST_SECONDS,
    PreviewTarget,
    PreviewToken,
    Purpose,
    port_refused,
    sign,
)
from controller.kinds.sandbox import KIND as SANDBOX
from controller.policy.access import decide
from controller.ports import Clock, Meter, NullMeter, Tokens
from controller.service import errors
from controller.service.access import access
from controller.service.access.audit import Recorder
from controller.service.objects.objects import Objects

_KEY_BYTES = 32
_MOST_USED = 4096
_NOBODY = "-"  # made by Paddock itself, or by a user of this host before links said by which
_MAKER_SECONDS = 2.0  # for which a maker's right is not looked up again
_MOST_MAKERS = 1024
_FOREIGN_SECONDS = 3_600  # of a link whose maker's right can't be looked up again: a user of another host of the fleet


@dataclass(frozen=True, slots=True)
class PreviewLink:
    """A link to a port of the sandbox of this uid. `expires` is Unix seconds."""

    target: PreviewTarget
    uid: str
    token: str
    expires: int


class Previews:
    """Makes, checks and voids links. Thread-safe. The folder is made with the first link."""

    def __init__(
        self,
        *,
        objects: Objects,
        registry: Registry,
        tokens: Tokens,
        recorder: Recorder,
        clock: Clock,
        folder: Path,
        grants_of: Callable[[int], Caller] | None = None,
        meter: Meter | None = None,
    ) -> None:
        """`grants_of` returns a user of this host with the grants of now, by uid. It may block; raises Forbidden."""
        self._objects, self._registry, self._tokens = objects, registry, tokens
        self._recorder, self._clock, self._folder = recorder, clock, folder
        self._lock = threading.Lock()
        self._key: bytes | None = None
        self._used: set[str] = set()
        self._grants_of, self._meter = grants_of, meter or NullMeter()
        self._makers: dict[tuple[str, str], float] = {}
        self.opened: Callable[[], None] = lambda: None
        """Called with the first link: it starts the listener. Raises ServiceUnavailable."""

    @property
    def has_links(self) -> bool:
        """Return True if a link was ever made."""
        return (self._folder / "key").exists()

    def create(self, target: PreviewTarget, seconds: int = DEFAULT_SECONDS) -> PreviewLink:
        """Return a link for the caller, who may use the sandbox. Raises ServiceError."""
        if reason := port_refused(target.port):
            raise errors.BadRequest(reason)
        if not 1 <= seconds <= MOST_SECONDS:
            raise errors.BadRequest(f"expiresSeconds is from 1 to {MOST_SECONDS} (7 days), not {seconds}")
        uid = self._objects.get(SANDBOX, target.namespace, target.name).uid
        caller = access.caller()
        expires = int(self._clock.now()) + seconds
        if caller is not None and caller.expires_at is not None:
            expires = min(expires, int(caller.expires_at))
        maker = _maker(caller)
        if caller is not None and maker == _NOBODY:
            expires = min(expires, int(self._clock.now()) + _FOREIGN_SECONDS)
        self.opened()
        token = sign(
            self._signing_key(), "link", target, uid=uid, counter=self._counter(uid), expires=expires, maker=maker
        )
        self._meter.count("paddock_preview_links_total")
        return PreviewLink(target, uid, token, expires)

    def void(self, namespace: str, name: str) -> None:
        """End all links of a sandbox. Raises ServiceError."""
        uid = self._objects.get(SANDBOX, namespace, name).uid
        uids = {obj.uid for obj in self._objects.list(SANDBOX).objects} | {uid}
        with self._lock:
            state = self._state()
            state[uid] = {"counter": self._counter_of(state, uid) + 1}
            self._save({uid: entry for uid, entry in state.items() if uid in uids})

    def check(self, purpose: Purpose, token: PreviewToken, target: PreviewTarget) -> str:
        """Return the uid of the sandbox that the token is of. Raises Unauthorized for one that does not hold."""
        refusal = errors.Unauthorized("the link is not valid for this address, or it has ended; ask for a new one")
        if port_refused(target.port):
            raise refusal
        if token.expires <= self._clock.now():
            raise errors.Unauthorized("the link has expired; ask for a new one, or run `paddock open` again")
        try:
            uid = self._objects.get(SANDBOX, target.namespace, target.name).uid
        except errors.NotFound:
            raise refusal from None
        key = self._signing_key()
        expected = sign(
            key, purpose, target, uid=uid, counter=self._counter(uid), expires=token.expires, maker=token.maker
        )
        if not hmac.compare_digest(expected.split(".")[2], token.mac):
            raise refusal
        self._check_maker(token.maker, target)
        return uid

    def _check_maker(self, maker: str, target: PreviewTarget) -> None:
        """Raise Unauthorized once the maker of a link may not use the sandbox any more."""
        if maker == _NOBODY:
            return
        if not maker.startswith("u"):
            with errors.translate_store_errors():
                token = self._tokens.by_id(maker)
            if token is None or token.state(self._clock.now()) != "active":
                raise errors.Unauthorized("the token that the link was made with has ended; ask for a new link")
            return
        if self._grants_of is None:
            return
        key, now = (maker, target.namespace), self._clock.now()
        with self._lock:
            if 0 <= now - self._makers.get(key, -_MAKER_SECONDS) < _MAKER_SECONDS:
                return
        try:
            caller = self._grants_of(int(maker[1:]))
            is_allowed = decide(caller, AccessRequest("use", SANDBOX.name, target.namespace, target.name, "previews"))
        except errors.Forbidden:
            is_allowed = Decision(False)
        if not is_allowed.allowed:
            raise errors.Unauthorized("whoever made the link may not use the sandbox any more; ask for a new link")
        with self._lock:
            if len(self._makers) >= _MOST_MAKERS:
                self._makers.clear()
            self._makers[key] = now

    def cookie(self, purpose: Purpose, token: PreviewToken, target: PreviewTarget, uid: str) -> str:
        """Return the value of a cookie for a checked link; it ends with the link."""
        return sign(
            self._signing_key(),
            purpose,
            target,
            uid=uid,
            counter=self._counter(uid),
            expires=token.expires,
            maker=token.maker,
        )

    def record_use(self, target: PreviewTarget, token: PreviewToken, source: str = "") -> None:
        """Record the first use of a link, by a client of this address, without blocking."""
        with self._lock:
            if token.mac in self._used:
                return
            if len(self._used) >= _MOST_USED:
                self._used.clear()
            self._used.add(token.mac)
        ask = AccessRequest("use", SANDBOX.name, target.namespace, target.name, "preview")
        with access.acting(Caller("preview link", source)):
            self._recorder.record_end(ask, {"via": "preview", "port": target.port})

    def _signing_key(self) -> bytes:
        with self._lock:
            if self._key is None:
                file = self._folder / "key"
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                if not file.exists():
                    _write(file, secrets.token_bytes(_KEY_BYTES))
                self._key = file.read_bytes()
            return self._key

    def _counter(self, uid: str) -> int:
        with self._lock:
            return self._counter_of(self._state(), uid)

    @staticmethod
    def _counter_of(state: dict[str, dict[str, Any]], uid: str) -> int:
        return int(state.get(uid, {}).get("counter", 0))

    def _state(self) -> dict[str, dict[str, Any]]:
        """Return what is kept by uid: a counter that voids links."""
        try:
            state: dict[str, dict[str, Any]] = json.loads((self._folder / "links.json").read_text())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:  # fail closed: a voided link must not hold again
            message = f"{self._folder / 'links.json'} can't be read ({error}); remove it and `key` to void all links"
            raise errors.ServiceUnavailable(message) from error
        return state

    def _save(self, state: dict[str, dict[str, Any]]) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(self._folder / "links.json", json.dumps(state).encode())


def _maker(caller: Caller | None) -> str:
    """Return the maker of a link, as its token says it."""
    if caller is None:
        return _NOBODY
    return caller.token_id or (_NOBODY if caller.uid is None else f"u{caller.uid}")


def _write(file: Path, data: bytes) -> None:
    new = file.with_name(f"{file.name}.new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "wb") as out:
        out.write(data)
        out.flush()
        os.fsync(descriptor)
    new.replace(file)
