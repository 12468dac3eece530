"""Users of sandboxes on the real engine: each its own, so that none takes another's limits in the kernel.

One daemon for all. Its range of ids is its own, since other tests' sandboxes count in the same kernel.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.daemon import RunningDaemon, docker, remove_image, running, wait_for
from tests.lab.engine import Namespaces, PrivateEngine

pytestmark = [pytest.mark.docker, pytest.mark.timeout(400)]

RANGE = range(1_900_000, 1_900_256)
# Takes all that the kernel gives one user, tells how much that was, and holds it. "1": only one of each.
TAKER = """
import array, ctypes, fcntl, json, os, resource, signal, socket, sys, time
most = int(sys.argv[1]) if len(sys.argv) > 1 else 1 << 30
libc, held = ctypes.CDLL(None, use_errno=True), []
def inotify():
    count = 0
    while count < most and libc.inotify_init1(0) >= 0:
        count += 1
    return count
def pipes():
    count = 0
    while count < min(most, 4096):
        ends = os.pipe()
        held.append(ends)
        if fcntl.fcntl(ends[0], 1032) < 65536:
            break
        count += 1
    return count
def in_flight():
    count, files = 0, array.array("i", [0] * min(most, 250))
    while count < min(most, 1 << 17):
        pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        held.append(pair)
        for _ in range(min(most, 8)):
            try:
                pair[0].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
            except OSError:
                return count
            count += len(files)
    return count
def signals():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
    count = 0
    while count < min(most, 1 << 17) and libc.sigqueue(os.getpid(), int(signal.SIGRTMIN), None) == 0:
        count += 1
    return count
