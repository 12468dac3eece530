"""Files of credentials for hosts: the authority of this Paddock, its certificates, and the headers of the egress proxy.

The authority is created once, in the daemon's state folder; its key never leaves that. A proxy gets a certificate for
the hosts of its own sandbox alone, which only that sandbox and the others with credentials here trust.
"""

import base64
import os
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Lock

import certifi
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from controller.engine.mounts.secrets import SecretFolder
from controller.kinds.runtime.credential import HostCredential, credentials_folder
from controller.kinds.runtime.mount import Mount
from controller.kinds.runtime.secret import NoSecret, SecretNotFound, SecretStamp

_AUTHORITY_DAYS, _CERTIFICATE_DAYS = 3650, 825
_SLACK = timedelta(days=1)  # for clocks inside that are behind
_NAME = "Paddock of this host"
_MOST_BYTES = 4096  # of a header


class Authority:
    """The certificate authority in `folder`, created when it is first needed. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._lock = folder, Lock()

    def certificate(self) -> bytes:
        """Return its certificate (PEM)."""
        return self._load()[0].public_bytes(serialization.Encoding.PEM)

    def issue(self, hosts: Sequence[str]) -> bytes:
        """Return a new key and certificate for these hosts (PEM)."""
        authority, signing = self._load()
        key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
        names = x509.SubjectAlternativeName([x509.DNSName(each) for each in hosts])
        made = (
            _builder(key.public_key(), "egress", authority.subject, now, _CERTIFICATE_DAYS)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(names, critical=False)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(_issuer(signing), critical=False)
            .sign(signing, hashes.SHA256())
        )
        return _pem(key) + made.public_bytes(serialization.Encoding.PEM)

    def _load(self) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        with self._lock:
            path = self._folder / "authority.pem"
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                data = self._create(path)
            key = serialization.load_pem_private_key(data, None)
            assert isinstance(key, ec.EllipticCurvePrivateKey)
            return x509.load_pem_x509_certificate(data), key

    def _create(self, path: Path) -> bytes:
        key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _NAME)])
        usage = x509.KeyUsage(
            digital_signature=False, content_commitment=False, key_encipherment=False, data_encipherment=False,
            key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
        )  # fmt: skip
        made = (
            _builder(key.public_key(), _NAME, name, now, _AUTHORITY_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        data = _pem(key) + made.public_bytes(serialization.Encoding.PEM)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
        return data


class CredentialFiles:
    """Contents of the mounts of credentials."""

    def __init__(self, authority: Authority, secrets: SecretFolder) -> None:
        self._authority, self._secrets = authority, secrets

    def content(self, mount: Mount, namespace: str) -> bytes:
        """Return the content of a file. Raises NoSecret, OSError."""
        if mount.kind == "headers":
            return "".join(self._line(each, namespace) for each in mount.credentials).encode()
        if mount.kind == "certificate":
            return self._authority.issue(sorted({each.host for each in mount.credentials}))
        own = b"" if mount.source == "this host" else self._authority.certificate()
        return own + _roots()

    def stamps(self, mount: Mount, namespace: str) -> tuple[SecretStamp, ...]:
        """Return the present states of the secrets in a file. Never raises."""
        if mount.kind != "headers":
            return ()
        names = {(credentials_folder(namespace, each.host), each.secret) for each in mount.credentials}
        return tuple(self._secrets.stamp(*each) for each in sorted(names))

    def is_current(self, known: SecretStamp) -> bool:
        """Return True if that secret is as it was then. Never raises."""
        return self._secrets.stamp(known.folder, known.name) == known

    def _line(self, asked: HostCredential, namespace: str) -> str:
        """Return the line of squid's configuration that adds a header to requests to that host."""
        value = self._value(asked, namespace)
        if asked.scheme == "Basic":
            value = base64.b64encode(f"{asked.user}:{value}".encode()).decode()
        text = value if asked.scheme == "Raw" else f"{asked.scheme} {value}"
        for special in ("\\", '"'):
            text = text.replace(special, f"\\{special}")
        text = text.replace("%", "%%")
        return f'request_header_add {asked.header} "{text}" {asked.acl}\n'

    def _value(self, asked: HostCredential, namespace: str) -> str:
        name, host = asked.secret, asked.host
        try:
            found = self._secrets.read(credentials_folder(namespace, host), name)
        except SecretNotFound as error:
            words = f"there is no secret `{name}` for {host} in namespace `{namespace}`"
            command = f"paddock secret set {name} --for {host} -n {namespace}"
            raise SecretNotFound(f"{words}; set it on the host: {command}") from error
        text = found.decode(errors="replace").strip()
        if not text or not text.isascii() or not text.isprintable() or len(text) > _MOST_BYTES:
            words = f"it is empty, longer than {_MOST_BYTES} bytes, or has other than printable ASCII characters"
            raise NoSecret(f"the secret `{name}` for {host} is no value of a header: {words}; set it again")
        return text


def _builder(
    key: ec.EllipticCurvePublicKey, name: str, issuer: x509.Name, now: datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SLACK)
        .not_valid_after(now + timedelta(days=days))
    )


def _issuer(signing: ec.EllipticCurvePrivateKey) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key())


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _roots() -> bytes:
    """Return the certificates of authorities that this host trusts, or certifi's if it has none."""
    found = ssl.get_default_verify_paths().cafile
    for each in (found, "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"):
        if each and Path(each).is_file():
            return Path(each).read_bytes()
    return Path(certifi.where()).read_bytes()
