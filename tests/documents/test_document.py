"""Reading spec files: what good ones mean, where things stand, and what is refused before anything is read."""

import gc
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.cli.text.yaml_text import dump
from controller.documents.document import Document, find_duplicates, parse
from controller.documents.text_file import MAX_BYTES, decode
from controller.documents.yaml_core import scalar
from controller.documents.yaml_tree import Node, ValueBudget, read
from controller.kinds.base import Model
from controller.kinds.common.problem import Problem, field_path, field_text
from controller.kinds.registry import Kind, Registry, discover

GOOD = """\
# a comment
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata:
  name: app
  labels: {app: web, old: no}
spec:
  template:
    image: paddock/python:1
    env:
      - {name: ANSWER, value: on}
  resources:
    limits: {cpu: 0.5, memory: 512Mi}
"""


def document_of(text: str, **options: str) -> Document:
    documents, problems = parse("app.yaml", text, discover(), **options)
    assert not problems, [str(problem) for problem in problems]
    (document,) = documents
    return document


def test_a_document_is_read_as_written() -> None:
    document = document_of(GOOD)
    assert document.key == ("Sandbox", "default", "app")
    assert document.labels == {"app": "web", "old": "no"}
    assert document.spec["template"]["env"] == [{"name": "ANSWER", "value": "on"}]


def test_a_problem_has_the_nearest_position() -> None:
    document = document_of(GOOD)
    assert str(document.problem(field_path("spec.resources.limits.memory"), "too much")) == (
        "app.yaml:13:32: spec.resources.limits.memory: too much"
    )
    assert document.problem(field_path("spec.resources.limits.pids"), "unset").line == 13
    assert document.problem(field_path("spec.template.env[0].value"), "x").column == 31
    assert document.problem(field_path("spec.lifecycle.a.b"), "x").line == 8


def test_many_documents_empty_ones_left_out_and_json_too() -> None:
    text = f"---\n{GOOD}---\n# nothing\n---\n" + '{"apiVersion":"paddock/v1alpha1","kind":"Sandbox",'
    text += (
        '"metadata":{"name":"b","annotations":{"note":"\\ud83d\\ude00 \\\\ud83d"}},"spec":{"template":{"image":"a"}}}'
    )
    documents, problems = parse("app.yaml", text, discover())
    assert not problems
    assert [document.name for document in documents] == ["app", "b"]
    assert documents[1].annotations == {"note": "\N{GRINNING FACE} \\ud83d"}


def test_a_list_of_objects_is_its_items() -> None:
    indented = "".join(f"    {line}\n" for line in GOOD.splitlines()[1:])
    text = f"apiVersion: v1\nkind: List\nitems:\n  -\n{indented}"
    assert document_of(text).name == "app"


def test_aliases_are_expanded() -> None:
    text = GOOD.replace("  name: app\n", "  name: &name app\n").replace("old: no", "old: *name")
    assert document_of(text).labels == {"app": "web", "old": "app"}


def test_aliases_are_counted_over_all_documents_of_a_file() -> None:
    tree = "kind: Sandbox\nspec:\n  a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n"
    for name, below in zip("bcde", "abcd", strict=True):
        tree += f"  {name}: &{name} [{', '.join([f'*{below}'] * 10)}]\n"
    many = "more than 400,000 values (aliases counted as often as used)"
    documents, problems = parse("app.yaml", "---\n".join([tree] * 40), discover())
    assert not documents
    assert any(many in problem.message for problem in problems)
    room = ValueBudget()  # as those of a request have it
    messages = [str(parse(f"{number}.yaml", tree, discover(), budget=room)) for number in range(12)]
    assert [many in message for message in messages] == [False] * 3 + [True] * 9


def test_annotations_are_bounded_together() -> None:
    further = "".join(f"    a{number}: *a\n" for number in range(200))
    text = GOOD.replace("  labels:", f"  annotations:\n    a: &a {'x' * 200_000}\n{further}  labels:")
    documents, problems = parse("app.yaml", text, discover())
    assert not documents
    assert [problem.field for problem in problems] == ["metadata.annotations"]
    assert problems[0].message.endswith("bytes together, more than 256 KiB; store large data elsewhere")


def test_a_null_field_is_valid_and_kept_for_the_merge() -> None:
    document = document_of(GOOD + "  lifecycle: null\n  runState:\n")
    assert document.spec["lifecycle"] is None
    assert document.spec["runState"] is None


