"""deploy/grafana: the JSON is what the code makes, and its queries name only what there is."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.metrics.catalogue import CATALOGUE
from deploy.grafana.boards import boards
from tests.pictures.ask import Asker, Series, Window
from tests.pictures.draw import page
from tests.pictures.units import written
from tests.promql import mistakes, recorded
from tests.promql import names as promql_names

DEPLOY = Path(__file__).parents[2] / "deploy"
STORED = {file.name: file.read_text() for file in sorted((DEPLOY / "grafana" / "dashboards").glob("*.json"))}
RULES = yaml.safe_load((DEPLOY / "prometheus" / "recording.rules.yml").read_text())
RECORDINGS = {rule["record"]: rule["expr"] for group in RULES["groups"] for rule in group["rules"]}


def queries(board: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(panel, expression) of each target, and of each variable."""
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]
    for variable in board.get("templating", {}).get("list", ()):
        if variable["type"] == "datasource":
            continue
        match = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"])
        assert match is not None, variable["query"]
        yield f"${variable['name']}", f"count by ({match[2]}) ({match[1]})"


def without_variables(expr: str) -> str:
    expr = expr.replace("$__rate_interval", "1m").replace("$__range", "5m")
    return expr.replace('"$namespace"', '".*"').replace('"$sandbox"', '".*"').replace('"$pool"', '".*"')


def asking(text: str) -> list[dict[str, Any]]:
    """The panels of a board that ask for something: no rows, no text."""
    return [panel for panel in json.loads(text)["panels"] if panel["type"] not in ("row", "text")]


EVERY = [(name, *query) for name, text in STORED.items() for query in queries(json.loads(text))]


def test_what_is_stored_is_what_the_code_makes() -> None:
    assert dict(boards()) == STORED, "run `make docs`"


@pytest.mark.parametrize(("board", "panel", "expr"), EVERY)
def test_a_query_names_only_what_is_in_the_catalogue(board: str, panel: str, expr: str) -> None:
    plain = without_variables(expr)
    assert "$" not in plain, "every variable is replaced"
    assert list(mistakes(plain, RECORDINGS)) == []


@pytest.mark.parametrize("name", STORED)
def test_panels_have_units_thresholds_and_legends(name: str) -> None:
    for panel in asking(STORED[name]):
        defaults, targets = panel["fieldConfig"]["defaults"], panel["targets"]
        assert written(defaults["unit"], defaults.get("decimals"))(1.5), panel["title"]
        bounds = [step["value"] for step in defaults["thresholds"]["steps"]]
        assert bounds[0] is None, panel["title"]
        assert bounds[1:] == sorted(bounds[1:]), panel["title"]
        assert len({target["refId"] for target in targets}) == len(targets)
        assert {target["instant"] for target in targets} == {panel["type"] != "timeseries"}, panel["title"]
        assert all(target["legendFormat"] for target in targets) or panel["type"] == "table", panel["title"]


def test_a_table_shows_labels_that_there_are() -> None:
    for text in STORED.values():
        for panel in json.loads(text)["panels"]:
            for transformation in panel.get("transformations", ()):
                names = set(transformation["options"].get("include", {}).get("names", ())) - {"Value"}
                expr = panel["targets"][0]["expr"]
                if expr.startswith("ALERTS{"):  # Prometheus' own: the labels of alerts
                    continue
                requested = promql_names(expr) | {
                    promql_name for name in recorded(expr) for promql_name in promql_names(RECORDINGS[name])
                }
                assert names <= {label for name in requested for label in CATALOGUE[name].labels}, panel["title"]


class MadeUp(Asker):
    """Answers without a Prometheus: so many lines for each query."""

    def __init__(self, lines: int) -> None:
        super().__init__("", Window(0.0, 60.0, 5.0), {})
        self._lines = lines

    def series(self, panel: Mapping[str, Any]) -> list[Series]:
        count = self._lines * len(panel["targets"])
        return [Series(f"line {index}", {"sandbox": "box"}, ((0.0, 0.0), (60.0, 1.0))) for index in range(count)]


@pytest.mark.parametrize("name", STORED)
def test_the_pictures_can_draw_every_panel(name: str) -> None:
    board = json.loads(STORED[name])
    created, height, silent = page(board, MadeUp(3))
    panels = [document["title"] for document in asking(STORED[name])]
    drawn = [panel for panel in board["panels"] if panel["type"] != "row"]
    assert (created.count('class="panel"'), silent) == (len(drawn), [])
    assert height > 500
    assert page(board, MadeUp(0))[2] == panels


@pytest.mark.parametrize("name", STORED)
def test_a_panel_without_data_says_why(name: str) -> None:
    assert all(document["fieldConfig"]["defaults"].get("noValue") for document in asking(STORED[name]))


def test_links_lead_to_boards_with_their_variables() -> None:
    boards_ = {board["uid"]: board for board in map(json.loads, STORED.values())}
    links = [
        (panel["title"], link["url"])
        for text in STORED.values()
        for panel in asking(text)
        for link in panel["fieldConfig"]["defaults"].get("links", ())
    ]
    assert {title for title, url in links if "/d/paddock-sandbox?" in url} >= {"CPU by sandbox", "Not Ready"}
    assert "Firing alerts" in {title for title, url in links if url.startswith("/d/paddock-runbooks?")}
    for title, url in links:
        match = re.match(r"/d/([\w-]+)\?", url)
        assert match is not None, title
        names = {entry["name"] for entry in boards_[match[1]]["templating"]["list"]}
        assert set(re.findall(r"var-(\w+)=", url)) <= names, title


def test_the_runbooks_are_those_of_the_alerts() -> None:
    panels = json.loads(STORED["runbooks.json"])["panels"]
    contents = {panel["title"]: panel["options"]["content"] for panel in panels if panel["type"] == "text"}
    alerts = yaml.safe_load((DEPLOY / "prometheus" / "alerts.rules.yml").read_text())["groups"]
    names = {rule["alert"] for group in alerts for rule in group["rules"]}
    assert names == contents.keys()
    assert all("](" not in contents[name] for name in names), "a link would lead out of the board"


@pytest.mark.parametrize("name", STORED)
def test_panels_say_what_they_show_and_do_not_overlap(name: str) -> None:
    panels = [panel for panel in json.loads(STORED[name])["panels"] if panel["type"] != "row"]
    assert len({panel["title"] for panel in panels}) == len(panels)
    assert all(document["description"].endswith(".") and document["targets"] for document in asking(STORED[name]))
    occupied: set[tuple[int, int]] = set()
    for entry in panels:
        at = entry["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & occupied
        assert at["x"] + at["w"] <= 24
        occupied |= cells


def test_provisioning_names_the_source_that_the_panels_ask() -> None:
    sources = yaml.safe_load((DEPLOY / "grafana" / "provisioning" / "datasources" / "prometheus.yml").read_text())
    uids = {datasource["uid"] for datasource in sources["datasources"]}
    for text in STORED.values():
        [chosen] = [entry for entry in json.loads(text)["templating"]["list"] if entry["type"] == "datasource"]
        assert {chosen["current"]["value"]} == uids
        assert {document["datasource"]["uid"] for document in asking(text)} <= {"${datasource}"}
