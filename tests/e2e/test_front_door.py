"""The front door: OpenSSH's own client in sandboxes, and previews of their ports by signed links."""

import gzip
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pexpect
import pytest
from websockets.sync.client import unix_connect

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
        _share_host_key(daemon)
        setup = self.paddock("ssh", "setup")
        assert setup.returncode == 0, setup.stderr
        config = home / ".ssh/paddock_config"
        config.write_text(config.read_text().replace(f"{sys.executable} -P -m controller", shlex.quote(self.program)))

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


def _share_host_key(daemon: RunningDaemon) -> None:
    """Give the hosts of a fleet one host key, as its operator does."""
    if daemon.elsewhere is not None:
        with _api(daemon.elsewhere) as api:
            api.get("/apis/paddock/v1alpha1/ssh")  # it makes one
        shutil.copytree(daemon.elsewhere.folder / "ssh", daemon.folder / "ssh", dirs_exist_ok=True)


def _api(daemon: RunningDaemon) -> httpx.Client:
    transport = httpx.HTTPTransport(uds=str(daemon.socket))
    return httpx.Client(transport=transport, base_url="http://localhost", timeout=60)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    settings = {"PADDOCK_STALL_SECONDS": "0.5", "PADDOCK_PREVIEW_ADDRESS": "127.0.0.1:0"}
    settings["PADDOCK_SSH_ADDRESS"] = "127.0.0.1:0"
    if os.environ.get("PADDOCK_TEST_FOREIGN"):  # links of another host lead to a domain
        settings["PADDOCK_PREVIEW_DOMAIN"] = "preview.test"
    with running(tmp_path_factory.mktemp("daemon"), **settings) as daemon:
        daemon.apply(SANDBOX)
        daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/box")
        home = tmp_path_factory.mktemp("home") / "with a space"
        home.mkdir()
        yield Client(daemon, home)


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


def test_a_full_disk_says_what_to_do(client: Client, tmp_path: Path) -> None:
    size = int(client.output("df -B1 --output=size . | tail -1"))
    (tmp_path / "large").touch()
    os.truncate(tmp_path / "large", size + (8 << 20))
    refused = client.run("scp", str(tmp_path / "large"), "box.paddock:large")
    client.output("rm -f large")
    lines = [line for line in refused.stderr.splitlines() if line.startswith(b"paddock: ")]
    assert (refused.returncode != 0, len(lines)) == (True, 1), refused.stderr
    assert b"remove files in the sandbox, or give it more space" in lines[0]