def test_many_merged_mappings_are_merged_in_one_pass() -> None:
    """A copy of all fields for each of them takes minutes."""
    fields = "\n".join(f"  k{number}: 1" for number in range(50_000))
    [tree], problems = read(
        "a.yaml",
        f"a: &a {{x: 1, k0: 2}}\nb: &b {{x: 3, y: 4}}\nc:\n{fields}\n  <<: [*a, *b{', *a' * 50_000}]\n",
        merges=True,
    )
    assert not problems
    merged = tree.root.plain()["c"]
    assert (merged["x"], merged["y"], merged["k0"], len(merged)) == (1, 4, 1, 50_002)


def test_output_of_get_can_be_applied() -> None:
    text = "  uid: u-1\n  resourceVersion: '7'\n  generation: 2\n  creationTimestamp: '2023-11-14T22:13:20Z'\n"
    text += "  finalizers: [paddock/container]\n"
    document = document_of(GOOD.replace("  labels:", text + "  labels:") + "status: {conditions: []}\n")
    assert (document.uid, document.resource_version) == ("u-1", "7")


@pytest.mark.parametrize(
    ("stored", "option", "namespace"),
    [("", None, "default"), ("", "team", "team"), ("team", None, "team"), ("team", "team", "team")],
)
def test_namespace_of_a_document(stored: str, option: str | None, namespace: str) -> None:
    text = GOOD.replace("  name: app\n", f"  name: app\n  namespace: {stored}\n") if stored else GOOD
    documents, _ = parse("app.yaml", text, discover(), namespace=option)
    assert documents[0].namespace == namespace


def test_a_document_of_another_namespace_is_refused() -> None:
    text = GOOD.replace("  name: app\n", "  name: app\n  namespace: a\n")
    _, problems = parse("app.yaml", text, discover(), namespace="b")
    assert [str(problem) for problem in problems] == [
        "app.yaml:6:14: metadata.namespace: is `a`, and the command says -n b; make them agree"
    ]


@pytest.mark.parametrize("option", ["UPPER", "a b", "team-/../../etc", "team-\x1b[2J", "team\n", "*", "-a", "a" * 64])
def test_the_namespace_option_is_validated(option: str) -> None:
    documents, problems = parse("app.yaml", GOOD, discover(), namespace=option)
    assert not documents
    assert [problem.field for problem in problems] == ["metadata.namespace"]
    assert "is not a valid namespace; write at most 63 lower-case letters" in problems[0].message


def test_problems_are_bounded() -> None:
    fields = ", ".join(f"imag{number}: 1" for number in range(5000))
    _, problems = parse("app.yaml", GOOD.replace("template:", f"template: {{{fields}}}\n  x:"), discover())
    assert len(problems) <= 110
    assert "more problems are not listed; fix these first" in "\n".join(map(str, problems))
    bad = "---\n".join(f"kind: Sandbix{number}\n" for number in range(5000))
    documents, problems = parse("app.yaml", bad + "---\n" + GOOD, discover())
    assert (documents, 100 <= len(problems) <= 110) == ([], True)
    assert "further problems are not listed" in problems[-1].message


class _Nothing(Model):
    note: str = ""


def test_kinds_of_the_host_have_no_namespace() -> None:
    registry = Registry((Kind("Profile", "profiles", _Nothing, namespaced=False),))
    text = "apiVersion: paddock/v1alpha1\nkind: Profile\nmetadata: {name: a, namespace: b}\n"
    _, problems = parse("a.yaml", text, registry, namespace="c")
    assert [problem.message for problem in problems] == [
        "Profile is host-scoped and has no namespace; remove this line"
    ]
    documents, problems = parse("a.yaml", text.replace(", namespace: b", ""), registry, namespace="c")
    assert not problems
    assert documents[0].namespace == ""


