"""Forks of 100 MB in 10 and in many files beside `docker commit` and run, and captures under writes: none is torn."""

import hashlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import docker as docker_py
import pytest

from paddock import Paddock, Sandbox
from tests.daemon import RunningDaemon, running, wait_for

pytestmark = [pytest.mark.bench, pytest.mark.timeout(1800)]
MIB = 1 << 20
FILES = int(os.environ.get("PADDOCK_BENCH_FILES", "10000"))
ROUNDS = 3
CAPTURES = int(os.environ.get("PADDOCK_BENCH_CAPTURES", "20"))
PROFILE = """
apiVersion: paddock/v1alpha1
kind: SecurityProfile
metadata: {name: writable}
spec: {base: full-isolation, readOnlyRootFilesystem: false}
"""
SANDBOX = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: NAME}
spec:
  template:
    image: paddock/python:1
    command: ["sleep", "1000000"]
    securityLevel: writable
    workspace: {mountPath: /workspace}
    volumeClaimTemplates: [{name: data, mountPath: /data, size: 64Mi, reclaimPolicy: Delete}]
  resources: {limits: {cpu: "2", memory: 512Mi}}
  lifecycle: {keepRunning: true, shutdownGracePeriodSeconds: 0}
"""
FILL = """
import os
for number in range({count}):
    os.makedirs(f"/var/tmp/w/{{number // 500}}", exist_ok=True)
    open(f"/var/tmp/w/{{number // 500}}/{{number}}", "wb").write(os.urandom({size}))
"""
# Records in this order; files that end in .s are written through after each one.
PLACES = ("/tmp/a", "/workspace/b", "/data/c", "/data/d.s", "/var/tmp/e", "/var/tmp/f.s")
ARCHIVE = """
import os, sys
from controller.archive.state.restore import restore
from controller.archive.state.save import save
way, folder, archive = sys.argv[1:]
opened = os.open(folder, os.O_RDONLY)
if way == "c":
    with open(archive, "wb") as file:
        save(opened, file.write)
else:
    with open(archive, "rb", buffering=0) as file:
        restore(opened, file.read)
"""
WRITER = """
import hashlib, os, sys
files = [(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), path.endswith(".s")) for path in sys.argv[1:]]
number = 0
while True:
    number += 1
    record = b"%010d " % number
    record += hashlib.sha256(record).hexdigest()[:52].encode() + b"\\n"
    for file, through in files:
        os.write(file, record)
        if through:
            os.fsync(file)
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    grants = json.dumps({"writableRoot": True})
    with running(tmp_path_factory.mktemp("snapshots"), PADDOCK_PROFILE_GRANTS=grants) as started:
        started.apply(PROFILE)
        yield started


def start(daemon: RunningDaemon, name: str) -> float:
    """Start a sandbox; return the seconds until it is Ready."""
    begun = time.monotonic()
    daemon.apply(SANDBOX.replace("NAME", name))
    daemon.paddock("wait", "--for=condition=Ready", "--timeout=90s", f"sandbox/{name}")
    return time.monotonic() - begun


