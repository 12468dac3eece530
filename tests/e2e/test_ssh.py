"""OpenSSH's own client in sandboxes: commands, terminals, files, ports, and what a lost connection means."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pexpect
import pytest

from tests.daemon import ROOT, RunningDaemon, running, wait_for

pytestmark = [
    pytest.mark.docker,
    pytest.mark.skipif(shutil.which("ssh") is None, reason="needs OpenSSH's client, which deploy/test.sh installs"),
]
SANDBOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: box}
spec:
  template: {image: "paddock/python:1", command: ["sleep", "1000000"]}
  resources: {limits: {memory: 256Mi, pids: 64}}
  lifecycle: {shutdownGracePeriodSeconds: 0}
"""


class Client:
    """OpenSSH's programs as somebody has them after `paddock ssh setup`, with a home of their own."""

    def __init__(self, daemon: RunningDaemon, home: Path) -> None:
        self.daemon, self.home = daemon, home
        self.environment = {**daemon.environment, "HOME": str(home)}
        # On the search path as an installed one is: OpenSSH starts it as its ProxyCommand.
        program = home / "paddock"
        program.write_text(f'#!/bin/sh\ncd {ROOT} && exec {sys.executable} -m controller "$@"\n')
        program.chmod(0o755)
        self.program = str(program)
        setup = self.paddock("ssh", "setup")
        assert setup.returncode == 0, setup.stderr
        config = home / ".ssh/paddock_config"
        config.write_text(config.read_text().replace(f"{sys.executable} -P -m controller", self.program))

    def paddock(self, *words: str, **options: Any) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [self.program, *words],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            **options,
        )

    def run(self, program: str, *words: str, **options: Any) -> "subprocess.CompletedProcess[bytes]":
        command = [program, "-F", str(self.home / ".ssh/config"), *words]
        return subprocess.run(command, env=self.environment, capture_output=True, timeout=60, check=False, **options)

    def output(self, command: str, **options: Any) -> str:
        """Standard output of a command in the sandbox, which succeeds."""
        done = self.run("ssh", "box.paddock", command, **options)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()

    def begin(self, *words: str) -> "subprocess.Popen[bytes]":
        command = ["ssh", "-F", str(self.home / ".ssh/config"), *words]
        return subprocess.Popen(command, env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with running(tmp_path_factory.mktemp("daemon"), PADDOCK_STALL_SECONDS="0.5") as daemon:
        daemon.apply(SANDBOX)
        daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/box")
        yield Client(daemon, tmp_path_factory.mktemp("home"))


def test_a_command_keeps_streams_input_and_exit_code(client: Client) -> None:
    done = client.run("ssh", "box.default.paddock", "cat; echo bad >&2; exit 7", input=b"\0\xff binary\n")
    assert (done.returncode, done.stdout, done.stderr) == (7, b"\0\xff binary\n", b"bad\n")
    by_paddock = client.paddock("ssh", "box", "--", "echo $0; pwd")
    assert by_paddock.stdout.splitlines() == ["/bin/bash", "/workspace"], by_paddock.stderr


def test_a_terminal_has_a_size_and_keys(client: Client) -> None:
    terminal = pexpect.spawn(
        "ssh",
        ["-F", str(client.home / ".ssh/config"), "box.paddock"],
        env={**client.environment, "TERM": "xterm"},
        timeout=60,
        dimensions=(24, 80),
    )
    terminal.expect(r"\$ ")
    terminal.sendline("until [ \"$(stty size)\" = '24 80' ]; do :; done; echo si''zed $TERM")
    terminal.expect("sized xterm")
    terminal.setwinsize(41, 123)
    terminal.sendline("until [ \"$(stty size)\" = '41 123' ]; do :; done; echo resi''zed")
    terminal.expect("resized")
    terminal.sendline("sh -c \"echo sle''eping; sleep 1000\"")
    terminal.expect("sleeping")
    terminal.sendintr()
    terminal.sendline("echo ba''ck; exit 7")
    terminal.expect("back")
    terminal.expect(pexpect.EOF)
    terminal.wait()
    assert terminal.exitstatus == 7


def test_files_are_copied_renamed_and_linked(client: Client, tmp_path: Path) -> None:
    source = tmp_path / "with space"
    source.write_bytes(os.urandom(3_000_000))
    source.chmod(0o640)
    os.utime(source, (1_000_000_000, 1_000_000_000))
    assert client.run("scp", "-p", str(source), "box.paddock:with space").returncode == 0
    script = "rename 'with space' moved\nsymlink moved link\nln moved hard\nchmod 600 moved\nmkdir folder\nls -l\n"
    listed = client.run("sftp", "-b", "-", "box.paddock", input=script.encode())
    assert listed.returncode == 0, listed.stderr
    shown = client.output("stat -c '%n %a %h %Y' moved folder; readlink link; rmdir folder; rm hard")
    assert shown == "moved 600 2 1000000000\n" + shown.splitlines()[1] + "\nmoved\n"
    assert shown.splitlines()[1].startswith("folder 755 ") or shown.splitlines()[1].startswith("folder 2755 ")
    assert client.run("scp", "box.paddock:link", str(tmp_path / "back")).returncode == 0
    assert (tmp_path / "back").read_bytes() == source.read_bytes()


def test_a_paused_reader_loses_no_byte(client: Client) -> None:
    with client.begin("box.paddock", "head -c 20000000 /dev/zero; echo end") as reading:
        assert reading.stdout is not None
        first = reading.stdout.read(1)
        client.output("sleep 1")  # longer than a stalled client of the API has
        data = first + reading.stdout.read()
    assert (len(data), data[-4:], reading.returncode) == (20_000_004, b"end\n", 0)


def test_a_lost_connection_hangs_up_like_sshd(client: Client) -> None:
    lost = client.begin(
        "-tt", "box.paddock", "setsid sh -c 'exec sleep 4001' & sh -c 'exec sleep 4002' & echo on; sleep 4003"
    )
    assert lost.stdout is not None
    assert lost.stdout.readline().strip() == b"on"
    lost.kill()
    lost.communicate()

    def sleeping() -> list[str]:
        names = "for each in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < $each 2>/dev/null; echo; done"
        return sorted(line for line in client.output(names).splitlines() if line.startswith("sleep 400"))

    wait_for("the session has ended", lambda: sleeping() == ["sleep 4001 "])


def test_a_port_of_the_sandbox_is_forwarded(client: Client) -> None:
    server = "import http.server as h; h.test(h.SimpleHTTPRequestHandler, port=8899, bind='127.0.0.1')"
    client.output(f'cd /etc; setsid python3 -c "{server}" >/dev/null 2>&1 </dev/null & true')
    request = b"GET /hostname HTTP/1.0\r\n\r\n"

    def answer() -> bytes:
        return client.run("ssh", "-W", "localhost:8899", "box.paddock", input=request).stdout

    wait_for("an answer", lambda: b"200 OK" in answer())
    refused = client.run("ssh", "-W", "192.0.2.1:80", "box.paddock", input=b"")
    assert b"only ports of the sandbox itself are forwarded" in refused.stderr


def test_refusals_are_one_line(client: Client) -> None:
    unknown = client.run("ssh", "nobody.paddock", "true")
    assert (unknown.returncode, unknown.stderr.splitlines()[0]) == (
        255,
        b"error: sandboxes `nobody` not found in namespace `default`",
    )
    client.daemon.paddock("set", "run-state", "sandbox/box", "Suspended")
    client.daemon.paddock("wait", "--for=condition=Suspended", "--timeout=60s", "sandbox/box")
    try:
        suspended = client.run("ssh", "box.paddock", "true")
        assert suspended.returncode == 255
        assert suspended.stderr.startswith(b"paddock: sandbox `box`")
        assert b"set it to Running first" in suspended.stderr
    finally:
        client.daemon.paddock("set", "run-state", "sandbox/box", "Running")
        client.daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/box")


def test_the_audit_names_caller_and_channels(client: Client) -> None:
    client.output("true")
    entries = json.loads(client.daemon.paddock("audit", "-o", "json").stdout)
    items = entries["items"] if isinstance(entries, dict) else entries
    ssh = [entry for entry in items if entry["verb"] in ("ssh", "exec")]
    assert {entry["verb"] for entry in ssh} == {"ssh", "exec"}
    assert all(entry["actor"].startswith("root") for entry in ssh)
    assert {entry["detail"].get("via") for entry in ssh if entry["verb"] == "exec"} == {"ssh"}
