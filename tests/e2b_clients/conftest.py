"""A daemon for E2B's own clients, and the clients, which deploy/e2b-clients.sh installs."""

import json
import os
import socket
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.daemon import RunningDaemon, running

CLIENTS = Path(__file__).parents[2] / ".cache" / "e2b"
PROGRAMS = Path(__file__).parent / "programs"
SMALL = """
apiVersion: paddock/v1alpha1
kind: SandboxTemplate
metadata: {name: small}
spec:
  image: paddock/python:1
  agent: {}
  resources: {limits: {cpu: 100m, memory: 128Mi, pids: 32}}
  tmpfs: [{mountPath: /tmp, size: 8Mi}]
  workspace: {mountPath: /workspace, size: 16Mi}
"""


@dataclass(frozen=True)
class Runner:
    """Runs programs of a client's, with the variables that `paddock e2b env` prints."""

    variables: Mapping[str, str]

    def python(self, clients: str, program: str, *arguments: str, through: str = "") -> str:
        """Run a Python program with these clients (new, old, frameworks); return its output."""
        before = [str(PROGRAMS / through)] if through else []
        return self._run([str(CLIENTS / clients / "bin" / "python"), *before, str(PROGRAMS / program), *arguments])

    def node(self, clients: str, program: str, *arguments: str, through: str = "") -> str:
        """Run a JavaScript program with these clients (js-new, js-old); return its output."""
        folder = CLIENTS / clients
        copy = folder / program  # modules are looked for beside the program
        copy.write_text((PROGRAMS / program).read_text())
        before = ["--import", str(PROGRAMS / through)] if through else []
        return self._run([str(CLIENTS / "new" / "bin" / "node"), *before, str(copy), *arguments])

    def _run(self, command: list[str]) -> str:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("E2B_", "PADDOCK_"))}
        done = subprocess.run(
            command, env={**environment, **self.variables}, capture_output=True, text=True, timeout=400, check=False
        )
        wrong = [line for line in done.stdout.splitlines() if '"ok": false' in line or '"ok":false' in line]
        text = "\n".join(wrong) or done.stdout[-3000:]
        assert done.returncode == 0, f"{text}\n{done.stderr[-3000:]}"
        return done.stdout


def printed(daemon: RunningDaemon, namespace: str = "default") -> dict[str, str]:
    daemon.environment["XDG_CONFIG_HOME"] = str(daemon.folder / "config")
    return dict(json.loads(daemon.paddock("e2b", "env", "-n", namespace, "-o", "json").stdout))


def certificate(folder: Path) -> tuple[Path, Path, Path]:
    """Return a certificate for the domain in that folder, its key, and the authority that signed it."""
    cert, key, authority, own_path = (folder / name for name in ("cert.pem", "key.pem", "ca.pem", "ca.key"))
    names = folder / "names"
    names.write_text("subjectAltName=DNS:e2b.localhost,DNS:*.e2b.localhost\nbasicConstraints=critical,CA:FALSE\n")
    new = "openssl req -newkey rsa:2048 -nodes -subj"
    for command in (
        f"{new} /CN=authority -x509 -days 2 -keyout {own_path} -out {authority}",
        f"{new} /CN=paddock -keyout {key} -out {folder / 'request'}",
        f"openssl x509 -req -days 2 -in {folder / 'request'} -CA {authority} -CAkey {own_path} -CAcreateserial"
        f" -extfile {names} -out {cert}",
    ):
        subprocess.run(command.split(), check=True, capture_output=True)
    key.chmod(0o600)
    return cert, key, authority


@pytest.fixture(scope="session")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    folder = tmp_path_factory.mktemp("e2b") / "state"
    with running(folder, PADDOCK_E2B_ADDRESS="127.0.0.1:0") as started:
        started.apply(SMALL)
        yield started


@pytest.fixture(scope="session")
def variables(daemon: RunningDaemon) -> dict[str, str]:
    return printed(daemon)


@pytest.fixture(scope="session")
def run(variables: dict[str, str]) -> Runner:
    return Runner(variables)


@pytest.fixture(scope="session")
def run_by_domain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    """Clients that know no E2B_SANDBOX_URL: host names PORT-ID.DOMAIN, over TLS, with an authority of our own."""
    folder = tmp_path_factory.mktemp("domain")
    cert, key, authority = certificate(folder)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    domain = f"e2b.localhost:{port}"
    settings = {
        "PADDOCK_E2B_ADDRESS": f"127.0.0.1:{port}",
        "PADDOCK_E2B_DOMAIN": domain,
        "PADDOCK_E2B_TLS_CERT_FILE": str(cert),
        "PADDOCK_E2B_TLS_KEY_FILE": str(key),
    }
    with running(folder / "state", **settings) as started:
        key_of_api = printed(started)["E2B_API_KEY"]
        yield Runner(
            {
                "E2B_DOMAIN": domain,
                "E2B_API_KEY": key_of_api,
                "SSL_CERT_FILE": str(authority),
                "NODE_EXTRA_CA_CERTS": str(authority),
            }
        )
