"""Certificates of a fleet's hosts, for small fleets without an authority of their own, and for tests."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS, CERTIFICATE_DAYS = 3650, 825
_SLACK = timedelta(days=1)  # for clocks that are behind
_NO_USE = {
    "digital_signature": False, "content_commitment": False, "key_encipherment": False, "data_encipherment": False,
    "key_agreement": False, "key_cert_sign": False, "crl_sign": False, "encipher_only": False, "decipher_only": False,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key, in PEM."""

    cert: bytes
    key: bytes


def new_authority(name: str = "Paddock fleet", *, days: int = AUTHORITY_DAYS) -> Pair:
    """Return a new authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    usage = x509.KeyUsage(**{**_NO_USE, "key_cert_sign": True, "crl_sign": True})
    certificate = (
        _builder(name, _common_name(name), key.public_key(), datetime.now(UTC), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Pair(_pem(certificate), _key_pem(key))


def new_certificate(authority: Pair, host: str, *, days: int = CERTIFICATE_DAYS, now: datetime | None = None) -> Pair:
    """Return a new certificate of that authority for a host, and its key. Raises ValueError for an unusable authority.

    It is for both sides of a connection.
    """
    issuer = x509.load_pem_x509_certificate(authority.cert)
    signing = serialization.load_pem_private_key(authority.key, None)
    if (
        not isinstance(signing, (ec.EllipticCurvePrivateKey, rsa.RSAPrivateKey))
        or signing.public_key() != issuer.public_key()
    ):
        raise ValueError("the key is not the EC or RSA key of the authority's certificate")
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _builder(host, issuer.subject, key.public_key(), now or datetime.now(UTC), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(**{**_NO_USE, "digital_signature": True}), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.public_key()), critical=False)  # type: ignore[arg-type] # of an issuer
        .sign(signing, hashes.SHA256())
    )
    return Pair(_pem(certificate), _key_pem(key))


def new_request(host: str) -> Pair:
    """Return a request for a host's certificate, to be signed by the operator's authority, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    request = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(_common_name(host))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Pair(request.public_bytes(serialization.Encoding.PEM), _key_pem(key))


def _builder(
    name: str, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_common_name(name))
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SLACK)
        .not_valid_after(now + timedelta(days=days))
    )


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