taken = {each.__name__: each() for each in (inotify, in_flight, signals, pipes)}
print(json.dumps(taken), flush=True)
time.sleep(0 if most == 1 else 100000)
"""


def sandbox(name: str, namespace: str = "default", **template: Any) -> str:
    spec: dict[str, Any] = {"image": "paddock/python:1", "command": ["sleep", "100000"], **template}
    volumes = spec.pop("volumes", None)
    if volumes:
        spec["volumes"] = volumes
    document = {
        "apiVersion": "paddock/v1alpha1",
        "kind": "Sandbox",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"template": spec, "lifecycle": {"shutdownGracePeriodSeconds": 0}},
    }
    return json.dumps(document)


@pytest.fixture(scope="module")
def project() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/srv") as temporary_directory:
        folder = Path(temporary_directory) / "app"
        folder.mkdir()
        os.chown(folder, 12345, 12345)
        yield folder


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, project: Path) -> Iterator[RunningDaemon]:
    roots = f'[{{"path": "{project.parent}"}}]'
    ids = f"{RANGE.start}-{RANGE.stop - 1}"
    with running(tmp_path_factory.mktemp("own"), PADDOCK_HOST_ROOTS=roots, PADDOCK_SANDBOX_IDS=ids) as created:
        yield created


def ready(daemon: RunningDaemon, *names: str, namespace: str = "default") -> None:
    texts = (f"sandbox/{name}" for name in names)
    daemon.paddock("wait", "-n", namespace, "--for=condition=Ready", "--timeout=90s", *texts)


def status(daemon: RunningDaemon, name: str, namespace: str = "default") -> dict[str, Any]:
    output = daemon.paddock("get", f"sandbox/{name}", "-n", namespace, "-o", "json")
    created: dict[str, Any] = json.loads(output.stdout)["status"]
    return created


def own_id(daemon: RunningDaemon, name: str, namespace: str = "default") -> int:
    document = status(daemon, name, namespace)
    uid, gid = map(int, document["user"].split(":"))
    assert (uid, "userShared" in document) == (gid, False)
    assert uid in RANGE
    return uid


def taken(daemon: RunningDaemon, name: str, namespace: str) -> dict[str, int]:
    ready(daemon, name, namespace=namespace)
    wait_for("it has taken all", lambda: daemon.paddock("logs", name, "-n", namespace).stdout.strip(), 90)
    document: dict[str, int] = json.loads(daemon.paddock("logs", name, "-n", namespace).stdout)
    return document


def test_a_sandbox_starves_no_other_and_not_the_host(daemon: RunningDaemon) -> None:
    taker: dict[str, Any] = {"command": ["python3", "-c", TAKER]}
    daemon.apply(sandbox("greedy", "one", **taker))
    first = taken(daemon, "greedy", "one")
    assert min(first.values()) > 50
    daemon.apply(sandbox("second", "two", **taker))
    second = taken(daemon, "second", "two")
    # Init and the probes of the host may hold a few of each; the other sandbox holds thousands.
    assert {name: second[name] >= first[name] * 0.9 for name in first} == dict.fromkeys(first, True)
    assert own_id(daemon, "greedy", "one") != own_id(daemon, "second", "two")
    on_host = subprocess.run([sys.executable, "-c", TAKER, "1"], capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(on_host.stdout) == dict.fromkeys(first, 1)
    for name in ("one", "two"):
        daemon.paddock("delete", "sandboxes", "--all", "-n", name, "--timeout=60s")


def test_programs_find_a_name_and_a_home(daemon: RunningDaemon) -> None:
    daemon.apply(sandbox("named"))
    ready(daemon, "named")
    uid = own_id(daemon, "named")
    output = daemon.paddock("exec", "named", "--", "sh", "-c", "id -u; id -g; whoami; cd; pwd; echo x > ~/a && cat ~/a")
    assert output.stdout.split() == [str(uid), str(uid), "sandbox", "/workspace", "x"]
    text = (
        "import getpass, pwd, os; print(getpass.getuser(), pwd.getpwuid(os.getuid()).pw_dir, pwd.getpwuid(0).pw_name)"
    )
    process = daemon.paddock("exec", "named", "--", "python3", "-c", text)
    assert process.stdout.split() == ["sandbox", "/workspace", "root"]
    assert daemon.paddock("attest", "named").returncode == 0
    daemon.paddock("exec", "named", "--", "sh", "-c", "! echo x >> /etc/passwd")
    assert f"{uid}:{uid} (its own)" in daemon.paddock("why", "sandbox/named").stdout
    daemon.apply(sandbox("asked", user="34567:34567") + "\n---\n" + sandbox("asked-too", user="34567:34567"))
    ready(daemon, "asked", "asked-too")
    document = status(daemon, "asked")
    assert (document["user"], document["userShared"]) == ("34567:34567", True)
    assert "34567:34567 (shared" in daemon.paddock("why", "sandbox/asked").stdout
    refusal = daemon.paddock("apply", "-f", "-", stdin=sandbox("no", user=f"{uid}:{uid}"), check=False)
    assert "of which each sandbox gets one of its own" in refusal.stderr


def test_files_are_the_same_under_every_id(daemon: RunningDaemon, project: Path, tmp_path: Path) -> None:
    """A volume of two sandboxes at once, a workspace of one after the other, and copies in and out."""
    data = bytes(range(256)) * 4096
    digest = hashlib.sha256(data).hexdigest()
    (tmp_path / "in").write_bytes(data)
    volume = [{"name": "shared", "mountPath": "/shared", "size": "32Mi"}]
    daemon.apply(sandbox("left", volumes=volume) + "\n---\n" + sandbox("right", volumes=volume))
    ready(daemon, "left", "right")
    assert own_id(daemon, "left") != own_id(daemon, "right")
    daemon.paddock("cp", str(tmp_path / "in"), "left:/shared/data")
    daemon.paddock("exec", "left", "--", "sh", "-c", "mkdir /shared/deep && echo left > /shared/deep/both")
    assert digest in daemon.paddock("exec", "right", "--", "sha256sum", "/shared/data").stdout
    daemon.paddock("exec", "right", "--", "sh", "-c", "echo right >> /shared/deep/both && chmod 600 /shared/deep/both")
    assert daemon.paddock("exec", "left", "--", "cat", "/shared/deep/both").stdout == "left\nright\n"
    daemon.paddock("cp", "right:/shared/data", str(tmp_path / "out"))
    assert (tmp_path / "out").read_bytes() == data
    for name in ("left", "right"):
        daemon.paddock("delete", f"sandbox/{name}", "--timeout=60s")
    (project / "kept").write_bytes(data)
    os.chown(project / "kept", 12345, 12345)
    (project / "kept").chmod(0o400)
    for name in ("before", "after"):
        document = json.loads(sandbox(name))
        document["spec"]["workspace"] = {"hostPath": str(project), "readOnly": True}
        daemon.apply(json.dumps(document))
        ready(daemon, name)
        parts = daemon.paddock("exec", name, "--", "sh", "-c", "sha256sum kept; stat -c %u kept").stdout.split()
        assert parts == [digest, "kept", str(own_id(daemon, name))]


def at_level(name: str, level: str = "development", image: str = "paddock/python:1", **spec: Any) -> str:
    """A sandbox whose level leaves the user to its image. It has no network, so this needs no guard."""
    template = {"image": image, "securityLevel": level, "security": {"network": {"mode": "none"}}}
    document = json.loads(sandbox(name, **template, **spec.pop("template", {})))
    document["spec"] |= {"resources": {"limits": {"memory": "64Mi", "pids": 64}}, **spec}
    return json.dumps(document)


def said(daemon: RunningDaemon, name: str, script: str) -> str:
    return daemon.paddock("exec", name, "--", "sh", "-ec", script).stdout


@pytest.fixture(scope="module")
def others() -> Iterator[Mapping[str, str]]:
    """Images on Paddock's whose user is another, and one as an older base had it."""
    lines = {"root": "USER 0:0", "other": "USER 1000:1000", "older": "LABEL paddock.dev/user="}
    texts = {name: f"paddock/test-own-{name}-{os.getpid()}" for name in lines}
    for name, line in lines.items():
        recipe = f"FROM paddock/test-tiny:1\n{line}\n".encode()
        subprocess.run(["docker", "build", "-q", "-t", texts[name], "-"], input=recipe, check=True, capture_output=True)
    yield texts
    for text in texts.values():
        remove_image(text)


