"""deploy/compose.yaml as Docker Compose starts it, on an engine of its own: `make test-compose`.

No registry is in reach of the tests: the services' programs are this host's own (PostgreSQL, Prometheus, this
checkout's Paddock) in an image of nothing but links to them, and Grafana, which Debian has not, is left out. All that
the file says beside `image` holds. That Paddock's own image runs like this is tried by test_compose.py.
"""

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.daemon import wait_for
from tests.deploy.conftest import CHECKOUT
from tests.deploy.test_compose import FILE, SANDBOX
from tests.deploy.test_compose_config import compose
from tests.lab.engine import Namespaces, PrivateEngine
from tests.lab.postgres import programs

__all__ = ["compose"]
pytestmark = [pytest.mark.docker, pytest.mark.compose, pytest.mark.prometheus, pytest.mark.timeout(900)]
STARTED = ("postgres", "paddock", "prometheus")
IMAGE = "paddock/lab-links:1"
LINKS = ("bin", "lib", "lib64", "sbin")
# What the image of its makers does with these variables and this command, as far as the file asks for it.
POSTGRES = """#!/bin/sh
set -eu
data=/var/lib/postgresql/data
chown postgres "$data" /var/run/postgresql
as="setpriv --reuid=postgres --regid=postgres --clear-groups"
if [ ! -e "$data/PG_VERSION" ]; then
    $as initdb -D "$data" --username="$POSTGRES_USER" --auth="$POSTGRES_HOST_AUTH_METHOD" --no-sync
    (until createdb --username="$POSTGRES_USER" --maintenance-db=postgres "$POSTGRES_DB"; do sleep 0.2; done) &
fi
exec $as "$@" -D "$data"
"""
PADDOCK = f"""#!/bin/sh
export PYTHONPATH={CHECKOUT}
exec {sys.executable} -m controller "$@"
"""


@pytest.fixture
def engine() -> Iterator[PrivateEngine]:
    """One at the place of the host's, in namespaces with a /run of their own."""
    folder, namespaces = Path(tempfile.mkdtemp(prefix="pdk-")), Namespaces()
    namespaces.run("mount", "-t", "tmpfs", "none", "/run")
    private_engine = PrivateEngine(folder, namespaces=namespaces)
    try:
        private_engine.start()
        private_engine.load("paddock/test-tiny:1")
        namespaces.run("sh", "-c", f"touch /run/docker.sock && mount --bind {folder}/engine.sock /run/docker.sock")
        subprocess.run(
            ["docker", "-H", private_engine.base_url, "import", "-", IMAGE], input=_links(), check=True, timeout=60
        )
        yield private_engine
    finally:
        private_engine.close()
        namespaces.close()
        shutil.rmtree(folder)


def _links() -> bytes:
    """An image's only layer: the links that lead into /usr."""
    with io.BytesIO() as bytes_io:
        with tarfile.open(fileobj=bytes_io, mode="w") as packed:
            for name in LINKS:
                link = tarfile.TarInfo(name)
                link.type, link.linkname = tarfile.SYMTYPE, f"usr/{name}"
                packed.addfile(link)
        return bytes_io.getvalue()


def instead(folder: Path) -> Path:
    """Return the overriding file that makes the services programs of this host, in place of images."""
    (folder / "bin").mkdir()
    for name, text in (("postgres-image", POSTGRES), ("paddock", PADDOCK)):
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    prometheus = shutil.which("prometheus")
    assert prometheus
    python = {sys.prefix, sys.base_prefix, str(CHECKOUT)} - {"/usr"}
    shared = ["/usr", "/etc/passwd", "/etc/group", *sorted(python)]
    mounts = [f"{entry}:{entry}:ro" for entry in shared] + [f"{folder}/bin:/lab:ro", f"{prometheus}:/lab-prometheus:ro"]
    entries = {
        "postgres": ["/lab/postgres-image"],
        "paddock": ["/lab/paddock", "serve"],
        "prometheus": ["/lab-prometheus"],
    }
    path = f"/lab:{programs()}:/usr/sbin:/usr/bin"
    documents = {
        name: {
            "image": IMAGE,
            "pull_policy": "never",
            "entrypoint": entry,
            "volumes": mounts,
            "environment": {"PATH": path},
        }
        for name, entry in entries.items()
    }
    file = folder / "instead.yaml"
    file.write_text(yaml.safe_dump({"services": documents}))
    return file


