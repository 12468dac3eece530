"""Engine mount namespace: one thread enters it, and it alone sees the mounts there."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.engine.kernel import mount_calls
from controller.engine.kernel.engine_namespace import EngineNamespace, NamespaceUnreachable

pytestmark = pytest.mark.docker  # it takes root, as the engine does
LISTEN = (
    "import socket,sys; s=socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); print(flush=True); input()"
)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Path]:
    """Somebody who listens at a socket, as an engine does, in a mount namespace of his own."""
    path = tmp_path / "engine.sock"
    command = ["unshare", "--mount", "--propagation", "private", sys.executable, "-c", LISTEN, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as listening:
        assert listening.stdout is not None
        assert listening.stdout.readline() == b"\n"
        yield path
        listening.kill()


def here() -> str:
    return os.readlink("/proc/thread-self/ns/mnt")


def test_what_is_mounted_there_is_not_mounted_here(engine: Path, tmp_path: Path) -> None:
    namespace, ours = EngineNamespace(f"unix://{engine}"), here()
    place = tmp_path / "place"
    place.mkdir()

    def mount() -> list[str]:
        tmpfs = mount_calls.tmpfs(mount_calls.NO_SUID, size="4096", mode="0755")
        target = os.open(place, os.O_PATH)
        mount_calls.attach(tmpfs, target)
        os.close(tmpfs)
        os.close(target)
        (place / "seen").touch()
        return sorted(os.listdir(place))

    assert namespace.run(mount) == ["seen"]
    assert os.listdir(place) == []
    output = namespace.run(here)
    assert (output != ours, here()) == (True, ours)
    namespace.close()
    assert EngineNamespace(f"unix://{engine}").run(here) == output


def test_remote_or_missing_engine_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NamespaceUnreachable, match="on another host"):
        EngineNamespace("tcp://engine.example.org:2375").run(here)
    with pytest.raises(NamespaceUnreachable, match="does not answer"):
        EngineNamespace(f"unix://{tmp_path / 'gone.sock'}").run(here)