@pytest.mark.parametrize(("count", "frozen_most", "more_most"), [(10, 0.2, 0.3), (FILES, 0.6, 2.5)])
def test_forks_beside_docker_commit(daemon: RunningDaemon, count: int, frozen_most: float, more_most: float) -> None:
    """By turns, so that a busy machine is as busy for each: a cold start, a fork, and `docker commit` with a run."""
    name = f"source-{count}"
    start(daemon, name)
    client, images = docker_py.from_env(timeout=300), []
    rows: list[tuple[float, ...]] = []
    with Paddock(f"unix://{daemon.socket}") as paddock:
        source = paddock.sandboxes.get(name)
        source.exec(["python3", "-c", FILL.format(count=count, size=100 * MIB // count)], timeout=300).check()
        os.sync()
        forks = []
        container = client.containers.get(daemon.get(name)["status"]["instanceRef"]["name"])
        for round_ in range(ROUNDS):
            cold = start(daemon, f"cold{round_}-{count}")
            fork, frozen, whole = _fork(paddock, source)
            begun = time.monotonic()
            images.append(container.commit("paddock-bench-snapshot", str(round_), pause=True).id)
            committed = time.monotonic() - begun
            run = client.containers.run(images[-1], ["true"], detach=True)
            rows.append((cold, frozen, whole, whole - cold, committed, time.monotonic() - begun))
            run.remove(force=True)
            forks.append(fork)
        # Not between the rounds: ext4 without a journal looks at each inode that was freed in the last minutes.
        for fork in forks:
            _delete(paddock, fork)
    for image in images:
        client.images.remove(image, force=True)
    client.close()
    cold, frozen, whole, more, committed, beside = (statistics.median(values) for values in zip(*rows, strict=True))
    ratio = statistics.median(row[2] / row[5] for row in rows)
    still = statistics.median(row[1] / row[4] for row in rows)
    print(
        f"\nfork of 100 MB in {count} files, {ROUNDS} rounds at a load of {os.getloadavg()[0]:.0f}:"
        f" frozen {frozen:.3f} s (goal {frozen_most}), {still:.3f} of docker commit's {committed:.2f} s;"
        f" Ready after {whole:.2f} s, {more:.2f} s more than a cold start of {cold:.2f} s (goal {more_most}),"
        f" {ratio:.2f} of commit and run ({beside:.2f} s)"
    )
    assert still < 1


def _fork(paddock: Paddock, source: Sandbox) -> tuple[Sandbox, float, float]:
    """Return a fork, the seconds that the source stood still, and those until the fork is Ready."""
    begun = time.monotonic()
    (fork,) = source.fork()
    whole = time.monotonic() - begun
    snapshot = paddock.objects("sandboxsnapshots").get(_snapshot_of(fork))
    return fork, snapshot["status"]["frozenSeconds"], whole


def _delete(paddock: Paddock, fork: Sandbox) -> None:
    """Delete a fork and its snapshot."""
    name = _snapshot_of(fork)
    fork.delete(wait=True)
    paddock.objects("sandboxsnapshots").delete(name)


def _snapshot_of(fork: Sandbox) -> str:
    return str(fork.refresh().object["spec"]["restoreFrom"]["snapshotRef"]["name"])


def test_archives_beside_tar(tmp_path: Path) -> None:
    """CPU time of the archiver beside that of GNU tar, by turns: frozen time and time to Ready come from it."""
    source, archive, theirs = (tmp_path / name for name in ("source", "archive", "tar"))
    for number in range(FILES):
        folder = source / str(number // 500)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / str(number)).write_bytes(os.urandom(2048))
    ratios: dict[str, list[float]] = {"save": [], "restore": []}
    for round_ in range(5):
        target, beside = tmp_path / f"ours{round_}", tmp_path / f"tar{round_}"
        for folder in (target, beside):
            folder.mkdir()
        commands = {
            "save": (("c", source, archive), ["tar", "cf", str(theirs), "-C", str(source), "."]),
            "restore": (("x", target, archive), ["tar", "xpf", str(theirs), "-C", str(beside)]),
        }
        for name, (arguments, command) in commands.items():
            seconds = _cpu_seconds([sys.executable, "-c", ARCHIVE, *map(str, arguments)])
            ratios[name].append(seconds / _cpu_seconds(command))
    middle = {name: statistics.median(values) for name, values in ratios.items()}
    print(
        f"\n{FILES} files: a save needs {middle['save']:.2f} of the CPU time of tar, a restore {middle['restore']:.2f}"
    )
    assert max(middle.values()) < 4


def _cpu_seconds(command: list[str]) -> float:
    begun = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime - begun.ru_utime - begun.ru_stime


def test_captures_under_writes_are_never_torn(daemon: RunningDaemon) -> None:
    """PADDOCK_BENCH_CAPTURES=1000 takes about a quarter of an hour; each twentieth is forked, too."""
    start(daemon, "writer")
    torn, lengths = [], []
    with Paddock(f"unix://{daemon.socket}") as paddock:
        writer = paddock.sandboxes.get("writer")
        for number in range(CAPTURES):
            if not number % 500:  # its files stay small
                _begin_writer(writer)
            snapshot = writer.snapshot(f"w{number}")["metadata"]
            counts = [_count(data) for data in _captured(daemon, snapshot["uid"])]
            if not number % 20:
                (fork,) = writer.fork(snapshot=snapshot["name"], name_prefix=f"f{number}")
                if [_count(fork.files.read_bytes(place)) for place in PLACES] != counts:
                    torn.append(counts)
                fork.delete(wait=True)
            lengths.append(counts[0])
            if -1 in counts or counts != sorted(counts, reverse=True) or counts[-1] < counts[0] - 1:
                torn.append(counts)
            paddock.objects("sandboxsnapshots").delete(snapshot["name"])
    print(f"\n{CAPTURES} captures under writes: {len(torn)} torn; records {min(lengths)} to {max(lengths)}")
    assert not torn, torn
    assert max(lengths) > min(lengths) > 0


def _begin_writer(writer: Sandbox) -> None:
    writer.exec(["sh", "-c", f"pkill -f hashlib; rm -f {' '.join(PLACES)}; true"])
    writer.background(["python3", "-c", WRITER, *PLACES])
    wait_for("records", lambda: writer.exec(["test", "-s", PLACES[-1]]).exit_code == 0)


def _captured(daemon: RunningDaemon, uid: str) -> list[bytes]:
    """Return the files of a snapshot, in the order of their places, from its archives."""
    folder = daemon.folder / "snapshots" / uid
    parts = {part["path"]: part["file"] for part in json.loads((folder / "content.json").read_text())["parts"]}
    contents = []
    for place in PLACES:
        path = max((path for path in parts if place.startswith(path.rstrip("/") + "/")), key=len)
        with tarfile.open(folder / parts[path]) as archive:
            file = archive.extractfile(place.removeprefix(path).lstrip("/"))
            assert file is not None
            contents.append(file.read())
    return contents


def _count(data: bytes) -> int:
    """Return the number of whole, right records; -1 for a torn file."""
    if len(data) % 64:
        return -1
    for at in range(0, len(data), 64):
        begin = b"%010d " % (at // 64 + 1)
        if data[at : at + 64] != begin + hashlib.sha256(begin).hexdigest()[:52].encode() + b"\n":
            return -1
    return len(data) // 64
