"""The certificate authority of this host, of which only its own proxies' certificates are."""

import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Lock

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_AUTHORITY_DAYS, _CERTIFICATE_DAYS = 3650, 825
_SLACK = timedelta(days=1)  # for clocks inside that are behind
_NAME = "Paddock of this host"


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
        names = x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts])
        certificate = (
            _builder(key.public_key(), "egress", authority.subject, now, _CERTIFICATE_DAYS)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(names, critical=False)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(_issuer(signing), critical=False)
            .sign(signing, hashes.SHA256())
        )
        return _pem(key) + certificate.public_bytes(serialization.Encoding.PEM)

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
        certificate = (
            _builder(key.public_key(), _NAME, name, now, _AUTHORITY_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        data = _pem(key) + certificate.public_bytes(serialization.Encoding.PEM)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
        return data


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
