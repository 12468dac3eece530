"""Compose files and what becomes of them: compose_files/NAME.yaml beside NAME.txt, with messages, or documents.

To accept new wording, run with PADDOCK_ACCEPT=1 and read the difference before it is committed.
"""

import os
from pathlib import Path

import pytest

from controller.cli.yaml_text import dump
from controller.documents.compose.compose import Composed, Project, apply_set_name, project_name, read_compose
from controller.kinds.common.problem import Problem
from controller.kinds.registry import discover

FOLDER = Path(__file__).parent / "compose_files"
FILES = sorted(FOLDER.glob("*.yaml"))
PROJECT = Project("", {"GREETING": "hello", "GIVEN": "here", "EMPTY": ""}, "/srv/shop")


def read(text: str, **options: str) -> Composed:
    return read_compose("compose.yaml", text, discover(), Project(**options))  # type: ignore[arg-type]


def said_of(path: Path) -> str:
    found = read_compose(path.name, path.read_text(), discover(), PROJECT)
    if found.problems:
        return "".join(f"{each}\n" for each in found.problems)
    notes = "".join(f"{each}\n" for each in found.notes)
    shown = ({"name": each.name, "labels": each.labels, "spec": each.spec} for each in found.documents)
    return notes + "".join(f"---\n{dump(each)}" for each in shown)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_compose_file_becomes_this(path: Path) -> None:
    expected, said = path.with_suffix(".txt"), said_of(path)
    if os.environ.get("PADDOCK_ACCEPT"):
        expected.write_text(said)
    assert said == expected.read_text()


def test_every_refusal_has_its_position() -> None:
    refusals = [line for path in FOLDER.glob("refused*.txt") for line in path.read_text().splitlines()]
    assert len(refusals) >= 100
    for each in refusals:
        file, line, column, _ = each.split(":", 3)
        assert file.endswith(".yaml")
        assert int(line) > 0
        assert int(column) > 0


def test_later_problems_have_positions_in_the_compose_file() -> None:
    found = read("name: a\nservices:\n  web:\n    image: x\n    mem_limit: 1m\n")
    assert [(each.line, each.column, each.field) for each in found.problems] == [
        (5, 16, "spec.resources.limits.memory")
    ]
    (document,) = read("name: a\nservices:\n  web: {image: x, user: '0'}\n").documents
    assert document.problem(("spec", "template", "user"), "no").column == 25


def test_a_project_has_a_set_in_each_namespace() -> None:
    names = {apply_set_name(place, project) for place, project in (("a-b", "c"), ("a", "b-c"), ("a", "c"))}
    assert len(names) == 3
    assert all(len(apply_set_name("n" * 63, "p" * 52)) <= 52 for _ in names)


def test_the_project_is_named_by_option_or_file() -> None:
    text = "name: shop\nservices: {web: {image: x, privileged: true}}\n"
    assert project_name("f", text, Project()) == "shop"
    assert project_name("f", text, Project("other")) == "other"
    assert [each.name for each in read("services: {web: {image: x}}", name="other").documents] == ["other-web"]
    for each in ("", "services: {}", "name: No"):
        assert isinstance(project_name("f", each, Project()), Problem)
    assert isinstance(project_name("f", text, Project("No Name")), Problem)


def test_variables_grow_to_a_bound() -> None:
    use = ", ".join(["$A" * 50] * 100)
    found = read_compose("f", f"services: {{w: {{command: [{use}]}}}}", discover(), Project("a", {"A": "x" * 2000}))
    assert any("make more than 4 MiB of text" in str(each) for each in found.problems)


def test_relative_binds_need_a_folder() -> None:
    text = "name: a\nservices: {w: {image: x, volumes: ['./s:/s']}}\n"
    assert "write the absolute path" in str(read(text).problems[0])
    assert read(text, folder="/srv/a").documents[0].spec["workspace"]["hostPath"] == "/srv/a/s"
