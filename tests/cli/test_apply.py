"""`paddock apply`: output, refusals, and that a refusal changes nothing."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.helpers_api import QUICKSTART, ApiStack

Spec = Callable[..., str]
OTHER = QUICKSTART.replace("name: quickstart", "name: other")


def test_it_prints_what_kubectl_would(paddock: Run, spec: Spec) -> None:
    first = paddock("apply", "-f", spec())
    assert (first.exit_code, first.stdout) == (0, "sandbox.paddock/quickstart created\n")
    assert paddock("apply", "-f", spec()).stdout == "sandbox.paddock/quickstart unchanged\n"
    changed = spec(f"{QUICKSTART.replace('512Mi', '1Gi')}---\n{OTHER}")
    assert paddock("apply", "-f", changed).stdout == (
        "sandbox.paddock/quickstart configured\nsandbox.paddock/other created\n"
    )


def test_folders_stdin_and_several_files(paddock: Run, spec: Spec, tmp_path: Path) -> None:
    spec(name="specs/b.yml")
    spec(OTHER, name="specs/a.yaml")
    spec("not a spec", name="specs/README.md")
    done = paddock("apply", "-f", str(tmp_path / "specs"))
    assert done.stdout == "sandbox.paddock/other created\nsandbox.paddock/quickstart created\n"
    third = QUICKSTART.replace("name: quickstart", "name: third")
    assert paddock("apply", "-f", "-", stdin=third).stdout == "sandbox.paddock/third created\n"
    both = paddock("apply", "-f", spec(OTHER, "o.yaml"), "-f", spec())
    assert both.stdout == "sandbox.paddock/other unchanged\nsandbox.paddock/quickstart unchanged\n"


def test_problems_go_to_stderr_with_their_position(paddock: Run, spec: Spec, served: ApiStack) -> None:
    path = spec(f"{OTHER}---\n{QUICKSTART.replace('512Mi', '512m')}")
    done = paddock("apply", "-f", path)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == (
        "error: 1 problem; nothing was changed\n"
        f"{path}:23:33: spec.resources.limits.memory: `512m` is 0.512 bytes; write `512Mi`\n"
    )
    assert served.store.list("Sandbox")[0] == []


def test_a_server_dry_run_compares_and_writes_nothing(paddock: Run, spec: Spec, served: ApiStack) -> None:
    done = paddock("apply", "-f", spec(), "--dry-run=server")
    assert done.stdout == "sandbox.paddock/quickstart created (server dry run)\n"
    assert served.store.list("Sandbox")[0] == []


def test_a_client_dry_run_needs_no_daemon(paddock: Run, spec: Spec) -> None:
    done = paddock("--server", "unix:///nowhere", "apply", "-f", spec(), "--dry-run=client")
    assert (done.exit_code, done.stdout) == (0, "sandbox.paddock/quickstart valid (client dry run)\n")
    path = spec(f"{QUICKSTART.replace('512Mi', '512m')}---\n{OTHER}---\n{OTHER}")
    bad = paddock("apply", "-f", path, "--dry-run=client")
    assert (bad.exit_code, bad.stdout) == (1, "")
    assert bad.stderr.startswith("error: 2 problems\n")
    assert f"{path}:11:33: spec.resources.limits.memory" in bad.stderr
    assert f"Sandbox `other` is already defined at {path}:13" in bad.stderr


def test_the_namespace_of_the_command_is_for_documents_without_one(paddock: Run, spec: Spec, served: ApiStack) -> None:
    assert paddock("apply", "-f", spec(), "-n", "team").exit_code == 0
    assert served.sandbox(namespace="team").name == "quickstart"
    text = QUICKSTART.replace("  name: quickstart", "  name: quickstart\n  namespace: own")
    output = paddock("apply", "-f", spec(text), "-n", "team")
    assert (output.exit_code, "metadata.namespace: is `own`" in output.stderr) == (1, True)
    assert paddock("apply", "-f", spec(text)).exit_code == 0


def test_unreadable_files_are_named(paddock: Run, tmp_path: Path) -> None:
    (tmp_path / "binary.yaml").write_bytes(b"kind: \x00\x01")
    (tmp_path / "empty").mkdir()
    for name, message in (
        ("missing.yaml", "No such file"),
        ("binary.yaml", "the file is binary"),
        ("empty", "no .yaml, .yml, .json file in this folder"),
    ):
        done = paddock("apply", "-f", str(tmp_path / name))
        assert done.exit_code == 1
        assert message in done.stderr
        assert name in done.stderr


def test_without_a_file_it_is_a_usage_error(paddock: Run) -> None:
    done = paddock("apply")
    assert done.exit_code == 2
    assert "-f FILE" in done.stderr


def test_yaml_from_get_applies_again(paddock: Run, spec: Spec) -> None:
    paddock("apply", "-f", spec(f"{QUICKSTART}---\n{OTHER}"))
    output = paddock("get", "sb/quickstart", "-o", "yaml").stdout
    assert paddock("apply", "-f", "-", stdin=output).stdout == "sandbox.paddock/quickstart unchanged\n"
    many = paddock("get", "sb", "-o", "json").stdout
    assert paddock("apply", "-f", "-", stdin=many).stdout == (
        "sandbox.paddock/other unchanged\nsandbox.paddock/quickstart unchanged\n"
    )


@pytest.mark.parametrize(
    ("block", "command"),
    [
        ("workflow: {stages: [{name: a, agent: coding}]}", "paddock apply -f FILE` and `paddock workflow run NAME"),
        ("container_pool: {warm_containers: 3, max_containers: 20}", "paddock apply -f FILE"),
        ("docker_llm: {models: [{id: llama3}]}", "paddock plugin install docker-llm-provider"),
        ("mcp_servers: {files: {command: npx}}", "paddock mcp enable -- COMMAND ARGUMENT..."),
        ("providers: {openai: {model: gpt-4}}", "paddock config provider add NAME --type openai"),
        ("security: {level: development}", "paddock project config sandbox --project NAME --security-level"),
    ],
)
def test_a_foreign_block_is_answered_by_its_command(
    paddock: Run, spec: Callable[..., str], block: str, command: str
) -> None:
    done = paddock("apply", "-f", spec(block + "\n"))
    assert done.exit_code == 1
    [line] = [name for name in done.stderr.splitlines() if "app.yaml" in name]
    assert "not a document; " in line
    assert f"`{command}" in line
