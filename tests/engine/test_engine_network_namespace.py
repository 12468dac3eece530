"""Network namespaces that are never entered, and the errors. For real sandboxes see test_engine_probes.py."""

from pathlib import Path

import pytest

from controller.engine.kernel.network_namespace import NetworkUnreachable, socket_in

ID = "c0ffee" * 10


def proc(folder: Path, *, cgroup: str, host: bool = False) -> Path:
    """A /proc with one process, 7, that is in the host's network or in another one."""
    for name in ("7", "self"):
        (folder / name / "ns").mkdir(parents=True)
    (folder / "self/ns/net").write_text("")
    (folder / "7/cgroup").write_text(cgroup)
    if host:
        (folder / "7/ns/net").hardlink_to(folder / "self/ns/net")
    else:
        (folder / "7/ns/net").write_text("")
    return folder


def test_the_hosts_network_is_not_entered(tmp_path: Path) -> None:
    with pytest.raises(NetworkUnreachable, match="no network of its own"):
        socket_in(7, ID, proc(tmp_path, cgroup=f"0::/docker/{ID}\n", host=True))


def test_a_reused_pid_is_not_entered(tmp_path: Path) -> None:
    with pytest.raises(NetworkUnreachable, match="no longer belongs to container c0ffeec0ffee"):
        socket_in(7, ID, proc(tmp_path, cgroup="0::/system.slice/cron.service\n"))


def test_a_process_that_is_gone_says_so(tmp_path: Path) -> None:
    with pytest.raises(NetworkUnreachable, match="no such file"):
        socket_in(8, ID, proc(tmp_path, cgroup=f"0::/docker/{ID}\n"))


def test_kernel_errors_leave_no_socket(tmp_path: Path) -> None:
    with pytest.raises(NetworkUnreachable, match=r"invalid argument|needs root"):
        socket_in(7, ID, proc(tmp_path, cgroup=f"0::/docker/{ID}\n"))
