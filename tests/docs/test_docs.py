"""The README files are true: made from code where they can be, and checked against it where they can't."""

import ast
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from controller.cli.main import cli
from controller.cli.options import split_flag_values
from controller.kinds.planning.instance_state import END_REASONS
from controller.plan.base.events import REASONS
from controller.plan.sandbox.status import CONDITIONS, FIELDS
from controller.settings import Settings
from deploy.docs.blocks import BLOCKS, ROOT, files, rewrite
from tests.docs.markdown import ELSEWHERE, Block, anchors, blocks, commands, inline, links, name, own, prose, shell
from tests.trees import tree_of

LANGUAGES = {"sh", "bash", "console", "python", "yaml", "toml", "json", "mermaid"}
FILES = files()
TOP = [ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")]
each_file = pytest.mark.parametrize("file", FILES, ids=name)


@each_file
def test_made_blocks_are_current(file: Path) -> None:
    text = file.read_text()
    matches = re.findall(r"^<!-- made: (.+) -->$", text, re.MULTILINE)
    assert len(matches) == len(re.findall(r"^<!-- /made -->$", text, re.MULTILINE))
    assert set(matches) <= BLOCKS.keys()
    assert rewrite(text) == text, "run `make docs`"


def test_every_block_is_used() -> None:
    usage = {match for file in FILES for match in re.findall(r"<!-- made: (.+) -->", file.read_text())}
    assert usage == BLOCKS.keys()


@pytest.mark.parametrize("file", [*FILES, *TOP], ids=name)
def test_links_lead_somewhere(file: Path) -> None:
    wrong = []
    for link in links(file):
        path, _, anchor = link.partition("#")
        target = (file.parent / path).resolve() if path else file
        if not target.exists() and target.is_relative_to(ROOT) and name(target) in ELSEWHERE:
            continue  # written beside this one
        if not target.exists() or (anchor and anchor not in anchors(target)):
            wrong.append(link)
    assert wrong == []


def test_the_flow_names_code_that_exists() -> None:
    """Check `path.py: function, Class.method` and `folder/` of controller/README.md."""
    missing = []
    text = prose(ROOT / "controller/README.md")
    for path, listed in re.findall(r"`((?:\.\./)?[\w/]+(?:\.py|/))(?:: ([\w., ]+))?`", text):
        target = ROOT / "controller" / path
        code = target.read_text() if target.is_file() else ""
        symbols = re.findall(r"\w+", listed)
        defined = set(re.findall(r"^ *(?:async )?(?:def|class) (\w+)|^(\w+)", code, re.MULTILINE))
        absent = set(symbols) - {symbol for pair in defined for symbol in pair}
        if absent or not (target.exists() or (ROOT / path).exists()):
            missing.append((path, absent))
    assert missing == []
    assert text.count(".py: ") > 50


def test_blocks_have_a_language_that_is_checked() -> None:
    assert [str(block) for block in blocks() if block.file in own() and block.language not in LANGUAGES] == []


@pytest.mark.parametrize("block", blocks("sh", "bash", "console"), ids=str)
def test_commands_of_a_block_exist(block: Block) -> None:
    text = block.text
    if block.language == "console":
        text = "\n".join(line[2:] for line in text.splitlines() if line.startswith("$ "))
    for command in commands(text):
        check(command)
    for arguments in shell(text):
        _check_files(arguments)


@pytest.mark.parametrize("block", blocks("json"), ids=str)
def test_json_is_valid_and_starts_a_command_that_exists(block: Block) -> None:
    for mcp_server in json.loads(block.text).get("mcpServers", {}).values():
        if "url" in mcp_server:
            continue  # another host's
        [command] = commands(" ".join([mcp_server["command"], *mcp_server["args"]]))
        check(command)


@pytest.mark.parametrize("file", [*FILES, *TOP], ids=name)
def test_commands_in_the_text_exist(file: Path) -> None:
    for text in inline(file):
        for command in commands(text):
            check(command)


def test_a_wrong_command_would_be_found() -> None:
    for text in ("paddock gett sandboxes", "paddock get --wid", "FOO=1 paddock token creat x", "a | paddock cp -Z a b"):
        [command] = commands(text)
        with pytest.raises((click.UsageError, AssertionError)):
            check(command)


def check(words: list[str]) -> None:
    """Walk the tree of commands, and have click read the options of the last one."""
    command: click.Command = cli
    context = click.Context(cli, **cli.context_settings)  # commands keep the names of their help option
    while isinstance(command, click.Group):
        remaining = _read(command, context, words)
        if not remaining:
            return
        inner = command.get_command(context, remaining[0])
        if inner is None and command.invoke_without_command:
            return
        assert inner is not None, f"there is no command `{' '.join(words)}`"
        command, words = inner, remaining[1:]
        context = click.Context(inner, parent=context)
    _read(command, context, words)


def _read(command: click.Command, context: click.Context, words: list[str]) -> list[str]:
    """Return the arguments that are no options of this command."""
    parser = command.make_parser(context)
    parser.allow_interspersed_args = command.allow_interspersed_args
    options, argument, _ = parser.parse_args(split_flag_values(command, words))
    del options
    return list(argument)


def _check_files(words: list[str]) -> None:
    """Scripts of this repository that are called exist, and so do the targets of make."""
    makefile = (ROOT / "Makefile").read_text()
    program = words[1] if words[0] == "sudo" and len(words) > 1 else words[0]
    if program.startswith(("deploy/", "images/")):
        assert (ROOT / program).exists(), program
    for word in words:
        if re.fullmatch(r"(deploy|specs|images)/[\w./-]+\.(yaml|nft|yml|sh|toml)", word):
            assert (ROOT / word).exists(), word
    if program == "make" and len(words) > 1:
        assert f"\n{words[1]}: " in makefile, words[1]


@each_file
def test_targets_of_make_in_the_text_exist(file: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    matches = re.findall(r"`make ([a-z][a-z0-9-]*)", prose(file))
    assert [match for match in matches if f"\n{match}: " not in makefile] == []


@pytest.mark.parametrize("block", [block for block in blocks("toml") if block.file in own()], ids=str)
def test_settings_in_a_block_are_valid(block: Block) -> None:
    Settings(**tomllib.loads(block.text))


def test_settings_in_the_text_exist() -> None:
    """A name with an underscore in a table of settings or symptoms is a setting, or it is named nowhere else."""
    page = prose(ROOT / "deploy/README.md")
    matches = set(re.findall(r"`(\w+_\w+)`", page)) | set(re.findall(r"`(\w+_\w+) = ", page))
    texts = {"seccomp_profile", "writable_root", "trace_id", "pg_dump"}
    assert {match for match in matches if match.islower()} - Settings.model_fields.keys() - texts == set()


GLOSSARY = (ROOT / "specs/README.md").read_text()


def test_the_glossary_has_every_condition() -> None:
    conditions = GLOSSARY.partition("\n## Conditions\n")[2]
    assert [condition for condition in sorted(CONDITIONS) if f"| **{condition}** |" not in conditions] == []


def test_the_glossary_has_every_field_of_a_status() -> None:
    status = GLOSSARY.partition("\n### Status of a sandbox\n")[2].partition("\n#")[0]
    output = " ".join(line.split("|")[1] for line in status.splitlines() if line.startswith("| `"))
    assert set(re.findall(r"`(\w+)[.\w]*`", output)) == FIELDS


def test_the_glossary_has_every_reason() -> None:
    reasons = {*END_REASONS, *REASONS.values(), *_reasons()}
    assert len(reasons) > 90, "they were found in the code"
    assert [reason for reason in sorted(reasons) if f"{reason}`" not in GLOSSARY] == []


# Position of the reason among the arguments of what makes one.
_AT = {"Condition": 2, "Decision": 1, "Verdict": 1, "Transient": 0, "Terminal": 0, "Waiting": 1, "_flag": 4, "event": 0}


def _reasons() -> Iterator[str]:
    """Reasons that stand in the code as they are, or as a constant of the same module."""
    for package in ("plan", "engine", "service/sources", "loop"):
        for file in (ROOT / "controller" / package).rglob("*.py"):
            tree = tree_of(file)
            expected = {
                target.id: node.value.value
                for node in ast.walk(tree)
                if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
                for target in node.targets
                if isinstance(target, ast.Name)
            }
            for entry in ast.walk(tree):
                called = entry.func if isinstance(entry, ast.Call) else None
                at = _AT.get(getattr(called, "id", getattr(called, "attr", "")))
                if isinstance(entry, ast.Call) and at is not None and len(entry.args) > at:
                    yield from _texts(entry.args[at], expected)


def _texts(value: ast.expr, known: dict[str, object]) -> Iterator[str]:
    observed = value.value if isinstance(value, ast.Constant) else known.get(getattr(value, "id", ""))
    if isinstance(observed, str) and observed[:1].isupper():
        yield observed
    inner = [value.body, value.orelse] if isinstance(value, ast.IfExp) else []
    for expr in value.values if isinstance(value, ast.BoolOp) else inner:
        yield from _texts(expr, known)


def test_packages_of_the_pages_have_locked_versions() -> None:
    """A version that nobody ever fetched may not exist."""
    pinned = set(re.findall(r"^([a-z0-9-]+==\S+)", (ROOT / "tests/mcp/servers.lock").read_text(), re.MULTILINE))
    node = json.loads((ROOT / "tests/mcp/node/package-lock.json").read_text())["packages"]
    pinned |= {f"{path.removeprefix('node_modules/')}@{entry['version']}" for path, entry in node.items() if path}
    by_name = set()
    for file in FILES:
        text = file.read_text()
        by_name |= set(re.findall(r"uvx ([a-z][a-z0-9-]*==[0-9.]+)", text))
        by_name |= set(re.findall(r"npx (?:-y )?((?:@[a-z0-9-]+/)?[a-z][a-z0-9-]*@[0-9.]+)", text))
        for registry, package, version in re.findall(
            r"registry: (npm|pypi), name: \"?([^\",]+)\"?, version: ([^},]+)", text
        ):
            by_name.add(f"{package}{'@' if registry == 'npm' else '=='}{version}")
    assert {entry for entry in by_name if not entry.startswith("foo")} <= pinned
    assert len(by_name) > 2