def test_a_duplicate_object_names_its_first_place() -> None:
    first, _ = parse("a.yaml", GOOD, discover())
    second, _ = parse("b.yaml", GOOD, discover())
    assert [str(duplicate) for duplicate in find_duplicates([*first, *second])] == [
        "b.yaml:2:1: Sandbox `app` is already defined at a.yaml:2"
    ]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"kind: \x00", "a.yaml:1:7: the file is binary"),
        (b"ok: 1\nkind: \xff", "a.yaml:2:7: the file is not text in UTF-8 (byte 0xff here)"),
        ("kind: x".encode("utf-16"), "a.yaml:1:1: the file is UTF-16; save it as UTF-8"),
        (b"x" * (MAX_BYTES + 1), "a.yaml: the file is 10.0 MiB; at most 10 MiB are read: split it"),
    ],
)
def test_binary_files_are_refused(data: bytes, message: str) -> None:
    text = decode("a.yaml", data)
    assert isinstance(text, Problem)
    assert str(text).startswith(message)


def test_byte_order_mark_is_stripped() -> None:
    assert decode("a.yaml", b"\xef\xbb\xbfkind: x") == "kind: x"


def test_oversized_text_is_refused() -> None:
    documents, problems = parse("a.yaml", "#" * (MAX_BYTES + 1), discover())
    assert not documents
    assert "at most 10 MiB" in str(problems[0])


@pytest.mark.parametrize("opening", ["[", "- ", "{a: ", "? "])
def test_nesting_that_overflows_a_parser_is_only_a_problem(opening: str) -> None:
    _, problems = read("a.yaml", opening * 200_000)
    assert "nested deeper" in problems[0].message


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("yes", "yes"),
        ("on", "on"),
        ("y", "y"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("", None),
        ("1_000", "1_000"),
        ("0o17", 15),
        ("0x1F", 31),
        ("-12", -12),
        ("1.10", 1.1),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("12:30:45", "12:30:45"),
        ("2024-01-01", "2024-01-01"),
        ("=", "="),
        ("1.2.3", "1.2.3"),
        ("-", "-"),
    ],
)
def test_plain_scalars_mean_what_yaml_1_2_says(text: str, value: object) -> None:
    observed = scalar(text)
    assert (observed, type(observed)) == (value, type(value))


def nodes() -> int:
    gc.collect()
    return sum(isinstance(entry, Node) for entry in gc.get_objects())


def test_documents_hold_no_positions_until_asked() -> None:
    """A problem found later still names the line: of a document in a list, and of one nested as in Kubernetes."""
    listed = "apiVersion: v1\nkind: List\nitems:\n- " + "\n  ".join(GOOD.splitlines()[1:])
    nested = (
        "apiVersion: paddock/v1alpha1\nkind: SandboxTemplate\nmetadata: {name: t}\nspec:\n  template:\n"
        "    image: a\n    livenessProbe: {exec: {command: [x]}}\n"
    )
    before = nodes()
    documents, problems = parse("app.yaml", f"{GOOD}---\n{listed}\n---\n{nested}", discover())
    assert (len(documents), problems) == (3, [])
    assert nodes() == before
    image, again = (document.problem(("spec", "template", "image"), "wrong") for document in documents[:2])
    assert [(problem.line, problem.column) for problem in (image, again)] == [(9, 12), (25, 14)]
    assert documents[2].problem(("spec", "liveness"), "wrong").line == 37
    assert documents[0].text(("spec", "resources", "limits", "cpu")) == "0.5"


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**15), 10**15)
    | st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")))
    | st.sampled_from(["no", "0644", "1e3", "0o17", "<<", "a\nb", " a", "- b", "1.10", "~", "2024-01-01"]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(string.ascii_letters, min_size=1), inner, max_size=4)
    ),
    max_leaves=20,
)


@settings(deadline=None)
@given(st.dictionaries(st.text(string.ascii_letters, min_size=1), _JSON, min_size=1))
def test_yaml_output_round_trips(value: dict[str, object]) -> None:
    trees, problems = read("a.yaml", dump(value))
    assert not problems
    assert trees[0].root.plain() == value


@settings(deadline=None)
@given(st.text(max_size=200))
def test_no_text_breaks_the_reader(text: str) -> None:
    documents, problems = parse("a.yaml", text, discover())
    assert not documents
    assert all(problem.message for problem in problems)


@settings(deadline=None)
@given(st.lists(st.text("abcXYZ_./-", min_size=1) | st.integers(0, 99), min_size=1).map(tuple))
def test_a_path_survives_its_text(path: tuple[str | int, ...]) -> None:
    if isinstance(path[0], str) and path[0].isidentifier():
        assert field_path(field_text(path)) == path
