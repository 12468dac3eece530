"""Small files of an image, out of the archive that the engine sends."""

import io
import tarfile
from collections.abc import Iterator
from typing import Any

import pytest

from controller.engine.docker.client import Client
from controller.engine.docker.errors import Fault
from controller.engine.images.image_files import etc_files, text_of
from controller.ports import NullMeter


def archive(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tree:
        member = tarfile.TarInfo(name)
        member.type, member.size = kind, size
        tree.addfile(member, io.BytesIO(b"a" * size))
    return file.getvalue()


def test_a_regular_files_text_is_read() -> None:
    assert text_of([archive("passwd", 256 << 10)]) == "a" * (256 << 10)
    assert text_of([archive("passwd", 0, tarfile.DIRTYPE)]) == ""


def test_no_more_is_read_than_a_file_can_have() -> None:
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        yield archive("passwd", 0, tarfile.DIRTYPE)[:512]
        while True:
            sent += 1
            yield bytes(64 << 10)

    assert text_of(endless()) == ""
    assert sent < 10


class Failing(Client):
    """An engine that answers everything with one error."""

    fault = Fault("5xx", "no space left on device", status=500)

    def call(self, *_: Any, **__: Any) -> Any:
        raise self.fault


def test_an_engine_that_fails_says_nothing_of_an_image() -> None:
    client = Failing("unix:///run/docker.sock", meter=NullMeter(), timeout_seconds=1.0)
    with pytest.raises(Fault):
        etc_files(client, "sha256:a", ("passwd",))
    client.fault = Fault("4xx", "no such image", status=404)
    assert etc_files(client, "sha256:a", ("passwd",)) is None
