"""The process that holds a port."""

import os
import socket
from pathlib import Path

import pytest

from controller.metrics.port_owner import port_owner


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_our_own_listener_is_found(family: socket.AddressFamily, host: str) -> None:
    if family == socket.AF_INET6 and not _has_ipv6():
        return
    with socket.create_server((host, 0), family=family) as listener:
        port = listener.getsockname()[1]
        assert port_owner(port).startswith(f"pid {os.getpid()} (")
    assert port_owner(port) == ""


def test_a_bound_socket_that_does_not_listen_is_not_named() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert port_owner(bound.getsockname()[1]) == ""


def test_a_proc_that_tells_nothing_gives_no_name(tmp_path: Path) -> None:
    assert port_owner(9464, tmp_path) == ""


def test_a_process_whose_files_are_hidden_is_passed_over(tmp_path: Path) -> None:
    line = "0: 0100007F:24F8 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4242 1 0 100 0 0 10 0"
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "tcp").write_text(f"  sl  local_address ...\n   {line}\n")
    (tmp_path / "7").mkdir()
    assert port_owner(9464, tmp_path) == ""
    (tmp_path / "8" / "fd").mkdir(parents=True)
    (tmp_path / "8" / "fd" / "3").symlink_to("socket:[4242]")
    assert port_owner(9464, tmp_path) == "pid 8"
    (tmp_path / "8" / "comm").write_text("nginx\n")
    assert port_owner(9464, tmp_path) == "pid 8 (nginx)"


def _has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False
