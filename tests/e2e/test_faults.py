"""Failures around the daemon: no engine, no store. They are reported, and the daemon recovers."""

import json
import os
import signal
import socket
import sqlite3
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.contract.engine_proxy import Proxy
from tests.daemon import docker, running, start_daemon, wait_for

SANDBOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: later}
spec:
  template: {image: "paddock/test-tiny:1", command: ["sleep", "1000000"]}
  resources: {limits: {memory: 64Mi}}
"""


def test_without_an_engine_the_daemon_serves_and_reports_it(tmp_path: Path) -> None:
    daemon = start_daemon(tmp_path, PADDOCK_DOCKER_HOST=f"unix://{tmp_path / 'no-engine.sock'}")
    try:
        daemon.apply(SANDBOX)
        wait_for("the object says so", lambda: daemon.condition("later", "Ready").get("reason") == "EngineUnreachable")
        assert daemon.condition("later", "Ready")["status"] == "Unknown"
        row = daemon.paddock("get", "sandboxes").stdout.splitlines()[1].split()
        assert row[:3] == ["later", "Unknown", "EngineUnreachable"]
        assert "engine" in daemon.ready_page()
        assert "no-engine.sock" in daemon.ready_page()
        output = daemon.paddock("exec", "later", "--", "true", check=False)
        assert output.returncode == 1
        assert "engine" in output.stderr
    finally:
        assert daemon.stop() == 0


def test_signals_at_any_moment_end_it(tmp_path: Path) -> None:
    """Also while its main thread is about to wait, or is handling the one before."""
    daemon = start_daemon(tmp_path, PADDOCK_DOCKER_HOST=f"unix://{tmp_path / 'no-engine.sock'}")
    try:
        for _ in range(500):
            if daemon.process.poll() is not None:
                break
            daemon.process.send_signal(signal.SIGTERM)
        assert daemon.process.wait(30) == 0
    finally:
        if daemon.process.poll() is None:
            daemon.kill()


@pytest.mark.docker
@pytest.mark.skipif("PADDOCK_TEST_NEWER" in os.environ, reason="a proxy hides the engine's mounts")
def test_it_recovers_when_the_engine_comes_and_goes(tmp_path: Path) -> None:
    """The engine appears, disappears and comes back; sandboxes keep running."""
    (tmp_path / "engine").mkdir()
    engine = Proxy(tmp_path / "engine")
    with running(tmp_path, PADDOCK_DOCKER_HOST=engine.base_url, PADDOCK_RESYNC_SECONDS="1") as daemon:
        try:
            daemon.apply(SANDBOX)
            wait_for("it is blind", lambda: daemon.condition("later", "Ready").get("reason") == "EngineUnreachable")
            engine.up()
            daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/later")
            assert "[+]engine ok" in daemon.ready_page()
            output = docker("ps", "--no-trunc", "-q", "--filter", f"label=paddock.instance={daemon.instance_id()}")
            engine.cut()
            wait_for("it is blind again", lambda: daemon.condition("later", "Ready").get("status") == "Unknown")
            engine.up()
            daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/later")
            again = docker("ps", "--no-trunc", "-q", "--filter", f"label=paddock.instance={daemon.instance_id()}")
            assert again == output, "nothing was made twice"
            assert daemon.get("later")["status"]["restartCount"] == 0
        finally:
            daemon.stop()
            engine.end()


@pytest.mark.docker
def test_silent_connections_block_nobody(tmp_path: Path) -> None:
    """Of anybody who comes to the TCP door, in the middle of its TLS handshake, to a daemon with few files."""
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    texts = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2"]
    subprocess.run([*texts, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True, timeout=60)
    tls = {"PADDOCK_TLS_CERT_FILE": str(cert), "PADDOCK_TLS_KEY_FILE": str(key)}
    few = ("prlimit", "--nofile=400:400")
    door = {"PADDOCK_API_HOST": "127.0.0.1", "PADDOCK_API_PORT": "0"}
    with running(tmp_path / "state", prefix=few, **door, **tls) as daemon, ExitStack() as stack:
        port = int(daemon.served()["api"].rpartition(":")[2])
        for _ in range(900):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
        daemon.apply(SANDBOX)
        daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/later")
        assert daemon.paddock("exec", "later", "--", "echo", "hello").stdout == "hello\n"
        assert len(os.listdir(f"/proc/{daemon.process.pid}/fd")) < 300
        assert "Too many open files" not in "".join(daemon.log)


def test_an_unreachable_database_is_reported(tmp_path: Path) -> None:
    url = "postgresql+psycopg://nobody@127.0.0.1:9/paddock"
    daemon = start_daemon(tmp_path, ready=False, PADDOCK_DATABASE_URL=url)
    assert daemon.process.wait(60) == 1
    wait_for("it says why", lambda: "store: can't be used" in "".join(daemon.log))
    assert not daemon.socket.exists()


def test_an_unusable_state_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    daemon = start_daemon(tmp_path / "file" / "state", ready=False, PADDOCK_SOCKET=str(tmp_path / "s.sock"))
    assert daemon.process.wait(90) == 1
    wait_for("it says what to do", lambda: "PADDOCK_STATE_DIR" in "".join(daemon.log))


@pytest.mark.parametrize(("name", "value"), [("PADDOCK_WORKERS", "none"), ("PADDOCK_METRICS_PORT", "99999")])
def test_bad_settings_are_reported_by_name(tmp_path: Path, name: str, value: str) -> None:
    daemon = start_daemon(tmp_path, ready=False, **{name: value})
    assert daemon.process.wait(90) == 2
    wait_for("it names the setting", lambda: name.removeprefix("PADDOCK_").lower() in "".join(daemon.log))


def test_a_newer_database_is_refused(tmp_path: Path) -> None:
    first = start_daemon(tmp_path, PADDOCK_DOCKER_HOST=f"unix://{tmp_path / 'no-engine.sock'}")
    assert first.stop() == 0
    connection = sqlite3.connect(tmp_path / "paddock.db")
    with connection:
        connection.execute("UPDATE alembic_version SET version_num = 'from-the-future'")
        connection.execute("UPDATE meta SET compatible_since = 'from-the-future'")
    connection.close()
    second = start_daemon(tmp_path, ready=False)
    assert second.process.wait(90) == 1
    wait_for("it says so", lambda: "newer" in "".join(second.log))


def test_logs_are_json_lines_and_name_their_object(tmp_path: Path) -> None:
    daemon = start_daemon(tmp_path, PADDOCK_DOCKER_HOST=f"unix://{tmp_path / 'no-engine.sock'}")
    try:
        daemon.apply(SANDBOX)
    finally:
        daemon.stop()
    lines = [json.loads(line) for line in daemon.log]
    assert any(line.get("object") == "sandbox/default/later" for line in lines)


def test_the_socket_is_for_owner_and_group_only(tmp_path: Path) -> None:
    daemon = start_daemon(tmp_path, PADDOCK_DOCKER_HOST=f"unix://{tmp_path / 'no-engine.sock'}")
    try:
        assert daemon.socket.stat().st_mode & 0o777 == 0o660
    finally:
        daemon.stop()
    assert not daemon.socket.exists()
