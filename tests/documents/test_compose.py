"""Compose files and what becomes of them: compose_files/NAME.yaml beside NAME.txt, with messages, or documents.

To accept new wording, run with PADDOCK_ACCEPT=1 and read the difference before it is committed.
"""

import os
from pathlib import Path
from typing import Any

import pytest

from controller.cli.text.yaml_text import dump
from controller.documents.compose.compose import (
    Composed,
    Project,
    apply_set_name,
    is_named,
    project_name,
    read_compose,
    variable_names,
)
from controller.documents.compose.mounts import image_volume, is_nameless, nameless_volume
from controller.kinds.common.problem import MOST_PROBLEMS, Problem
from controller.kinds.registry import discover

FOLDER = Path(__file__).parent / "compose_files"
FILES = sorted(FOLDER.glob("*.yaml"))
PROJECT = Project("", {"GREETING": "hello", "GIVEN": "here", "EMPTY": ""}, "/srv/shop")


def read(text: str, **options: Any) -> Composed:
    return read_compose("compose.yaml", text, discover(), Project(**options))


def said_of(path: Path) -> str:
    composed = read_compose(path.name, path.read_text(), discover(), PROJECT)
    if composed.problems:
        return "".join(f"{problem}\n" for problem in composed.problems)
    notes = "".join(f"{note}\n" for note in composed.notes)
    documents = (
        {"name": document.name, "labels": document.labels, "spec": document.spec} for document in composed.documents
    )
    return notes + "".join(f"---\n{dump(document)}" for document in documents)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_compose_file_becomes_this(path: Path) -> None:
    expected, text_ = path.with_suffix(".txt"), said_of(path)
    if os.environ.get("PADDOCK_ACCEPT"):
        expected.write_text(text_)
    assert text_ == expected.read_text()


def test_every_refusal_has_its_position() -> None:
    refusals = [line for path in FOLDER.glob("refused*.txt") for line in path.read_text().splitlines()]
    assert len(refusals) >= 100
    for refusal in refusals:
        file, line, column, _ = refusal.split(":", 3)
        assert file.endswith(".yaml")
        assert int(line) > 0
        assert int(column) > 0


def test_later_problems_have_positions_in_the_compose_file() -> None:
    composed = read("name: a\nservices:\n  web:\n    image: x\n    mem_limit: 1m\n")
    assert [(problem.line, problem.column, problem.field) for problem in composed.problems] == [
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
    assert [document.name for document in read("services: {web: {image: x}}", name="other").documents] == ["other-web"]
    for text_ in ("", "services: {}", "name: No"):
        assert isinstance(project_name("f", text_, Project()), Problem)
    assert isinstance(project_name("f", text, Project("No Name")), Problem)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("shop${SUFFIX}", "f:1:7: name: `SUFFIX` is not set"),
        ("shop$", "f:1:7: name: `$` starts a variable"),
        ("No Name", "f:1:7: name: `No Name` is not a valid project name"),
        ("[a]", "f:1:7: name: must be text"),
        ("", "the project has no name"),
    ],
)
def test_a_projects_name_is_never_guessed_from_a_part_of_it(name: str, message: str) -> None:
    text = f"name: {name}\nservices: {{web: {{image: '$X'}}}}\n"
    assert is_named("f", text)
    assert message in str(project_name("f", text, Project()))
    assert project_name("f", text, Project(variables={"SUFFIX": "-b"})) == "shop-b" or "SUFFIX" not in name
    assert not is_named("f", "services: {web: {image: x, name: a}}")


def test_variables_grow_to_a_bound() -> None:
    text = f"services: {{w: {{image: x, command: ['{'$A' * 100_000}']}}}}"
    composed = read_compose("f", text, discover(), Project("a", {"A": "x" * 1_000_000}))
    assert any("make more than 4 MiB of text" in str(problem) for problem in composed.problems)


LONG = "x" * (250 << 10)


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (f"['A={'x' * (256 << 10)}']", "is longer than 256 KiB"),
        (f"[&a 'A={LONG}$$', {', '.join(['*a'] * 18_000)}]", "has more than 16 MiB of text"),
        (f"[{f'A={LONG}$$, ' * 17}]", "make more than 4 MiB of text"),
        (f"['A={'$ ' * 100_000}']", "`$` starts a variable"),
        (f"['A={'$B' * 100_000}']", "`B` is not set"),
    ],
)
def test_texts_are_bounded_with_aliases_and_variables(environment: str, message: str) -> None:
    composed = read(f"name: a\nservices: {{w: {{image: x, environment: {environment}}}}}")
    assert [message in str(problem) for problem in composed.problems] == [True]


