"""`paddock get -o jsonpath=... | custom-columns=... --sort-by=...`, as kubectl reads and prints them."""

import pytest

from controller.cli.errors import UsageProblem
from controller.cli.text.jsonpath import Template
from tests.cli.conftest import Run
from tests.helpers_api import QUICKSTART, ApiStack

OBJECT = {
    "metadata": {"name": "a", "labels": {"app.kubernetes.io/name": "x"}},
    "spec": {"ports": [{"name": "web", "port": 80}, {"name": "api", "port": 443}], "on": True},
}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{.metadata.name}", "a"),
        ("{$.metadata.name}", "a"),
        ("name={.metadata.name}!", "name=a!"),
        ("{.spec.ports[*].port}", "80 443"),
        ("{.spec.ports[-1].name}", "api"),
        ('{.spec.ports[?(@.name=="api")].port}', "443"),
        ("{range .spec.ports[*]}{.name}:{.port}{'\\n'}{end}", "web:80\napi:443\n"),
        ('{range .spec.ports[*]}{@.name}{"\\t"}{end}', "web\tapi\t"),
        ("{.metadata.labels.app\\.kubernetes\\.io/name}", "x"),
        ("{.metadata.labels['app.kubernetes.io/name']}", "x"),
        ("{.spec.on}", "true"),
        ("{.spec.ports[0]}", '{"name":"web","port":80}'),
        ("{.nope.nothing}", ""),
    ],
)
def test_templates(template: str, text: str) -> None:
    assert Template(template).render(OBJECT) == text


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{.a", "a brace is not closed"),
        ("{range .a[*]}x", "without {end}"),
        ("x{end}", "without {range}"),
        ("{.a[}", "not a valid JSONPath"),
    ],
)
def test_invalid_templates(template: str, words: str) -> None:
    with pytest.raises(UsageProblem) as caught:
        Template(template)
    assert words in caught.value.message


@pytest.fixture
def three(served: ApiStack) -> ApiStack:
    texts = [QUICKSTART.replace("name: quickstart", f"name: {name}") for name in ("a", "b", "c")]
    served.apply("---\n".join(texts))
    for name, count in (("a", 10), ("b", 9)):
        served.change(name, status={"restartCount": count})
    return served


def test_one_object_and_many(paddock: Run, three: ApiStack) -> None:
    assert paddock("get", "sb", "a", "-o", "jsonpath={.status.restartCount}").stdout == "10\n"
    assert paddock("get", "sb", "-o", "jsonpath={.items[*].metadata.name}").stdout == "a b c\n"


def test_custom_columns(paddock: Run, three: ApiStack) -> None:
    columns = "custom-columns=NAME:.metadata.name,COUNT:{.status.restartCount}"
    output = paddock("get", "sb", "-o", columns, "--sort-by", ".status.restartCount").stdout
    assert output == "NAME   COUNT\nc      <none>\nb      9\na      10\n"
    assert paddock("get", "sb", "c", "-o", columns, "--no-headers").stdout == "c   <none>\n"


def test_tables_are_sorted_too(paddock: Run, three: ApiStack) -> None:
    output = paddock("get", "sb", "--sort-by={.status.restartCount}", "--no-headers").stdout
    assert [line.split()[0] for line in output.splitlines()] == ["c", "b", "a"]


def test_several_names(paddock: Run, three: ApiStack) -> None:
    assert paddock("get", "sb", "c", "a", "-o", "name").stdout == "sandbox.paddock/c\nsandbox.paddock/a\n"


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("xml", "is not an output format; use one of wide, json"),
        ("jsonpath", "write jsonpath=..."),
        ("jsonpath={.a[}", "not a valid JSONPath"),
        ("custom-columns=NAME", "write TITLE:PATH"),
    ],
)
def test_an_unknown_output_format(paddock: Run, served: ApiStack, output: str, said: str) -> None:
    done = paddock("get", "sb", "-o", output)
    assert (done.exit_code, said in done.stderr) == (2, True)