def test_old_scp_says_what_to_do(client: Client, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("content")
    refused = client.run("scp", "-O", str(tmp_path / "file"), "box.paddock:file")
    assert refused.returncode != 0
    assert b"paddock: the image has no scp; run scp without -O" in refused.stderr


@pytest.mark.parametrize("ending", ["close", "abort"])
def test_a_disconnect_ends_the_command(client: Client, ending: str) -> None:
    """Of each way to run one: with a terminal and without, with its input closed and open."""
    ways = [(tty, closed) for tty in (True, False) for closed in (True, False)]
    path = "ws://paddock/apis/paddock/v1alpha1/namespaces/default/sandboxes/box/exec"
    for number, (tty, closed) in enumerate(ways):
        query = f"command=sleep&command=710{number}&stdin=true&timeoutSeconds=0&tty={str(tty).lower()}"
        socket_path = str(client.daemon.socket)
        with unix_connect(socket_path, f"{path}?{query}", subprotocols=["v5.channel.k8s.io"]) as channel:  # type: ignore[list-item]
            if closed:
                channel.send(b"\xff\x00")
            wait_for("the command", lambda number=number: f"sleep 710{number}" in _processes(client))  # type: ignore[misc]
            if ending == "abort":
                channel.socket.close()
    wait_for("all have ended", lambda: "sleep 710" not in _processes(client))


def _processes(client: Client) -> str:
    names = "for each in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < $each 2>/dev/null; echo; done"
    return client.daemon.paddock("exec", "box", "--", "sh", "-c", names).stdout


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


_STAND_IN = """
mkdir -p "$HOME/.server/bin" && cd "$HOME/.server"
cat > bin/server <<'END'
#!/usr/bin/env python3
import socket
server = socket.socket()
server.bind(("127.0.0.1", 0))
server.listen()
print(server.getsockname()[1], flush=True)
while True:
    link = server.accept()[0]
    link.sendall(b"server of the editor: " + link.recv(100))
    link.close()
END
chmod 755 bin/server
nohup bin/server > port 2> log < /dev/null &
until [ -s port ]; do :; done
echo "listeningOn==$(cat port)=="
"""


def test_an_editors_server_survives_a_lost_connection(client: Client) -> None:
    """The steps of Remote-SSH and Cursor: a script for bash on stdin, a server in the background, its port by -D."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = str(server.getsockname()[1])
    with client.begin("-T", "-D", free, "box.paddock", "bash") as first:
        assert first.stdin is not None
        assert first.stdout is not None
        first.stdin.write(_STAND_IN.encode())
        first.stdin.flush()
        port = first.stdout.readline().decode().split("==")[1]
        first.kill()
    answer = client.run("ssh", "-W", f"127.0.0.1:{port}", "box.paddock", input=b"hello")
    assert answer.stdout == b"server of the editor: hello"


def test_an_editors_server_survives_thessh_process(client: Client) -> None:
    client.output(
        "mkdir -p .front && setsid sh -c 'echo $$ > .front/pid; exec sleep 4100' >/dev/null 2>&1 </dev/null &"
    )
    pid = client.output("until [ -s .front/pid ]; do :; done; cat .front/pid").strip()
    with client.begin("box.paddock", "echo on; sleep 4200") as session:
        assert session.stdout is not None
        assert session.stdout.readline() == b"on\n"
        os.kill(ssh_process(client.daemon.works_at), signal.SIGKILL)
        assert session.wait(60) == 255
    assert client.output(f"cat /proc/{pid}/comm; rm -r .front; kill {pid}") == "sleep\n"
    wait_for("the session has ended", lambda: "sleep 4200" not in _processes(client))


def ssh_process(daemon: RunningDaemon) -> int:
    """Return the process id of a daemon's SSH process."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == daemon.process.pid and b"controller.ssh.process" in (folder / "cmdline").read_bytes():
                return int(folder.name)
    raise AssertionError("no SSH process runs")


def test_a_changed_host_key_is_refused(client: Client) -> None:
    known_hosts = client.home / ".ssh/paddock_known_hosts"
    text = known_hosts.read_text()
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(client.home / "other")], check=True)
    alias = text.split()[0]
    known_hosts.write_text(f"{alias} {(client.home / 'other.pub').read_text()}")
    try:
        refused = client.run("ssh", "box.paddock", "true")
    finally:
        known_hosts.write_text(text)
    assert (refused.returncode, b"HOST IDENTIFICATION HAS CHANGED" in refused.stderr) == (255, True), refused.stderr
    assert client.output("echo again") == "again\n"


def test_one_connection_carries_an_editors_sessions(client: Client, tmp_path: Path) -> None:
    """The steps of Zed and JetBrains: a master, `uname`, a compressed server by sftp, and its stdin and stdout."""
    control = f"ControlPath={tmp_path}/c"
    with client.begin("-N", "-o", "ControlMaster=yes", "-o", control, "box.paddock") as master:
        shared = ("-o", "ControlMaster=no", "-o", control)
        wait_for("the master", lambda: (tmp_path / "c").exists())
        assert client.run("ssh", *shared, "box.paddock", "uname -sm").stdout.startswith(b"Linux ")
        packed = tmp_path / "server.gz"
        packed.write_bytes(gzip.compress(b"#!/bin/sh\nwhile read line; do echo got $line; done\n" + b"#" * 2_000_000))
        batch = f"mkdir .cache\nput {packed} .cache/server.gz\n"
        assert client.run("sftp", *shared, "-b", "-", "box.paddock", input=batch.encode()).returncode == 0
        start = "cd .cache && gunzip -f server.gz && chmod 755 server && exec ./server"
        assert client.run("ssh", *shared, "box.paddock", start, input=b"one\n").stdout == b"got one\n"
        client.run("ssh", *shared, "-O", "exit", "box.paddock")
        master.wait(30)


