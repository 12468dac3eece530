"""Certificate authorities of this host's own, for sandboxes with a network: pip, npm, git and curl trust them there.

    <folder>/authorities.crt      what this host trusts; bound read-only to HOST_AUTHORITIES

A host without authorities of its own adds none: images bring the public ones. How a container is made is no part of its
hash: those that are there stay as they are.
"""

import logging
import os
import ssl
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import certifi

from controller.engine.kernel.engine_namespace import EngineNamespace, NamespaceUnreachable
from controller.policy.container.credentials import HOST_AUTHORITIES

_log = logging.getLogger(__name__)
_ROOT = Path("/")
_BUNDLES = ("etc/ssl/certs/ca-certificates.crt", "etc/pki/tls/certs/ca-bundle.crt", "etc/ssl/ca-bundle.pem")
# Where distributions (Debian and Alpine; Fedora; Arch; SUSE) look for an administrator's own ones.
_ANCHORS = (
    "usr/local/share/ca-certificates",
    "etc/pki/ca-trust/source/anchors",
    "etc/ca-certificates/trust-source/anchors",
    "etc/pki/trust/anchors",
)
_VARIABLES = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
_MOST_BYTES = 4 << 20
_BEGIN = b"-----BEGIN CERTIFICATE-----"
_FILE = "authorities.crt"


def host_roots(root: Path = _ROOT) -> bytes:
    """Return the certificates of authorities that this host trusts, or certifi's if it has none."""
    default = ssl.get_default_verify_paths().cafile
    for file in (Path(default or ""), *(root / bundle for bundle in _BUNDLES)):
        if file.is_file():
            return file.read_bytes()
    return Path(certifi.where()).read_bytes()


def own_authorities(root: Path = _ROOT, env: Mapping[str, str] | None = None) -> bytes:
    """Return all that this host trusts, if authorities of its own are among that; else b"".

    Its own ones are those in the folders of its administrator, and in files that variables of this process name.
    """
    files = list(dict.fromkeys([*_anchors(root), *_configured_files(root, os.environ if env is None else env)]))
    own_texts = [text for text in map(_certificates, files) if text]
    if not own_texts:
        return b""
    roots = host_roots(root)
    return b"\n".join([roots, *(text for text in own_texts if text.strip() not in roots)])


def _anchors(root: Path) -> Iterator[Path]:
    for folder in _ANCHORS:
        yield from sorted(path for path in (root / folder).rglob("*") if path.suffix in (".crt", ".pem"))


def _configured_files(root: Path, env: Mapping[str, str]) -> Iterator[Path]:
    """Yield the files of variables, but for the bundle that the distribution makes by itself."""
    bundles = {str(root / bundle) for bundle in _BUNDLES}
    for name in _VARIABLES:
        path = str(root / env.get(name, "").lstrip("/"))
        if env.get(name) and path not in bundles:
            yield Path(path)


def _certificates(file: Path) -> bytes:
    """Return a file of certificates in PEM; b"" for any other, and for one that can't be read."""
    try:
        with file.open("rb") as opened:
            text = opened.read(_MOST_BYTES)
    except OSError:
        return b""
    return text if _BEGIN in text else b""


class HostAuthorities:
    """The file of these certificates, in a folder of the engine's machine. Thread-safe."""

    def __init__(self, folder: Path, base_url: str) -> None:
        self._folder, self._namespace = folder, EngineNamespace(base_url)

    def mounts(self) -> Sequence[Mapping[str, Any]]:
        """Write the file anew if it has changed, and return its mount for the engine's create call.

        There is none on a host without authorities of its own, or if it can't be written. Never raises.
        """
        try:
            text = own_authorities()
            if not text:
                return []
            folder = self._namespace.root() / self._folder.relative_to("/")
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            file = folder / _FILE
            if not file.is_file() or file.read_bytes() != text:
                new = folder / f"{_FILE}.{os.getpid()}.{os.urandom(4).hex()}"
                new.write_bytes(text)
                new.chmod(0o644)
                new.replace(file)
        except (NamespaceUnreachable, OSError) as error:
            _log.warning("authorities of this host not written: %s", error)
            return []
        source = str(self._folder / _FILE)
        return [{"Type": "bind", "Source": source, "Target": HOST_AUTHORITIES, "ReadOnly": True}]
