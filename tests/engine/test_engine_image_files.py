"""Small files of an image, out of the archive that the engine sends."""

import io
import tarfile
from collections.abc import Iterator

from controller.engine.docker.image_files import text_of


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