class Port:
    """The SSH port, as a client without our ProxyCommand uses it."""

    def __init__(self, client: Client, folder: Path) -> None:
        self.folder = folder
        self.daemon = client.daemon.works_at  # a port is its host's, as its keys are
        with _api(self.daemon) as api:
            info = api.get("/apis/paddock/v1alpha1/ssh").json()
        host, _, port = info["address"].rpartition(":")
        (folder / "known_hosts").write_text(f"[{host}]:{port} {info['hostKey']}\n")
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "key")], check=True)
        self.words = ["ssh", "-F", "none", "-p", port, "-o", f"UserKnownHostsFile={folder}/known_hosts", "-l"]
        self.host = host

    def key(self, user: str, *command: str) -> list[str]:
        """Return a command that logs in with the key."""
        own = ["-i", str(self.folder / "key"), "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes"]
        return [*self.words, user, *own, self.host, *command]

    def by_token(self, user: str, token: str, command: str) -> "subprocess.CompletedProcess[bytes]":
        ask = self.folder / "ask"
        ask.write_text(f"#!/bin/sh\necho '{token}'\n")
        ask.chmod(0o700)
        environment = {**os.environ, "SSH_ASKPASS": str(ask), "SSH_ASKPASS_REQUIRE": "force"}
        own = ["-o", "PubkeyAuthentication=no", "-o", "NumberOfPasswordPrompts=1"]
        return subprocess.run([*self.words, user, *own, self.host, command], env=environment, capture_output=True)


