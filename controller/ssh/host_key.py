"""The host key of SSH: an ed25519 key in the state folder, made when it is first needed."""

import contextlib
import os
from pathlib import Path


def host_key(file: Path) -> str:
    """Return the private key in OpenSSH's form. Raises OSError, and ValueError for a file that holds none."""
    # Imported where it is used: it takes some MiB of a daemon that nobody asks for SSH.
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_ssh_private_key,
    )

    with contextlib.suppress(FileNotFoundError):
        text = file.read_text()
        load_ssh_private_key(text.encode(), password=None)
        return text
    text = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        new = file.with_name(f"{file.name}.{os.getpid()}")
        new.touch(mode=0o600)
        try:
            new.write_text(text)
            os.link(new, file)
        finally:
            new.unlink()
    return file.read_text()


def public_key(private: str) -> str:
    """Return the public key, as a line of OpenSSH."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_private_key

    key = load_ssh_private_key(private.encode(), password=None)
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