def test_images_that_fit_any_user_get_ids_at_every_level(daemon: RunningDaemon, others: Mapping[str, str]) -> None:
    levels = ("development", "build", "production")
    shared = {"root": "0:0", "other": "1000:1000", "older": "20000:20000"}
    at_levels = [at_level(f"at-{level}", level) for level in levels]
    at_levels += [
        at_level(f"as-{entry}", image=others[entry], template={"command": ["sleep", "1000"]}) for entry in shared
    ]
    daemon.apply("\n---\n".join(at_levels))
    ready(daemon, *(f"at-{level}" for level in levels), *(f"as-{entry}" for entry in shared))
    ids = {own_id(daemon, f"at-{level}") for level in levels}
    assert len(ids) == len(levels)
    for name, user in shared.items():
        document = status(daemon, f"as-{name}")
        assert (document["user"], document["userShared"]) == (user, True)
        assert said(daemon, f"as-{name}", "id -u").strip() == user.partition(":")[0]
    script = (
        "id -u; whoami; echo $HOME; touch /workspace/x ~/y; echo 'z=1' >> ~/.bashrc; mkdir -p ~/.cache/z; echo done"
    )
    for text in levels:
        uid = str(own_id(daemon, f"at-{text}"))
        assert said(daemon, f"at-{text}", script).split() == [uid, "sandbox", "/home/sandbox", "done"]
        assert daemon.paddock("attest", f"at-{text}").returncode == 0
    printed = json.loads(daemon.paddock("get", "securityprofile/full-isolation", "-o", "json").stdout)
    assert printed["status"]["effective"]["defaultUser"] == "own"
    daemon.paddock("delete", "sandboxes", "--all", "--timeout=60s")


