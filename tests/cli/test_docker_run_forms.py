"""Forms of `docker run` and `kubectl run` at `paddock run`: what each asks for, or what it is answered with."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from controller.cli.main import cli
from controller.cli.runs import docker_options
from controller.kinds.common.quantity import format_bytes, parse_bytes
from tests.helpers_api import ApiStack

SLEEP = ["sleep", "infinity"]
LEVEL = "a security level decides this; write --level NAME"
NO_PORT = "no port is published; run it with -d --name NAME, and write `paddock port-forward NAME"


def run(served: ApiStack, *words: str) -> Result:
    return CliRunner().invoke(cli, ["--server", f"unix://{served.socket}", "run", "--wait", "1ms", *words])


def created(served: ApiStack, *words: str) -> tuple[dict[str, Any], str]:
    """Return the spec of the sandbox that a command line creates, and its name."""
    done = run(served, *words)
    assert "was not Ready" in done.stderr, done.stderr
    (sandbox,) = served.store.list("Sandbox")[0]
    return sandbox.spec, sandbox.name


@pytest.mark.parametrize(
    ("words", "template"),
    [
        (["busybox", "ls", "-l"], {"image": "busybox", "command": SLEEP}),
        (["python:3.12", "python3", "-c", "print(1)"], {"image": "python:3.12", "command": SLEEP}),
        (["-it", "x.org:5000/a/b:1", "--", "sh"], None),
        (["--rm", "-i", "alpine:3", "cat", "-v"], {"image": "alpine:3", "command": SLEEP}),
        (["-i", "-e", "A=b", "-w", "/tmp", "busybox", "env"], {"image": "busybox", "command": SLEEP}),
        (["-d", "busybox", "sleep", "9"], {"image": "busybox", "args": ["sleep", "9"]}),
        (["-d", "redis:7", "--appendonly", "yes"], {"image": "redis:7", "args": ["--appendonly", "yes"]}),
        (["-d", "redis:7"], {"image": "redis:7"}),
        (["hello-world"], {"image": "hello-world"}),
        (["-d", "-w", "/srv", "-e", "A=b", "busybox"], {"workingDir": "/srv", "env": [{"name": "A", "value": "b"}]}),
        (["-d", "--entrypoint", "sh", "busybox", "-c", "ls"], {"command": ["sh", "-c", "ls"]}),
        (["--entrypoint=sh", "busybox", "-c", "ls"], {"image": "busybox", "command": SLEEP}),
        (["-u", "20000:20000", "busybox", "id"], {"user": "20000:20000"}),
        (["--init", "--cap-drop", "ALL", "--read-only", "--network", "none", "busybox", "id"], {"image": "busybox"}),
        (["--net=none", "--restart=no", "--pull", "missing", "busybox", "id"], {"image": "busybox"}),
        (["web", "--image=busybox", "--restart=Never", "--", "ls"], {"image": "busybox", "command": SLEEP}),
        (["--image=busybox", "web", "--", "ls"], {"image": "busybox", "command": SLEEP}),
        (["web", "--image", "busybox", "-d", "--command", "--", "ls"], {"image": "busybox", "command": ["ls"]}),
        (["--image", "busybox", "ls"], {"image": "busybox", "command": SLEEP}),
        (["--", "ls"], {"image": "paddock/python:1", "command": SLEEP}),
        (["--image", "busybox", "-c", "1"], {"image": "busybox", "command": SLEEP}),
    ],
)
def test_forms_that_create_a_sandbox(served: ApiStack, words: list[str], template: dict[str, Any] | None) -> None:
    if template is None:
        assert "stdin is not a terminal" in run(served, *words).stderr
        return
    spec, name = created(served, *words)
    assert {key: spec["template"].get(key) for key in template} == template
    assert (name == "web") == ("web" in words)
    if "args" not in template and "command" not in template:
        assert (
            words[-1] == "id" or "command" not in spec["template"] or spec["template"]["command"] == ["sh", "-c", "ls"]
        )


def test_limits_are_those_of_docker(served: ApiStack) -> None:
    spec, _ = created(served, "-m", "512m", "--cpus", "1.5", "--pids-limit=99", "busybox", "ls")
    assert spec["resources"]["limits"] == {"memory": "512Mi", "cpu": "1500m", "pids": 99}


@pytest.mark.parametrize(
    ("text", "memory"),
    [("8G", "8G"), ("8g", "8Gi"), ("8Gi", "8Gi"), ("512M", "512M"), ("8gb", "8Gi"), ("1.5g", "1536Mi"), ("2k", "2Ki")],
)
def test_memory_reads_back_as_it_is_written(text: str, memory: str) -> None:
    assert format_bytes(parse_bytes(docker_options.memory(text))) == memory


def test_a_volume_is_one_of_the_namespace(served: ApiStack) -> None:
    spec, _ = created(served, "-v", "cache:/var/cache:ro", "busybox", "ls")
    (volume,) = spec["template"]["volumes"]
    assert (volume["name"], volume["mountPath"], volume["readOnly"]) == ("cache", "/var/cache", True)


def test_variables_come_as_docker_reads_them(served: ApiStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "own")
    file = tmp_path / "env"
    file.write_text("# a comment\nA=of the file\n  B=2\n\nMINE\nNOT_SET_ANYWHERE\n")
    spec, _ = created(served, "-d", "--env-file", str(file), "-e", "A=given", "-eC=3", "busybox")
    env = {entry["name"]: entry["value"] for entry in spec["template"]["env"]}
    assert env == {"A": "given", "B": "2", "MINE": "own", "C": "3"}
    file.write_text("A=1\nnot one\n")
    assert f"--env-file {file}:2: not a variable" in run(served, "--env-file", str(file), "busybox", "ls").stderr


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["console.log(1)"], "console.log(1): can't be an image; for code write `paddock run -c 'console.log(1)'`"),
        (["print(6 * 7)"], "for code write `paddock run -c 'print(6 * 7)'`"),
        (["./tool", "x"], "./tool: can't be an image; write IMAGE before it, or `paddock run -- ./tool`"),
        (["./a.py"], "./a.py: a script, no image; write `paddock run -f ./a.py`"),
        (
            ["-c", "1", "a", "b"],
            "a: not expected before `--`; for an argument write `paddock run --wait 1ms -c 1 -- a b`",
        ),
        (["-c", "1", "python:3.12"], "for the image --image python:3.12"),
        (["-f", "a.py", "-V"], "No such option"),
        (["-f", "a.py", "x", "--", "y"], "`paddock run --wait 1ms -f a.py -- x y`"),
        (["--template", "bun", "ls"], "write `paddock run --wait 1ms --template bun -- ls`"),
        (["busybox", "-e", "A=b", "ls"], "-e: options end at the image; write `paddock run -e ... busybox`"),
        (["busybox", "-c", "1"], "write `paddock run --image busybox -c 1`"),
        (["-i", "busybox"], "-i and -t need a command; write `paddock run -it busybox COMMAND`"),
        (["-p", "8080:80", "nginx"], f"-p 8080:80: {NO_PORT} 8080:80`"),
        (["--publish=80", "nginx"], f"--publish 80: {NO_PORT} 80`"),
        (["-P", "nginx"], NO_PORT),
        (["-v", "/srv:/x", "busybox", "ls"], "or write `workspace: {hostPath: /srv}` into a spec"),
        (["-v", "/x", "busybox", "ls"], "folders of the host are not mounted here"),
        (["-v", "busybox", "ls"], "write NAME:/PATH for a volume of the namespace"),
        (["--network", "host", "busybox", "ls"], "--network host: a sandbox joins no network of Docker's"),
        (["-u", "root", "busybox", "ls"], "write numbers: --user 1000:1000"),
        (["-m", "lots", "busybox", "ls"], "--memory lots: not understood; write a size such as 512m"),
        (["--cpus", "0", "busybox", "ls"], "--cpus 0: not understood; write a number of cores"),
        (["--privileged", "busybox", "ls"], f"--privileged: {LEVEL}"),
        (["--cap-add=SYS_ADMIN", "busybox", "ls"], f"--cap-add SYS_ADMIN: {LEVEL}"),
        (["--mount", "type=bind", "busybox", "ls"], "write -v NAME:/PATH for a volume"),
        (["--restart", "always", "busybox", "ls"], "write `restartPolicy` into a spec"),
        (["--pull", "always", "busybox", "ls"], "write `paddock image pull IMAGE` before"),
        (["-l", "a=b", "busybox", "ls"], "write `paddock label sandbox NAME a=b` afterwards"),
        (["--env-file", "/none/such", "busybox", "ls"], "--env-file /none/such: No such file or directory"),
    ],
)
def test_forms_that_are_answered_with_others(served: ApiStack, words: list[str], answer: str) -> None:
    done = run(served, *words)
    assert done.exit_code in (1, 2)
    assert answer in done.stderr
    assert not served.store.list("Sandbox")[0]


def test_verbose_stands_before_run(served: ApiStack) -> None:
    runner, server = CliRunner(), ["--server", f"unix://{served.socket}"]
    for verb in (["run"], ["sandbox", "run"]):
        quiet = runner.invoke(cli, [*server, *verb, "--wait", "1ms", "busybox", "ls", "-v", "--tty=false"])
        assert "POST /" not in quiet.stderr
        loud = runner.invoke(cli, [*server, "-v", *verb, "--wait", "1ms", "busybox", "ls"])
        assert "POST /" in loud.stderr
