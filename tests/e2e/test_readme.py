"""The README files, as a reader uses them: pasted block by block, against a daemon of their own."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.daemon import ROOT, RunningDaemon, running
from tests.docs.markdown import Block, blocks, blocks_of, commands, name, own

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]
RUN = ("sh", "console", "python")
# What a reader must see, besides that every block succeeds.
SEEN = {
    "README.md": ("hello from the sandbox", "Killed: exit code 137", "condition met", "42", "45"),
    "controller/api/README.md": ('"exitCode":0', "by-curl", "from the websocket", "ExitCode"),
    "controller/cli/README.md": ("hello", "384Mi", "spec.template.env changed", "from a file", "42"),
    "controller/mcp/README.md": ("docker.container.exec", "42"),
    "controller/policy/README.md": ("full-isolation", "capabilities", "seccomp"),
    "deploy/README.md": ("ci", "yes"),
    "deploy/prometheus/README.md": ("paddock_container_memory_working_set_bytes",),
    "specs/README.md": ("300Mi",),
}
TO_RUN = [path for path in own() if any(block.language in RUN for block in blocks_of(path))]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    with running(tmp_path_factory.mktemp("readme")) as observed:
        yield observed


@pytest.mark.parametrize("file", TO_RUN, ids=name)
def test_a_page_works_when_pasted(daemon: RunningDaemon, file: Path) -> None:
    specs = ("-f", "specs/quickstart.yaml", "-f", "specs/sandbox/minimal.yaml")
    daemon.paddock("apply", *specs)
    daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/quickstart", "sandbox/minimal")
    message = "".join(run(daemon, block) for block in blocks_of(file) if block.language in RUN)
    assert [text for text in SEEN[name(file)] if text not in message] == [], message


def run(daemon: RunningDaemon, block: Block) -> str:
    """Run one block, and return what it wrote."""
    if block.language == "console":
        return _compare(daemon, block)
    if block.file != ROOT / "README.md" and block.language == "sh" and not set(block.text) & set("|<>&;$"):
        # A fork costs a hundredth of a new interpreter; the first page is pasted into a real shell.
        requested = (
            (*daemon.run, *remaining) if verb == "run" else (verb, *remaining)
            for verb, *remaining in commands(block.text)
        )
        return "".join(daemon.paddock(*arguments).stdout for arguments in requested)
    code = block.text.replace("/run/paddock/paddock.sock", str(daemon.socket))
    command = [sys.executable, "-c", code] if block.language == "python" else shell(daemon, block.text)
    return _output(daemon, command, str(block))


def shell(daemon: RunningDaemon, text: str) -> list[str]:
    """The text for this daemon: pages speak of the default places, and of the one quickstart on a host."""
    filter_ = "--filter label=paddock.name=quickstart"
    text = text.replace(filter_, f"{filter_} --filter label=paddock.instance={daemon.instance_id()}")
    text = text.replace("http://127.0.0.1:9464/metrics", daemon.metrics_url())
    text = text.replace("/run/paddock/paddock.sock", str(daemon.socket))
    text = re.sub(r"\bpaddock run\b", f"paddock {' '.join(daemon.run)}", text)
    text = text.replace('export PATH="$PWD/.venv/bin:$PATH"\n', "")
    return ["bash", "-euo", "pipefail", "-c", text]


def _output(daemon: RunningDaemon, command: list[str], where: str, *, check: bool = True) -> str:
    scratch = daemon.folder.parent / "scratch"
    scratch.mkdir(exist_ok=True)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**daemon.environment, "PATH": path, "TMPDIR": str(scratch)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
        check=False,
    )
    assert not check or done.returncode == 0, f"{where}: {done.stdout}"
    return done.stdout


def _compare(daemon: RunningDaemon, block: Block) -> str:
    """Run each command of a console; what is shown below it is what it writes, where `...` stands for anything."""
    message = ""
    for piece in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, expected = piece.partition("\n")
        output = _output(daemon, shell(daemon, command), str(block), check=False)
        pieces = ["".join(entry.split()) for entry in expected.split("...")]
        pattern = ".*".join(map(re.escape, pieces))
        assert re.search(pattern, "".join(output.split()), re.DOTALL), f"{block}: `{command}` wrote {output}"
        message += output
    return message


def test_specs_in_pages_are_admitted(daemon: RunningDaemon) -> None:
    """Apply the specs of a page together and in order, for some refer to others."""
    transport = httpx.HTTPTransport(uds=str(daemon.socket), verify=False)
    with httpx.Client(transport=transport, base_url="http://paddock", timeout=60) as client:
        for file in own():
            documents = [{"file": str(block), "text": block.text} for block in blocks("yaml") if block.file == file]
            if not documents:
                continue
            body = {"documents": documents, "dryRun": True}
            answer = client.post("/apis/paddock/v1alpha1/apply", json=body).json()
            if answer["kind"] != "Status":
                assert len(answer["items"]) >= len(documents)
                continue
            # All reasons come at once. A host without the guard refuses what has a network, and nothing else.
            [host] = client.get("/apis/paddock/v1alpha1/hosts").json()["items"]
            [guard] = [condition for condition in host["status"]["conditions"] if condition["type"] == "NetworkGuard"]
            fields = {cause["field"] for cause in answer["details"]["causes"]}
            levels = {field for field in fields if field.endswith("spec.securityLevel")}
            assert (fields, guard["status"] != "True") == (levels, True), answer["message"]
