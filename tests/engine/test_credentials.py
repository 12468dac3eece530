"""Files of credentials: an authority that stays, its certificates, and headers as squid reads them."""

import re
import stat
from pathlib import Path

import pytest
from cryptography import x509

from controller.engine.mounts.authority import Authority
from controller.engine.mounts.credentials import CredentialFiles
from controller.engine.mounts.secrets import SecretFolder
from controller.kinds.runtime.credential import HostCredential, credentials_folder
from controller.kinds.runtime.mount import Mount
from controller.kinds.runtime.secret import NoSecret, SecretNotFound

HOST = "git.example.org"


def files(folder: Path, *values: tuple[str, bytes]) -> CredentialFiles:
    secrets = SecretFolder(folder / "secrets")
    for name, value in values:
        secrets.write(credentials_folder("default", HOST), name, value)
    return CredentialFiles(lambda: Authority(folder / "authority"), secrets)


def lines(made: CredentialFiles, *credentials: HostCredential, namespace: str = "default") -> str:
    return made.content(Mount("/a", "headers", credentials=credentials), namespace).decode()


def test_headers_are_written_as_squid_reads_them(tmp_path: Path) -> None:
    credential_files = files(tmp_path, ("token", b'a"b\\c%d\n'))
    bearer = HostCredential(HOST, "token", "Authorization", "Bearer")
    raw, basic = HostCredential(HOST, "token", "X-Key", "Raw"), HostCredential(HOST, "token", "X-Basic", "Basic", "me")
    assert lines(credential_files, bearer, raw, basic).splitlines() == [
        "acl inside connections_encrypted",
        "http_access deny CONNECT inside",
        f'request_header_add Authorization "Bearer a\\"b\\\\c%%d" {bearer.acl}',
        f'request_header_add X-Key "a\\"b\\\\c%%d" {bearer.acl}',
        f'request_header_add X-Basic "Basic bWU6YSJiXGMlZA==" {bearer.acl}',
    ]


@pytest.mark.parametrize("value", [b"two\nlines", b"\xff", "schl\u00fcssel".encode(), b" ", b"x" * 5000])
def test_a_value_that_is_no_header_is_refused(tmp_path: Path, value: bytes) -> None:
    credential_files = files(tmp_path, ("token", value))
    with pytest.raises(NoSecret, match="no value of a header") as refusal:
        lines(credential_files, HostCredential(HOST, "token", "Authorization", "Bearer"))
    assert "lines" not in str(refusal.value)


def test_a_secret_serves_its_host_and_namespace_alone(tmp_path: Path) -> None:
    credential_files = files(tmp_path, ("token", b"key"))
    with pytest.raises(SecretNotFound, match=re.escape("set token --for other.example.org -n default")):
        lines(credential_files, HostCredential("other.example.org", "token", "Authorization", "Bearer"))
    with pytest.raises(SecretNotFound):
        lines(credential_files, HostCredential(HOST, "token", "Authorization", "Bearer"), namespace="team-b")


def test_the_authority_stays_and_signs_for_these_hosts(tmp_path: Path) -> None:
    host_credentials = (HostCredential(HOST, "token", "Authorization", "Bearer"),)
    certificate = Mount("/a", "certificate", credentials=host_credentials)
    credential_files = files(tmp_path)
    [leaf] = x509.load_pem_x509_certificates(credential_files.content(certificate, "default"))
    again = files(tmp_path)
    bundle = again.content(Mount("/a", "authorities", "this host and Paddock"), "")
    own_certificate = x509.load_pem_x509_certificate(bundle)
    assert bundle.count(b"BEGIN CERTIFICATE") > 1
    leaf.verify_directly_issued_by(own_certificate)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [HOST]
    assert leaf.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False
    assert stat.S_IMODE((tmp_path / "authority" / "authority.pem").stat().st_mode) == 0o600