def test_aliases_share_the_text_that_is_made() -> None:
    values = ", ".join(f"A{number}: *a" for number in range(40))  # 10 MiB, were each a text of its own
    composed = read(f"name: a\nservices: {{w: {{image: x, environment: {{A: &a '{LONG}$$', {values}}}}}}}")
    assert not any("make more than" in str(problem) for problem in composed.problems)


@pytest.mark.parametrize(
    ("top", "service", "message"),
    [
        ("", f"command: '{'x' * (33 << 10)}'", "is longer than 32 KiB, too long to be split"),
        ("", f"entrypoint: '{'x' * (33 << 10)}'", "is longer than 32 KiB, too long to be split"),
        (f"x-paddock: {{network: {{a: [{'1, ' * 5_000}]}}}}\n", "read_only: true", "more than 100,000 values"),
        (f"x-paddock: {{network: {{a: {LONG}}}}}\n", "read_only: true", "more than 16 MiB of text"),
    ],
)
def test_commands_and_the_documents_that_are_made_are_bounded(top: str, service: str, message: str) -> None:
    services = "".join(f"  w{number}: {{image: x, {service}}}\n" for number in range(70))
    composed = read(f"name: a\n{top}services:\n{services}")
    assert composed.problems
    assert all(message in str(problem) for problem in composed.problems)


def test_many_problems_are_bounded() -> None:
    keys = ", ".join(f"privilege{number}: 1" for number in range(9_000))
    composed = read(f"name: a\nservices: {{w: {{image: x, {keys}}}}}")
    assert len(composed.problems) == MOST_PROBLEMS + 1
    items = ", ".join(["'80:80/udp'"] * 15_000)
    assert len(read(f"name: a\nservices: {{w: {{image: x, ports: [{items}]}}}}").problems) == MOST_PROBLEMS + 1


@pytest.mark.parametrize("options", [{"services": frozenset({"web"})}, {}], ids=["some services", "no profile"])
def test_networks_of_services_started_later_count(options: dict[str, frozenset[str]]) -> None:
    text = (
        "name: a\nservices:\n  web: {image: x, networks: [front]}\n"
        "  db: {image: x, networks: [back], profiles: [later]}\nnetworks: {front: , back: }\n"
    )
    (problem,) = read(text, **options).problems
    assert "keeps `web` and `db` apart" in str(problem)
    together = read(text.replace("[front]", "[front, back]"), **options)
    assert (together.problems, [document.name for document in together.documents]) == ([], ["a-web"])


def test_relative_binds_need_a_folder() -> None:
    text = "name: a\nservices: {w: {image: x, volumes: ['./s:/s']}}\n"
    assert "write the absolute path" in str(read(text).problems[0])
    assert read(text, folder="/srv/a").documents[0].spec["workspace"]["hostPath"] == "/srv/a/s"


def test_names_of_variables_are_those_that_a_file_uses() -> None:
    text = "a: ${ONE:-$TWO}\nenvironment: [THREE, 'FOUR', SIX=6]\nb: {FIVE: , SEVEN: 7}\nc:\n  - EIGHT\n  NINE: 9\n"
    names = variable_names([text])
    assert {"ONE", "TWO", "THREE", "FOUR", "FIVE", "EIGHT"} <= names
    assert names.isdisjoint({"SIX", "SEVEN", "NINE"})


@pytest.mark.parametrize("network", ["", ", network: {peers: Allowed}", ", network: {peers: Allowed, allowedHosts: }"])
def test_a_low_port_brings_no_hosts(network: str) -> None:
    text = "name: a\nservices: {web: {image: x, ports: ['80:80'], x-paddock: {priority: 1%s}}}\n"
    (document,) = read(text % network).documents
    assert document.spec["template"]["securityLevel"] == "build"
    assert document.spec["network"]["allowedHosts"] == []
    (document,) = read(text % ", network: {allowedHosts: [example.com]}").documents
    assert document.spec["network"]["allowedHosts"] == ["example.com"]


VOLUMES = """\
name: shop
services:
  db:
    image: mongo:7
    volumes: [data:/data/db]
  cache: {image: "redis:7", tmpfs: [/data]}
  app: {image: "java:8"}
volumes: {data: {}}
"""
IMAGE_VOLUMES = {"mongo:7": ["/data/db", "/data/configdb/"], "redis:7": ["/data"], "java:8": ["/tmp", "/var/lib/app"]}


