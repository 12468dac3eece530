"""Attestation data from the kernel's files, and tampering with a real sandbox."""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.engine.kernel.inside import parse_mounts, read_inside
from controller.kinds.observed.inside import NAMESPACES
from controller.policy.attest.attest import differing, facts
from tests.contract.engine_hosts import EngineHost, docker_host
from tests.contract.test_engine_attest import rendered, run
from tests.daemon import docker, running
from tests.e2e.test_sandbox import container, ready, sandbox_document

MOUNTINFO = """\
100 99 0:50 / / rw,relatime master:1 - overlay overlay ro,lowerdir=/a,upperdir=/b
101 100 0:51 / /tmp rw,nosuid,nodev,noexec - tmpfs tmpfs rw,size=65536k,uid=20000
102 100 0:52 / /a\\040b rw - tmpfs tmpfs rw,nr_blocks=2
103 100 0:53 / /tmp ro - ext4 /dev/sda1 rw
104 100 0:54 / /shm rw - tmpfs shm rw
"""


def test_the_top_mount_at_a_path_counts() -> None:
    document = {mount.path: mount for mount in parse_mounts(MOUNTINFO)}
    assert list(document) == ["/", "/a b", "/tmp", "/shm"]
    assert not document["/"].writable  # the file system itself is read-only
    assert (document["/tmp"].kind, document["/tmp"].writable) == ("ext4", False)
    assert (document["/a b"].size_bytes, document["/shm"].size_bytes) == (2 * os.sysconf("SC_PAGE_SIZE"), 0)


def test_a_foreign_process_is_unreadable(tmp_path: Path) -> None:
    assert "on the engine's own host" in read_inside(os.getpid(), "0" * 64).unread
    assert "can't be read" in read_inside(1 << 30, "0" * 64).unread
    (tmp_path / "5").mkdir()
    (tmp_path / "5" / "cgroup").write_text("0::/docker/abc\n")
    assert "can't be read" in read_inside(5, "abc", tmp_path).unread
    (tmp_path / "5" / "comm").write_text("sleep\n")
    (tmp_path / "5" / "status").write_text("Name:\tsleep\n")
    (tmp_path / "5" / "uid_map").write_text("0 100000 65536\n")
    (tmp_path / "5" / "gid_map").write_text("0 100000 65536\n")
    assert "please report this" in read_inside(5, "abc", tmp_path).unread


def made_up(proc: Path, pid: int) -> None:
    """A process of the container `abc`, as far as files can be; its namespaces are its own."""
    (proc / str(pid) / "net").mkdir(parents=True)
    (proc / str(pid) / "ns").mkdir()
    (proc / "self" / "ns").mkdir(parents=True, exist_ok=True)
    status = dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapAmb", "CapBnd"), "0")
    status |= {"Uid": "1 1 1 1", "Gid": "1 1 1 1", "Groups": "", "NoNewPrivs": "1", "Seccomp": "2"}
    files = {
        "cgroup": "0::/docker/abc\n",
        "comm": "sleep\n",
        "status": "".join(f"{name}:\t{value}\n" for name, value in status.items()),
        "uid_map": "0 0 65536\n",
        "gid_map": "0 0 65536\n",
        "mountinfo": MOUNTINFO,
        "net/dev": "\n\n",
        "net/route": "\n",
    }
    for name, text in files.items():
        (proc / str(pid) / name).write_text(text)
    for name in (*NAMESPACES, "user"):
        (proc / str(pid) / "ns" / name).symlink_to(f"{name}:[2]")
        (proc / "self" / "ns" / name).symlink_to(f"{name}:[1]")


def test_an_ending_process_shares_no_namespaces(tmp_path: Path) -> None:
    """An ended process has no namespaces, as on a kernel without them."""
    made_up(tmp_path, 5)
    inside = read_inside(5, "abc", tmp_path)
    assert (inside.unread, inside.shared, inside.own_users) == ("", (), True)
    for name in NAMESPACES:
        (tmp_path / "5" / "ns" / name).unlink()
    assert read_inside(5, "abc", tmp_path).unread == "its PID 1 can't be read: no such process"


@pytest.fixture
def host() -> Iterator[EngineHost]:
    with docker_host() as created:
        yield created.settled()


@pytest.mark.docker
def test_an_interface_put_into_a_sandbox_is_told(host: EngineHost) -> None:
    config, uid = rendered("full-isolation"), host.new_uid()
    run(host, uid, config)
    observed = host.only(uid)
    link = ["ip", "link", "add", "name", "p0", "type", "veth", "peer", "name", "p1"]
    subprocess.run(["nsenter", "--target", str(observed.pid), "--net", *link], check=True)
    assert (
        differing(facts(config, read_inside(observed.pid, observed.id)))
        == "network interfaces: found p0, p1, wanted none"
    )


@pytest.mark.docker
def test_reading_is_quick(host: EngineHost) -> None:
    """Under 15 ms, by processor time: the machine may be busy otherwise."""
    uid = host.new_uid()
    run(host, uid, rendered("full-isolation"))
    observed, start = host.only(uid), time.process_time()
    for _ in range(100):
        read_inside(observed.pid, observed.id)
    assert time.process_time() - start < 1.5


@pytest.mark.docker
def test_a_daemon_kills_a_tampered_sandbox(tmp_path: Path) -> None:
    with running(tmp_path) as daemon:
        daemon.apply(sandbox_document("own"))
        ready(daemon, "own")
        document = json.loads(daemon.paddock("attest", "own", "-o", "json").stdout)
        assert (document["secured"], document["message"]) == ("True", "read back from inside as rendered")
        daemon.paddock("wait", "--for=condition=Secured", "--timeout=30s", "sandbox/own")
        pid = str(container(daemon, "own")["State"]["Pid"])
        subprocess.run(
            ["nsenter", "--target", pid, "--mount", "--pid", "/bin/mount", "-o", "remount,rw", "/"], check=True
        )
        output = daemon.paddock("attest", "own", check=False)
        assert output.returncode == 1
        assert "read-only root: found no, wanted yes" in output.stdout
        daemon.paddock("wait", "--for=condition=Secured=False", "--timeout=30s", "sandbox/own")
        daemon.paddock("wait", "--for=jsonpath={.status.lastTermination.reason}=Killed", "--timeout=30s", "sandbox/own")
        assert docker("inspect", "--format", "{{.State.Status}}", container(daemon, "own")["Id"]).strip() == "exited"
