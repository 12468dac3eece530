"""Mutual TLS 1.3 between the daemons of a fleet, by the operator's files.

A peer needs a certificate of the operator's authority, with the name of its host as a DNS name. The files are read
again when they change: new connections use the new ones. Files that can't be used leave the former in place.
"""

import os
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

_CHECK_SECONDS = 1.0  # between two checks of the files
_log = structlog.get_logger("paddock.fleet")


class FleetFilesError(Exception):
    """The certificate files can't be used; the message says why."""


@dataclass(frozen=True, slots=True)
class FleetFiles:
    """The PEM files of this host: its certificate, private key, and the certificate of the authority."""

    cert: Path
    key: Path
    authority: Path


@dataclass(frozen=True, slots=True)
class _Contexts:
    """The contexts of one state of the files. `sessions` are the last ones, by the peer's host."""

    server: ssl.SSLContext
    client: ssl.SSLContext
    sessions: dict[str, ssl.SSLSession]


class FleetTls:
    """The TLS contexts of host `name`. Thread-safe."""

    def __init__(self, name: str, files: FleetFiles, now: Callable[[], float] = time.time) -> None:
        """Read the files. Raises FleetFilesError."""
        self.name, self._files, self._now = name, files, now
        self._lock, self._checked = threading.Lock(), time.monotonic()
        self._stamp = self._stamps()
        self._contexts = self._read()
        self.server = _Server(self)
        self.client = _Client(self)

    def current(self) -> _Contexts:
        """Return the contexts of the files as they are now."""
        with self._lock:
            if time.monotonic() - self._checked < _CHECK_SECONDS:
                return self._contexts
            self._checked = time.monotonic()
            try:
                stamp = self._stamps()
                if stamp != self._stamp:
                    self._stamp = stamp
                    self._contexts = self._read()
                    _log.info("fleet certificates read again", certificate=str(self._files.cert))
            except FleetFilesError as error:
                _log.warning("fleet certificates unusable, former kept", error=str(error))
            return self._contexts

    def problem(self, peer: Mapping[str, Any] | None, name: str) -> str:
        """Return the reason to refuse this peer's certificate for the host `name`; empty if it is right.

        A resumed TLS session is as good as the certificate that began it: its end is checked here again.
        """
        if not peer:
            return "it has no certificate"
        names = names_of(peer)
        if name not in names:
            return f"its certificate is for {_list_text(names)}, not for host `{name}`"
        if ssl.cert_time_to_seconds(peer["notAfter"]) <= self._now():
            return f"its certificate has expired ({peer['notAfter']})"
        return ""

    def remember(self, name: str, tls: ssl.SSLObject) -> None:
        """Keep the session of a connection to the host `name`, for the next handshake."""
        contexts = self._contexts
        if tls.context is contexts.client and (session := tls.session) is not None and session.has_ticket:
            contexts.sessions[name] = session

    def _stamps(self) -> tuple[tuple[int, int, int], ...]:
        try:
            stats = [path.stat() for path in (self._files.cert, self._files.key, self._files.authority)]
        except OSError as error:
            raise FleetFilesError(
                f"{error.filename}: {error.strerror}; set fleet_*_file to readable PEM files"
            ) from error
        if stats[1].st_mode & 0o037:
            raise FleetFilesError(
                f"{self._files.key} is a private key that others may use; run `chmod 0600 {self._files.key}`"
            )
        return tuple((file_stat.st_mtime_ns, file_stat.st_ino, file_stat.st_size) for file_stat in stats)

    def _read(self) -> _Contexts:
        _check_own(self.name, self._files.cert, self._now())
        contexts = []
        for protocol in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT):
            context = ssl.SSLContext(protocol)
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            try:
                context.load_cert_chain(self._files.cert, self._files.key)
                context.load_verify_locations(self._files.authority)
            except (OSError, ssl.SSLError) as error:
                files = f"{self._files.cert}, {self._files.key} and {self._files.authority}"
                raise FleetFilesError(
                    f"{files} can't be used for TLS: {error}; name PEM files that belong together"
                ) from error
            context.verify_mode = ssl.CERT_REQUIRED
            contexts.append(context)
        contexts[0].sslobject_class = _LoggedHandshake
        return _Contexts(contexts[0], contexts[1], {})


class _Server(ssl.SSLContext):
    """A listener's context, which takes each handshake's settings from the files of now."""

    def __new__(cls, _tls: FleetTls) -> "_Server":
        return super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)

    def __init__(self, tls: FleetTls) -> None:
        self._tls = tls

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        """As the base class."""
        return self._tls.current().server.wrap_bio(*arguments, **options)


class _Client(ssl.SSLContext):
    """The context of connections to other hosts. A session is resumed where there was one."""

    def __new__(cls, _tls: FleetTls) -> "_Client":
        return super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)

    def __init__(self, tls: FleetTls) -> None:
        self._tls = tls

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        """As the base class."""
        contexts = self._tls.current()
        session = contexts.sessions.get(str(options.get("server_hostname")))
        return contexts.client.wrap_bio(*arguments, **{**options, "session": session})


class _LoggedHandshake(ssl.SSLObject):
    """A server's TLS connection that logs a refused handshake: asyncio does not."""

    def do_handshake(self) -> None:
        """As the base class."""
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, ssl.SSLEOFError):
            raise
        except ssl.SSLError as error:
            _log.warning("connection to the fleet listener refused", error=why_refused(error))
            raise


def names_of(peer: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the DNS names of a certificate, as `getpeercert` gives it."""
    return tuple(value for kind, value in peer.get("subjectAltName", ()) if kind == "DNS")


def why_refused(error: BaseException) -> str:
    """Return the reason of a failed handshake in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or str(error)).removeprefix("TLSV1_").removeprefix("TLSV13_").removeprefix("SSLV3_")
        if reason.startswith("ALERT_"):
            return f"it refuses this host's certificate: {reason.removeprefix('ALERT_').replace('_', ' ').lower()}"
        return f"TLS: {reason.replace('_', ' ').lower()}"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno).lower()  # asyncio's own text names the call instead
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _check_own(name: str, cert: Path, now: float) -> None:
    """Raise FleetFilesError unless the certificate is this host's. An expired one is logged."""
    from cryptography import x509

    try:
        certificate = x509.load_pem_x509_certificates(cert.read_bytes())[0]
        listed = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names = listed.get_values_for_type(x509.DNSName)
    except x509.ExtensionNotFound:
        names = []
    except (OSError, ValueError) as error:
        raise FleetFilesError(f"{cert} is not a certificate in PEM form: {error}; set fleet_cert_file") from error
    if name not in names:
        raise FleetFilesError(
            f"{cert} is for {_list_text(names)}, not for host `{name}`; have one issued with the DNS name `{name}`"
        )
    if certificate.not_valid_after_utc.timestamp() <= now:  # the host's own sandboxes go on without the others
        _log.error(
            "fleet certificate expired", certificate=str(cert), until=certificate.not_valid_after_utc.isoformat()
        )


def seconds_left(cert: Path, now: float) -> float:
    """Return how long a certificate is valid from now on. Raises OSError; ValueError if it is none."""
    from cryptography import x509

    return x509.load_pem_x509_certificates(cert.read_bytes())[0].not_valid_after_utc.timestamp() - now


def _list_text(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "no host"