@pytest.fixture(scope="module")
def port(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Port:
    return Port(client, tmp_path_factory.mktemp("port"))


def test_the_port_takes_keys_until_they_are_removed(port: Port) -> None:
    refused = subprocess.run(port.key("box--default", "true"), capture_output=True)
    assert (refused.returncode, b"Permission denied" in refused.stderr) == (255, True)
    added = port.daemon.paddock("ssh", "key", "add", str(port.folder / "key.pub")).stdout
    fingerprint = added.split()[0]
    assert fingerprint in port.daemon.paddock("ssh", "key", "list").stdout
    done = subprocess.run(port.key("box--default", "cat; exit 3"), capture_output=True, input=b"by key")
    assert (done.returncode, done.stdout) == (3, b"by key"), done.stderr
    assert subprocess.run(port.key("nobody", "true"), capture_output=True).returncode == 255
    with subprocess.Popen(port.key("box", "echo on; sleep 1000"), stdout=subprocess.PIPE) as open_session:
        assert open_session.stdout is not None
        assert open_session.stdout.readline() == b"on\n"
        port.daemon.paddock("ssh", "key", "remove", fingerprint)
        assert open_session.wait(30) == 255
    assert subprocess.run(port.key("box", "true"), capture_output=True).returncode == 255


def test_the_port_takes_tokens_for_their_namespace(port: Port) -> None:
    daemon = port.daemon
    token = daemon.paddock("token", "create", "port", "--role", "user", "-n", "default").stdout.strip()
    other = daemon.paddock("token", "create", "elsewhere", "--role", "user", "-n", "other").stdout.strip()
    assert port.by_token("box--default", token, "echo in").stdout == b"in\n"
    assert port.by_token("box--default", other, "true").returncode == 255
    daemon.paddock("token", "revoke", "port")
    assert port.by_token("box--default", token, "true").returncode == 255


def test_refusals_are_one_line(client: Client) -> None:
    unknown = client.run("ssh", "nobody.paddock", "true")
    assert (unknown.returncode, unknown.stderr.splitlines()[0]) == (
        255,
        b"error: sandboxes `nobody` not found in namespace `default`; `paddock get sandboxes -A` lists those that you"
        b" may see",
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
    before = {entry["id"] for entry in audited(client)}
    client.output("true")
    ssh = [entry for entry in audited(client) if entry["id"] not in before and entry["verb"] in ("ssh", "exec")]
    assert {entry["verb"] for entry in ssh} == {"ssh", "exec"}
    assert all(entry["actor"].startswith(("root", "token")) for entry in ssh)
    assert {entry["detail"].get("via") for entry in ssh if entry["verb"] == "exec"} == {"ssh"}


def audited(client: Client) -> list[dict[str, Any]]:
    """Return the entries of the audit log."""
    entries = json.loads(client.daemon.paddock("audit", "-o", "json").stdout)
    items: list[dict[str, Any]] = entries["items"] if isinstance(entries, dict) else entries
    return items


# Previews

_SERVER = """
import http.server, socketserver, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = " ".join((self.path, str(self.headers.get("Cookie")), str(self.headers.get("Host")))).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_POST(self):
        size = int(self.headers["Content-Length"]); left = size
        while left: left -= len(self.rfile.read(min(left, 1 << 16)))
        self.send_response(200); self.send_header("Content-Length", "2"); self.end_headers(); self.wfile.write(b"ok")
    def log_message(self, *_): pass
socketserver.ThreadingTCPServer.allow_reuse_address = True
socketserver.ThreadingTCPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


class Browser:
    """Requests to the preview listener, by host name, as a browser and a program send them."""

    def __init__(self, daemon: RunningDaemon) -> None:
        self.daemon = daemon

    def link(self, name: str, port: int, *words: str) -> str:
        return self.daemon.paddock("open", name, str(port), "--print", *words).stdout.strip()

    def port(self, url: str) -> int:
        """Return the port of the listener that serves a link: of one that names none, the log tells."""
        served = (line for line in self.daemon.works_at.log if '"previews served"' in line)
        return urlsplit(url).port or int(urlsplit(json.loads(next(served))["address"]).port)

    def get(self, url: str, **headers: str) -> httpx.Response:
        parts = urlsplit(url)
        address = f"http://127.0.0.1:{self.port(url)}{parts.path or '/'}" + (f"?{parts.query}" if parts.query else "")
        return httpx.get(address, headers={"Host": parts.netloc, **headers}, timeout=30)

    def cookie(self, link: str) -> str:
        answer = self.get(link)
        assert (answer.status_code, answer.headers["location"]) == (303, "/"), answer.text
        return answer.headers["set-cookie"].partition(";")[0]


@pytest.fixture(scope="module")
def browser(client: Client) -> Browser:
    for port in (3000, 3001):
        command = ["exec", "box", "--detach", "--", "python3", "-c", _SERVER, str(port)]
        client.daemon.paddock(*command)
    return Browser(client.daemon)


def _origin(link: str) -> str:
    parts = urlsplit(link)
    return f"{parts.scheme}://{parts.netloc}"


def test_a_link_becomes_a_cookie_of_its_host(browser: Browser) -> None:
    link = browser.link("box", 3000)
    assert urlsplit(link).netloc.startswith("3000--box--default--")
    cookie = browser.cookie(link)
    wait_for("the program", lambda: browser.get(_origin(link), Cookie=cookie).status_code == 200)
    answer = browser.get(_origin(link) + "/x?y=1", Cookie=f"a=1; {cookie}")
    assert answer.text == "/x?y=1 a=1 localhost:3000"
    token = parse_qs(urlsplit(link).query)["paddock-preview"][0]
    by_program = browser.get(_origin(link) + "/p", **{"X-Paddock-Preview-Token": token})
    assert by_program.text == "/p None localhost:3000"


def test_what_is_no_right_of_this_host_is_refused(browser: Browser) -> None:
    link, other = browser.link("box", 3000), browser.link("box", 3001)
    cookie, token = browser.cookie(link), parse_qs(urlsplit(link).query)["paddock-preview"][0]
    refusals = {
        "no link": browser.get(_origin(link)),
        "another port's cookie": browser.get(_origin(other), Cookie=cookie),
        "another port's link": browser.get(f"{_origin(other)}/?paddock-preview={token}"),
        "the link as a cookie": browser.get(_origin(link), Cookie=f"__Host-paddock-preview={token}"),
        "two cookies": browser.get(_origin(link), Cookie=f"{cookie}; __Host-paddock-preview=x"),
        "a longer time": browser.get(f"{_origin(link)}/?paddock-preview=9{token}"),
    }
    assert {name: answer.status_code for name, answer in refusals.items()} == dict.fromkeys(refusals, 401)
    sibling = {"Cookie": cookie, "Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"}
    assert browser.get(_origin(link), **sibling).status_code == 403
    assert browser.get(_origin(link), **{**sibling, "Sec-Fetch-Mode": "navigate"}).status_code == 200
    label = urlsplit(link).netloc.partition(".")[0]
    for host in ("localhost", "www.localhost", f"{label}.evil.test", f"{label.replace('3000', '8500')}.localhost"):
        port = browser.port(link)
        address = f"http://127.0.0.1:{port}/apis/paddock/v1alpha1/namespaces/default/sandboxes"
        assert httpx.get(address, headers={"Host": f"{host}:{port}"}).status_code == 421, host


def test_ports_with_more_power_get_no_link(browser: Browser) -> None:
    for port in ("8500", "8090"):
        refused = browser.daemon.paddock("open", "box", port, "--print", check=False)
        assert (refused.returncode, "has no previews" in refused.stderr) == (1, True)


def test_a_dead_port_is_a_page_in_words(browser: Browser) -> None:
    link = browser.link("box", 3999)
    answer = browser.get(_origin(link), Cookie=browser.cookie(link), Accept="text/html")
    assert answer.status_code == 502
    assert "<h1>Nothing answers here</h1>" in answer.text


def test_voiding_ends_links_and_open_streams(browser: Browser) -> None:
    link = browser.link("box", 3000)
    cookie = browser.cookie(link)
    parts = urlsplit(link)
    with socket.create_connection(("127.0.0.1", browser.port(link))) as upload:
        head = f"POST / HTTP/1.1\r\nHost: {parts.netloc}\r\nCookie: {cookie}\r\nContent-Length: 9999\r\n\r\nx"
        upload.sendall(head.encode())
        browser.link("box", 3000, "--void")
        assert browser.get(_origin(link), Cookie=cookie).status_code == 401
        upload.settimeout(30)
        assert upload.recv(65536).startswith(b"HTTP/1.1 401 ")


def test_a_link_dies_with_its_sandbox(browser: Browser) -> None:
    spec = SANDBOX.replace("name: box", "name: short")
    browser.daemon.apply(spec)
    link = browser.link("short", 3000)
    cookie = browser.cookie(link)
    browser.daemon.paddock("delete", "sandbox", "short", "--now")
    browser.daemon.apply(spec)
    assert browser.get(_origin(link), Cookie=cookie).status_code == 401
    assert browser.get(link).status_code == 401
    assert _origin(browser.link("short", 3000)) != _origin(link), "what a page left is of another origin"


def test_a_link_dies_with_its_makers_token(browser: Browser) -> None:
    token = browser.daemon.paddock("token", "create", "maker", "--role", "user", "-n", "default").stdout.strip()
    path = "/apis/paddock/v1alpha1/namespaces/default/sandboxes/box/previews"
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(browser.daemon.socket))) as api:
        sent = api.post(f"http://localhost{path}", json={"port": 3000}, headers={"Authorization": f"Bearer {token}"})
    link = sent.json()["url"]
    cookie = browser.cookie(link)
    browser.daemon.paddock("token", "revoke", "maker")
    assert browser.get(_origin(link), Cookie=cookie).status_code == 401


def test_the_metrics_count_what_was_done(client: Client, browser: Browser) -> None:
    client.run("sftp", "-b", "-", "box.paddock", input=b"pwd\n")
    link = browser.link("box", 3000)
    cookie = browser.cookie(link)
    wait_for("the program", lambda: browser.get(_origin(link), Cookie=cookie).status_code == 200)
    client.run("ssh", "-W", "localhost:3000", "box.paddock", input=b"GET / HTTP/1.0\r\n\r\n")
    client.output("true")
    browser.get(_origin(link))
    dead = browser.link("box", 3998)
    browser.get(_origin(dead), Cookie=browser.cookie(dead))
    text = browser.daemon.works_at.scrape()
    counted = {line.rpartition(" ")[0] for line in text.splitlines() if not line.endswith(" 0")}
    expected = {
        *(f'paddock_ssh_channels_total{{what="{what}"}}' for what in ("command", "files", "port")),
        *(f'paddock_preview_requests_total{{outcome="{outcome}"}}' for outcome in ("passed", "refused", "unavailable")),
        'paddock_preview_bytes_total{direction="out"}',
        "paddock_preview_links_total",
        "paddock_ssh_connections_total",
    }
    assert expected - counted == set()
