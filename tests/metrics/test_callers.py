"""Every figure that a room counts is in the catalogue, with that type and those labels: a typo fails here."""

import ast
from collections.abc import Iterator
from pathlib import Path

import controller
from controller.metrics.catalogue import CATALOGUE, METER
from tests.trees import tree_of

VERBS = {"count": "counter", "observe": "histogram", "gauge": "gauge", "watch": "gauge"}
ROOMS = Path(controller.__file__).resolve().parent


def figures() -> Iterator[tuple[str, ast.Call, str, str]]:
    """(where, call, verb, name) of each call of a Meter in controller/, outside this room."""
    for path in sorted(ROOMS.rglob("*.py")):
        if path.is_relative_to(ROOMS / "metrics"):
            continue
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in VERBS:
                first = node.args[0] if node.args else None
                if isinstance(first, ast.Constant) and str(first.value).startswith("paddock_"):
                    yield f"{path.relative_to(ROOMS)}:{node.lineno}", node, node.func.attr, str(first.value)


def wrong(call: ast.Call, verb: str, name: str) -> str:
    family = CATALOGUE.get(name)
    if family is None or family not in METER:
        return f"{name} is not in the catalogue"
    if family.type != VERBS[verb]:
        return f"{name} is a {family.type}: {verb}() is not for it"
    labels = {keyword.arg for keyword in call.keywords}
    if None not in labels and labels != set(family.labels):
        return f"{name} takes the labels {family.labels}, not {tuple(labels)}"
    return ""


def test_every_figure_is_in_the_catalogue() -> None:
    assert [
        f"{where}: {message}" for where, call, verb, name in figures() if (message := wrong(call, verb, name))
    ] == []


def test_mistakes_would_be_found() -> None:
    def words(source: str) -> str:
        call = ast.parse(source, mode="eval").body
        assert isinstance(call, ast.Call)
        assert isinstance(call.func, ast.Attribute)
        return wrong(call, call.func.attr, ast.literal_eval(call.args[0]))

    assert words('meter.count("paddock_typo_total")') == "paddock_typo_total is not in the catalogue"
    assert "observe() is not for it" in words('meter.observe("paddock_workqueue_depth", 1, queue="q")')
    assert "takes the labels" in words('meter.gauge("paddock_workqueue_depth", 1, quue="q")')
    assert words('meter.gauge("paddock_workqueue_depth", 1, queue="q")') == ""
