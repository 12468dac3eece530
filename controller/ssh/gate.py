"""Logins of the SSH port: which caller a key or a token is, and if it may use the sandbox that the user name says."""

import hashlib
import ipaddress
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from controller.kinds.access.access import AccessRequest, Caller
from controller.kinds.registry import Registry
from controller.kinds.sandbox import KIND as SANDBOX
from controller.policy.access import decide
from controller.ports import Clock, Tokens
from controller.service import errors
from controller.service.access import access
from controller.service.access.audit import Recorder
from controller.service.access.authenticate import Identify
from controller.service.access.token_expiry import TokenExpirations
from controller.service.front.ssh import SshLogin
from controller.service.objects.objects import Objects
from controller.ssh.keys import Keys

_WINDOW_SECONDS, _MOST_FAILURES = 60.0, 20  # of one address
_OFFER = 1 / 15  # of a failure: an offered key that nobody has
_SOURCE_BITS = 64  # of an address of IPv6: whoever has one has all that begin like it
_MOST_LETTERS = 200
_REFUSED = "the key or token is not known, or may not use this sandbox"


@dataclass(frozen=True, slots=True)
class Gate:
    """Judges logins. Raises Forbidden."""

    keys: Keys
    """Stored SSH keys."""
    identify: Identify
    """Finds the caller of a token."""
    tokens: Tokens
    """Stored API tokens."""
    expirations: TokenExpirations
    """Ends logins of tokens that expire or are revoked."""
    registry: Registry
    """Kinds by name."""
    objects: Objects
    """Reads objects."""
    recorder: Recorder
    """Writes the audit log."""
    clock: Clock
    """Time of day."""
    user_of_host: Callable[[int], Caller]
    """Returns a user of this host with the grants of now."""
    failures: "Failures"
    """Counts failed logins by address."""

    def login(self, message: Mapping[str, Any]) -> tuple[SshLogin, str]:
        """Return the login, and the fingerprint of its key. Raises ServiceError."""
        address = str(message["source"])[:_MOST_LETTERS]
        source = f"ssh {address}"
        subjects = (source_of(address), _credential_of(message))
        self.failures.check(*subjects)
        try:
            caller, fingerprint = self._caller(message, source)
            namespace, name = _sandbox(str(message["user"]))
            ask = AccessRequest("use", SANDBOX.name, namespace, name, "ssh")
            with access.acting(caller):
                access.require(ask, self.registry)
                uid = self.objects.get(SANDBOX, namespace, name).uid
                if not message["asks"]:
                    self.recorder.record_use(ask, {"via": "ssh", **({"key": fingerprint} if fingerprint else {})})
        except errors.ServiceUnavailable:
            raise
        except errors.ServiceError as error:
            if "token" in message or not message["asks"]:  # a client offers each of its keys: only tries count
                self.failures.add(*subjects)
                self.recorder.record_unknown(source, f"ssh {str(message['user'])[:_MOST_LETTERS]}: {error}")
            else:  # by its source alone: whoever knows a public key can offer it, and must not keep its owner out
                self.failures.add(subjects[0], weight=_OFFER)
            raise errors.Unauthorized(_REFUSED) from error
        return SshLogin(caller, namespace, name, uid), fingerprint

    def ended(self, logins: Mapping[int, SshLogin]) -> tuple[list[int], dict[int, str]]:
        """Return the logins of users of this host who may not use the sandbox any more; for tokens see `follow`.

        Each user is looked up once. A look-up that fails tells nothing: the logins stay, and the error by uid is
        returned beside them.
        """
        users: dict[int, Caller] = {}
        failures: dict[int, str] = {}
        for uid in {login.caller.uid for login in logins.values() if login.caller is not None}:
            if uid is None:
                continue
            try:
                users[uid] = self.user_of_host(uid)
            except errors.Forbidden:
                users[uid] = Caller(f"uid {uid}", uid=uid)
            except Exception as error:
                failures[uid] = f"{type(error).__name__}: {error}"
        return [number for number, login in logins.items() if _is_over(login, users)], failures

    def follow(self, login: SshLogin, end: Callable[[], None]) -> Callable[[], None]:
        """Call `end` once the caller's token is revoked or expires; return what ends that."""
        caller = login.caller
        if caller is None or not caller.token_id:
            return lambda: None
        leave = self.expirations.follow(caller.token_id, end)
        if self.expirations.over(caller):  # since it was looked at
            end()
        timer = None
        if caller.expires_at is not None:
            timer = threading.Timer(max(0.0, caller.expires_at - self.clock.now()), end)
            timer.daemon = True
            timer.start()

        def stop_following() -> None:
            with suppress(KeyError):
                leave()
            if timer is not None:
                timer.cancel()

        return stop_following

    def _caller(self, message: Mapping[str, Any], source: str) -> tuple[Caller, str]:
        if "token" in message:
            return self.identify.token(str(message["token"]), source), ""
        key = self.keys.find(str(message["key"]))
        if key is None:
            raise errors.Unauthorized("the key is not known")
        if key.uid is not None:
            return replace(self.user_of_host(key.uid), source=source), key.fingerprint
        with errors.translate_store_errors():
            token = self.tokens.by_id(key.token_id)
        if token is None or token.state(self.clock.now()) != "active":
            raise errors.Unauthorized("the token that the key belongs to has ended")
        caller = Caller(f"token {token.name}", source, (token.grant,), token.id, token.expires_at)
        return caller, key.fingerprint


def _is_over(login: SshLogin, users: Mapping[int, Caller]) -> bool:
    caller = login.caller
    if caller is None or caller.uid is None or caller.uid not in users:
        return False
    ask = AccessRequest("use", SANDBOX.name, login.namespace, login.name, "ssh")
    return not decide(users[caller.uid], ask).allowed


class Failures:
    """Failed logins by source (an address) and by credential (a key or a token), within a minute. Thread-safe."""

    def __init__(self, ticks: Callable[[], float] = time.monotonic) -> None:
        self._ticks, self._lock = ticks, threading.Lock()
        self._since, self._counts = 0.0, defaultdict[str, float](float)

    def check(self, *subjects: str) -> None:
        """Raise TooManyRequests if one of them has failed too often."""
        with self._lock:
            if self._ticks() - self._since >= _WINDOW_SECONDS:
                self._since, self._counts = self._ticks(), defaultdict(float)
            if any(self._counts.get(subject, 0.0) >= _MOST_FAILURES for subject in subjects):
                raise errors.TooManyRequests(
                    "too many failed logins from this address or with this key; try again in a minute"
                )

    def add(self, *subjects: str, weight: float = 1.0) -> None:
        """Count a failure."""
        with self._lock:
            for subject in subjects:
                self._counts[subject] += weight


def source_of(address: str) -> str:
    """Return what stands for an address: of IPv6 its network of 64 bits."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if ip.version == 6 and ip.ipv4_mapped is None:
        return str(ipaddress.ip_network((ip, _SOURCE_BITS), strict=False))
    return str(getattr(ip, "ipv4_mapped", None) or ip)


def _credential_of(message: Mapping[str, Any]) -> str:
    """Return a name of the key or token of a try, which tells nothing of it."""
    text = f"token {message['token']}" if "token" in message else f"key {message.get('key', '')}"
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def _sandbox(user: str) -> tuple[str, str]:
    """Return the namespace and the name of `NAME--NAMESPACE`, or of `NAME`."""
    name, _, namespace = user[:_MOST_LETTERS].rpartition("--") if "--" in user else (user[:_MOST_LETTERS], "", "")
    return namespace or "default", name
