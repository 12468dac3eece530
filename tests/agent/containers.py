"""Containers whose main process is the agent, with its own runtime in a read-only volume at /.paddock."""

import contextlib
import json
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
START = [
    *("/.paddock/lib/ld.so", "--library-path", "/.paddock/lib", "/.paddock/bin/python3.11"),
    *("-I", "-S", "-OO", "-X", "utf8", "/.paddock/agent/agent.py"),
]


def docker(*words: str, stdin: bytes = b"") -> str:
    done = subprocess.run(["docker", *words], input=stdin, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


@contextlib.contextmanager
def runtime() -> Iterator[str]:
    """Yield the name of a volume that the engine has filled from the image's folder."""
    subprocess.run([ROOT / "images" / "build.sh", "agent", "tiny"], check=True, stdout=subprocess.DEVNULL)
    name = f"paddock-test-agent-{uuid.uuid4().hex[:8]}"
    docker("volume", "create", name)
    filling = docker("create", "--volume", f"{name}:/.paddock", "paddock/agent:1").strip()
    docker("rm", filling)
    yield name
    docker("volume", "rm", name)


@contextlib.contextmanager
def container(volume: str, settings: dict[str, Any], main: Sequence[str] = ()) -> Iterator[str]:
    """Yield the id of a busybox container, confined as at level `minimal`, with the agent and its command."""
    confined = ["--network=none", "--read-only", "--cap-drop=ALL", "--pids-limit=64", "--memory=256m", "--init"]
    confined += [f"--security-opt=seccomp={ROOT}/images/seccomp/minimal.json", "--security-opt=no-new-privileges"]
    mounts = [f"--volume={volume}:/.paddock:ro", "--tmpfs=/workspace:uid=20000,gid=20000,exec"]
    command = [*START, "--settings", json.dumps(settings), *(["--", *main] if main else [])]
    name = docker("run", "--detach", *confined, *mounts, "paddock/test-tiny:1", *command).strip()
    try:
        yield name
    finally:
        docker("rm", "--force", name)
