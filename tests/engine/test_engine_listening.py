"""Whether anybody listens where the engine is to be."""

import socket
from pathlib import Path

from controller.engine.docker.listening import listens


def test_a_socket_is_there_or_is_left_behind_or_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "engine.sock"
    assert not listens(f"unix://{path}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
        door.bind(str(path))
        assert not listens(f"unix://{path}"), "it takes no connections yet"
        door.listen()
        assert listens(f"unix://{path}")
    assert path.exists()
    assert not listens(f"unix://{path}"), "whoever made it has gone"


def test_of_another_machine_nothing_is_known() -> None:
    assert listens("tcp://127.0.0.1:1")