def test_services_get_volumes_where_their_images_declare_them() -> None:
    composed = read(VOLUMES, image_volumes=IMAGE_VOLUMES)
    assert not composed.problems
    templates = [document.spec["template"] for document in composed.documents]
    mounts = [[(volume["name"], volume["mountPath"]) for volume in spec.get("volumes", ())] for spec in templates]
    assert mounts == [
        [("shop-data", "/data/db"), ("shop-db--data-configdb", "/data/configdb")],
        [],
        [("shop-app--var-lib-app", "/var/lib/app")],
    ]
    assert [mount["mountPath"] for mount in templates[2]["tmpfs"]] == ["/tmp"]
    assert composed.volumes == {"shop-data", "shop-db--data-configdb", "shop-app--var-lib-app"}
    notes = [str(note) for note in composed.notes if "the image keeps data" in note.message]
    assert notes[0].startswith("compose.yaml:4:5: services.db.image: the image keeps data in /data/configdb: a volume")
    assert len(notes) == 2


@pytest.mark.parametrize(
    ("mount", "message"),
    [("./a:/data/a", "can't have /data/a in it; have it in memory (`tmpfs: "), ("./a:/", "")],
)
def test_mounts_in_an_image_volume_are_refused(mount: str, message: str) -> None:
    file = f"name: a\nservices:\n  x:\n    image: redis:7\n    volumes: ['{mount}']\n"
    (problem,) = read(file, folder="/srv", image_volumes={"redis:7": ["/data"]}).problems
    assert (problem.line, problem.column) == ((4, 12) if message else (5, 15))
    assert message in problem.message


def test_long_names_of_image_volumes_stay_apart() -> None:
    prefix = "a-project-with-a-long-name-its-database"
    names = {image_volume(prefix, path) for path in ("/var/lib/postgresql/data", "/var/lib/postgresql/more")}
    assert len(names) == 2
    assert all(len(name) <= 52 for name in names)
    assert image_volume("shop-db", "/data") == nameless_volume("shop-db", "/data") == "shop-db--data"


def test_volumes_never_share_a_name() -> None:
    file = "name: p\nservices: {db: {image: 'a:1', volumes: ['/c-d']}}\n"
    paths = ["/Data", "/data", "/a-b", "/a/b", "/c/d"]
    (document,) = read(file, image_volumes={"a:1": paths}).documents
    names = {volume["mountPath"]: volume["name"] for volume in document.spec["template"]["volumes"]}
    assert len(set(names.values())) == len(names) == 6
    assert (names["/data"], names["/a-b"], names["/c-d"]) == ("p-db--data", "p-db--a-b", "p-db--c-d")
    assert all(is_nameless(name, "p-db", path) for path, name in names.items())
    prefix = "p" * 45
    assert image_volume(prefix, "/12345") == f"{prefix}--12345"
    assert image_volume(prefix, "/123456") != image_volume(prefix, "/123457")


@pytest.mark.parametrize("mount", ["volumes: ['data:/var/run/x']", "volumes: ['data:/run/x']", "tmpfs: [/var/run/x]"])
def test_mounts_below_var_run_cover_a_volume(mount: str) -> None:
    file = f"name: p\nservices:\n  db: {{image: 'a:1', {mount}}}\n  own: {{image: 'a:1'}}\nvolumes: {{data: {{}}}}\n"
    composed = read(file, image_volumes={"a:1": ["/var/run/x", "/data//y/../z"]})
    mounts = [
        sorted(
            entry["mountPath"] for field in ("volumes", "tmpfs") for entry in document.spec["template"].get(field, ())
        )
        for document in composed.documents
    ]
    assert mounts == [["/data/z", "/var/run/x"]] * 2  # the engine knows the image's own spelling alone


def test_image_volumes_in_each_other() -> None:
    text = "name: p\nservices: {db: {image: 'a:1'}}\n"
    (document,) = read(text, image_volumes={"a:1": ["/tmp", "/tmp/data"]}).documents
    template = document.spec["template"]
    assert [template[field][0]["mountPath"] for field in ("tmpfs", "volumes")] == ["/tmp", "/tmp/data"]
    (problem,) = read(text, image_volumes={"a:1": ["/data", "/data/sub"]}).problems
    assert "have /data in memory (`tmpfs: ['/data:size=256m']`)" in problem.message
    memory_text = text.replace("'a:1'", "'a:1', tmpfs: ['/data:size=256m']")
    assert not read(memory_text, image_volumes={"a:1": ["/data", "/data/sub"]}).problems
    (problem,) = read(text, image_volumes={"a:1": ["/"]}).problems
    assert "which can't be a volume" in problem.message
    slash = "name: p\nservices: {db: {image: 'a:1', volumes: ['data:/data/']}}\nvolumes: {data: {}}\n"
    assert not read(slash, image_volumes={"a:1": ["/data"]}).problems  # admission says what is wrong