def test_two_ids_write_in_one_workspace_and_one_volume(daemon: RunningDaemon, project: Path) -> None:
    shared = {"volumes": [{"name": "both", "mountPath": "/both", "size": "32Mi"}]}
    names = ("one", "other")
    work = {"hostPath": str(project)}
    daemon.apply("\n---\n".join(at_level(name, workspace=work, template=shared) for name in names))
    ready(daemon, *names)
    assert own_id(daemon, "one") != own_id(daemon, "other")
    for folder in ("/workspace", "/both"):
        said(daemon, "one", f"mkdir {folder}/deep && echo one > {folder}/deep/log && chmod 600 {folder}/deep/log")
        said(
            daemon, "other", f"echo other >> {folder}/deep/log; mv {folder}/deep/log {folder}/log; rmdir {folder}/deep"
        )
        assert said(daemon, "one", f"cat {folder}/log; stat -c %u {folder}/log").split() == [
            "one",
            "other",
            str(own_id(daemon, "one")),
        ]
    observed = (project / "log").stat()
    assert (observed.st_uid, observed.st_gid) == (12345, 12345)
    daemon.paddock("delete", "sandboxes", "--all", "--timeout=60s")


TOOLS = {
    "getpwuid": "python3 -c 'import getpass, os, pwd; print(pwd.getpwuid(os.getuid()).pw_dir, getpass.getuser())'",
    "git": "git config --global user.email a@b.c; git config --global user.name n; "
    "git init -q . && git commit -q --allow-empty -m x && git log --oneline | wc -l; git clone -q . /workspace/again",
    "ssh": "ssh -G some.example | grep -c '^user sandbox$'; ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/id_ed25519; "
    "echo \"some.example $(cut -d' ' -f1,2 ~/.ssh/id_ed25519.pub)\" >> ~/.ssh/known_hosts; "
    "ssh-keygen -F some.example >/dev/null; ssh-keygen -R some.example 2>/dev/null >/dev/null",
    "pip": "cd /workspace; python3 -m venv v; mkdir -p p/m; echo 'n = 42' > p/m/__init__.py; "
    'printf \'from setuptools import setup\\nsetup(name="m", version="1", packages=["m"])\\n\' > p/setup.py; '
    "pip install -q --user --break-system-packages --no-index --no-build-isolation ./p; cd /tmp; "
    "python3 -c 'import m; print(m.n, m.__file__.startswith(\"/home/sandbox/\"))'",
    "npm": "mkdir -p dep app; cd dep; npm init -y >/dev/null; echo 'module.exports = 42' > index.js; cd ../app; "
    "npm init -y >/dev/null; npm install --silent --offline ../dep; node -p 'require(\"dep\")'; "
    "cd; npm config set prefix ~/.npm; npm install --silent --offline -g /workspace/dep; ls ~/.npm/lib/node_modules",
}
FOUND = {"getpwuid": "/home/sandbox sandbox", "git": "1", "ssh": "1", "pip": "42 True", "npm": "42 dep"}


@pytest.mark.images
def test_tools_work_with_an_id_of_its_own(daemon: RunningDaemon) -> None:
    image = {"image": "paddock/toolchain:1"}
    limits = {"limits": {"memory": "1Gi", "pids": 256}}
    daemon.apply(at_level("tools", "production", **image, resources=limits))
    ready(daemon, "tools")
    own_id(daemon, "tools")
    for name, script in TOOLS.items():
        assert said(daemon, "tools", script).split() == FOUND[name].split(), name
    daemon.paddock("delete", "sandboxes", "--all", "--timeout=60s")


@pytest.fixture
def mapping() -> Iterator[PrivateEngine]:
    """An engine with userns-remap: root in its containers is this host's user 500000."""
    with tempfile.TemporaryDirectory(prefix="pdk-") as temporary_directory:
        folder, namespaces = Path(temporary_directory), Namespaces()
        folder.chmod(0o755)  # the mapped root goes through it
        for name in ("subuid", "subgid"):
            (folder / name).write_text("nobody:500000:65536\n")
            namespaces.run("mount", "--bind", str(folder / name), f"/etc/{name}")
        engine = PrivateEngine(folder, "--userns-remap=nobody:nogroup", namespaces=namespaces)
        try:
            yield engine.start()
        finally:
            engine.close()
            namespaces.close()


