"""Operator secrets: refused if others may read or write them; no message contains a value."""

import os
import socket
from pathlib import Path

import pytest

from controller.engine.mounts.secrets import MOST_BYTES, SecretFolder
from controller.kinds.runtime.secret import NoSecret, SecretRef
from controller.service.exec.secrets import secret_text

VALUE = "s3cret-value"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "secrets"
    (path / "team").mkdir(parents=True)
    path.chmod(0o700)
    (path / "team").chmod(0o700)
    return path


def put(folder: Path, name: str = "token", text: str = VALUE + "\n", mode: int = 0o600) -> Path:
    path = folder / "team" / name
    path.write_text(text)
    path.chmod(mode)
    return path


def refusal(folder: Path, name: str = "token", namespace: str = "team") -> str:
    with pytest.raises(NoSecret) as refused:
        SecretFolder(folder).read(namespace, name)
    assert VALUE not in str(refused.value)
    return str(refused.value)


def test_a_secret_is_read_by_namespace_and_name(folder: Path) -> None:
    put(folder)
    assert SecretFolder(folder).read("team", "token") == b"s3cret-value\n"
    assert "not found" in refusal(folder, namespace="other")
    assert "write `sudo paddock secret set token --for sandboxes -n other`" in refusal(folder, namespace="other")
    SecretFolder(folder).write("team.models", "key", b"a")
    assert "; the one of that name is for providers; write" in refusal(folder, name="key")
    assert "not found" in refusal(folder, name="other")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o610])
def test_what_others_may_read_is_no_secret(folder: Path, mode: int) -> None:
    put(folder, mode=mode)
    assert "chmod 600" in refusal(folder)


def test_what_others_may_exchange_is_not_trusted(folder: Path) -> None:
    put(folder)
    (folder / "team").chmod(0o770)
    assert "chmod go-w" in refusal(folder)
    (folder / "team").chmod(0o700)
    folder.chmod(0o702)
    assert "chmod go-w" in refusal(folder)


@pytest.mark.parametrize("name", ["..", "../team/token", ".hidden", "", "a/b"])
def test_no_name_leads_elsewhere(folder: Path, name: str) -> None:
    put(folder)
    assert "invalid name" in refusal(folder, name=name)
    assert "invalid name" in refusal(folder, namespace=name)


def test_links_fifos_and_sockets_are_refused(folder: Path, tmp_path: Path) -> None:
    real = put(folder, "real")
    (folder / "team" / "link").symlink_to(real)
    (folder / "linked").symlink_to(folder / "team")
    os.mkfifo(folder / "team" / "fifo", 0o600)
    listening = socket.socket(socket.AF_UNIX)
    try:
        os.chdir(folder / "team")
        listening.bind("socket")
    finally:
        listening.close()
        os.chdir(Path(__file__).parents[2])
    assert "contains a symlink" in refusal(folder, "link")
    assert "contains a symlink" in refusal(folder, "real", namespace="linked")
    assert "not a regular file" in refusal(folder, "fifo")
    refusal(folder, "socket")
    (folder / "team" / "folder").mkdir(mode=0o700)
    refusal(folder, "folder")
    os.link(real, tmp_path / "elsewhere")
    assert "hard link" in refusal(folder, "real")


def test_what_is_too_large_is_refused(folder: Path) -> None:
    put(folder, text="x" * (MOST_BYTES + 1))
    assert "larger than" in refusal(folder)


def test_a_variable_has_no_trailing_newline(folder: Path) -> None:
    put(folder)
    secrets = SecretFolder(folder)
    assert secret_text(secrets, "team", SecretRef("token")) == VALUE
    for content in (b"\xff" + VALUE.encode(), b"\0" + VALUE.encode()):
        (folder / "team" / "token").write_bytes(content)
        with pytest.raises(NoSecret) as refused:
            secret_text(secrets, "team", SecretRef("token"))
        assert VALUE not in str(refused.value)
        assert "as a file" in str(refused.value)