def test_the_stack_keeps_a_sandbox_and_is_scraped(compose: Path, engine: PrivateEngine, tmp_path: Path) -> None:
    files = ["-f", FILE, "-f", instead(tmp_path)]

    def said(*words: str) -> str:
        done = subprocess.run(
            [compose, *files, *words],
            env={**os.environ, "DOCKER_HOST": engine.base_url},
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
        assert done.returncode == 0, f"{done.stderr}\n{engine.docker('ps', '-a')}\n{_logs(engine)}"
        return done.stdout

    def paddock(*words: str) -> str:
        return engine.docker("exec", "paddock", "paddock", *words)

    said("up", "--detach", "--wait", "--wait-timeout", "300", *STARTED)
    apply = ["docker", "-H", engine.base_url, "exec", "-i", "paddock", "paddock", "apply", "-f", "-"]
    subprocess.run(apply, input=SANDBOX, text=True, check=True, timeout=60)
    paddock("wait", "--for=condition=Ready", "--timeout=90s", "sandbox/composed")
    paddock("wait", "--for=condition=Secured", "--timeout=30s", "sandbox/composed")
    # A capture freezes by the cgroup, a suspension reads folders in memory: with the capabilities that the file gives.
    paddock("exec", "composed", "--", "sh", "-c", "echo work > /workspace/f; chmod 2640 /workspace/f")
    paddock("snapshot", "create", "moment", "--from", "sandbox/composed")
    paddock("wait", "--for=condition=Captured", "--timeout=60s", "sandboxsnapshot/moment")
    paddock("set", "run-state", "sandbox/composed", "Suspended")
    paddock("wait", "--for=condition=Suspended", "--timeout=60s", "sandbox/composed")
    paddock("set", "run-state", "sandbox/composed", "Running")
    paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/composed")
    assert paddock("exec", "composed", "--", "stat", "-c", "%a", "/workspace/f").strip() == "2640"
    observed = wait_for("Prometheus has the sandbox", lambda: _asked(engine, "paddock_container_pids"), 120)
    assert [entry["metric"]["sandbox"] for entry in observed] == ["composed"]
    sandbox = engine.docker("ps", "-q", "--filter", "label=paddock.instance")
    said("restart", "postgres", "paddock")
    said("up", "--detach", "--wait", "--wait-timeout", "300", *STARTED)
    paddock("wait", "--for=condition=Ready", "--timeout=90s", "sandbox/composed")
    assert engine.docker("ps", "-q", "--filter", "label=paddock.instance") == sandbox
    paddock("delete", "sandbox", "composed", "--timeout=60s")
    said("down", "--volumes")
    assert engine.docker("ps", "-aq") == ""


def _asked(engine: PrivateEngine, query: str) -> list[dict[str, Any]]:
    """Return Prometheus' answer, in the engine's network."""
    url = f"http://127.0.0.1:9090/api/v1/query?query={query}"
    script = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=5).read().decode())"
    enter = engine.namespaces.enter(sys.executable, "-c", script, url)
    done = subprocess.run(enter, capture_output=True, text=True, timeout=30, check=False)
    return json.loads(done.stdout)["data"]["result"] if done.returncode == 0 else []


def _logs(engine: PrivateEngine) -> str:
    names = engine.docker("ps", "-a", "--format", "{{.Names}}").split()
    ask = ["docker", "-H", engine.base_url, "logs", "--tail", "20"]
    outputs = (subprocess.run([*ask, name], capture_output=True, text=True, check=False) for name in names)
    return "\n".join(f"{name}:\n{output.stdout}{output.stderr}" for name, output in zip(names, outputs, strict=True))