@pytest.mark.skipif(not Path("/etc/subuid").exists(), reason="this host has no file of delegated ids")
def test_an_engine_that_maps_users_gives_ids_of_its_map(mapping: PrivateEngine, project: Path, tmp_path: Path) -> None:
    mapping.load("paddock/test-tiny:1")
    document: dict[str, Any] = {
        "image": "paddock/test-tiny:1",
        "template": {"command": ["sleep", "1000"], "volumes": [{"name": "v", "mountPath": "/v", "size": "32Mi"}]},
        "workspace": {"hostPath": str(project)},
    }
    rooted = {**document, "template": {**document["template"], "user": "0:0"}}
    host_roots = json.dumps([{"path": str(project.parent)}])
    where = {"PADDOCK_DOCKER_HOST": mapping.base_url, "PADDOCK_HOST_ROOTS": host_roots}
    with running(tmp_path / "mapped", **where) as daemon:
        daemon.apply("\n---\n".join((at_level("mapped", **document), at_level("rooted", **rooted))))
        ready(daemon, "mapped", "rooted")
        uid = status(daemon, "mapped")["user"].partition(":")[0]
        assert 20_000 < int(uid) < 65_534
        for name, inside in (("mapped", uid), ("rooted", "0")):
            script = f"id -u; for each in /v /workspace; do echo x > $each/of-{name}; stat -c %u $each/of-{name}; done"
            assert said(daemon, name, script).split() == [inside] * 3
            pid = int(mapping.docker("inspect", "-f", "{{.State.Pid}}", status(daemon, name)["instanceRef"]["name"]))
            assert Path(f"/proc/{pid}").stat().st_uid == 500_000 + int(inside)
            assert daemon.paddock("attest", name).returncode == 0
            owner = (project / f"of-{name}").stat()
            assert (owner.st_uid, owner.st_gid) == (12345, 12345)
        assert "of 20001-65533" in daemon.works_at.paddock("doctor", check=False).stdout
        daemon.paddock("delete", "sandboxes", "--all", "--timeout=60s")


def test_a_warm_member_keeps_its_id_and_ids_are_not_reused_at_once(daemon: RunningDaemon) -> None:
    pool = """
apiVersion: paddock/v1alpha1
kind: SandboxTemplate
metadata: {name: t, namespace: warm}
spec: {image: "paddock/python:1", command: [sleep, infinity]}
---
apiVersion: paddock/v1alpha1
kind: SandboxPool
metadata: {name: p, namespace: warm}
spec: {templateRef: {name: t}, warmReplicas: 1, shutdownGracePeriodSeconds: 0}
"""
    claim = json.dumps(
        {
            "apiVersion": "paddock/v1alpha1",
            "kind": "Sandbox",
            "metadata": {"name": "claimed", "namespace": "warm"},
            "spec": {"templateRef": {"name": "t"}, "lifecycle": {"shutdownGracePeriodSeconds": 0}},
        }
    )
    daemon.apply(pool)
    observed = []
    for _ in range(2):
        daemon.paddock("wait", "-n", "warm", "--for=condition=Ready", "--timeout=90s", "sandboxpool/p")
        daemon.apply(claim)
        ready(daemon, "claimed", namespace="warm")
        assert status(daemon, "claimed", "warm")["launchType"] == "Warm"
        container = status(daemon, "claimed", "warm")["instanceRef"]["containerID"]
        uid = own_id(daemon, "claimed", "warm")
        assert docker("inspect", "-f", "{{.Config.User}}", container) == f"{uid}:{uid}"
        output = daemon.paddock(
            "exec", "claimed", "-n", "warm", "--", "sh", "-c", "id -u; cd; touch x && echo ok"
        ).stdout
        assert output.split() == [str(uid), "ok"]
        observed.append(uid)
        daemon.paddock("delete", "sandbox/claimed", "-n", "warm", "--timeout=60s")
    assert observed[0] < observed[1]
    daemon.paddock("delete", "sandboxpool/p", "sandboxtemplate/t", "-n", "warm", "--timeout=60s")
