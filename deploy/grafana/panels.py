"""Building blocks of the dashboards: rows of panels over Prometheus."""

from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Literal

from grafana_foundation_sdk.builders import bargauge, common, dashboard, prometheus, stat, table, text, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import prometheus as prometheus_models
from grafana_foundation_sdk.models import text as text_models

# Every panel asks the source that the variable names: at first that of deploy/grafana/provisioning.
SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
DEFAULT_SOURCE = models.VariableOption(selected=True, text="Prometheus", value="paddock-prometheus")
NOT_SCRAPED = "No data: is Paddock scraped?"
_KEPT = "${__url_time_range}&var-datasource=${datasource}"
CORES = "suffix:cores"
_COUNTED = ("short", "ops", "reqps")


@dataclass(frozen=True, slots=True)
class Variable:
    """Variable at the top of a dashboard; initially all values if `all_first`, else the first."""

    name: str
    query: str
    all_first: bool = True


NAMESPACE = Variable("namespace", "label_values(paddock_sandbox_info, namespace)")


@dataclass(frozen=True, slots=True)
class Link:
    """Link of a panel's values to another dashboard. `fields`: they are columns of a table, by heading."""

    title: str
    board: str
    variables: tuple[str, ...] = ()
    fields: bool = False

    @property
    def url(self) -> str:
        """Return the address, which keeps the time and the data source."""
        chosen = "".join(f"&var-{name}=${{{self._value(name)}}}" for name in self.variables)
        return f"/d/{self.board}?{_KEPT}{chosen}"

    def _value(self, name: str) -> str:
        return f"__data.fields.{name.capitalize()}" if self.fields else f"__field.labels.{name}"


TO_SANDBOX = Link("Open the sandbox", "paddock-sandbox", ("namespace", "sandbox"))
TO_POOL = Link("Open the pool", "paddock-pools", ("namespace", "pool"))
TO_QUOTAS = Link("Open the quotas", "paddock-quotas")
TO_RUNBOOKS = Link("Open the runbooks", "paddock-runbooks")


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel. `queries` are (PromQL, legend); `unit` is Grafana's id of a unit.

    `warn` and `bad` are thresholds from which on a value is so; with `falling`, those below which it is. `words` say
    what stands for a value, and in which colour. `columns` are the labels that a table shows, with their headings.
    `names`: a stat shows the legends too, or `only` them. `beside`: the legend is a table at the right, the largest
    first. Lines whose legend ends in `limit` are dashed. `empty` is shown where there is nothing to show, and says why.
    `links` lead from a value to another dashboard.
    """

    title: str
    about: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    kind: str = "lines"
    width: int = 8
    height: int = 7
    warn: float | None = None
    bad: float | None = None
    most: float | None = None
    stacked: bool = False
    falling: bool = False
    decimals: int | None = None
    words: tuple[tuple[str, str, str], ...] = ()
    columns: tuple[tuple[str, str], ...] = ()
    names: Literal["several", "too", "only"] = "several"
    beside: bool = False
    empty: str = NOT_SCRAPED
    links: tuple[Link, ...] = ()


@dataclass(frozen=True, slots=True)
class Text:
    """A panel of markdown."""

    title: str
    content: str
    width: int = 12
    height: int = 7


@dataclass(frozen=True, slots=True)
class Row:
    title: str
    panels: Sequence[Panel | Text]


def some(label: str, name: str) -> str:
    """Return the PromQL of a counter's rate by that label, without values that are zero throughout the range."""
    ever = f"sum by ({label}) (increase({name}[$__range])) > 0"
    return f"sum by ({label}) (rate({name}[$__rate_interval])) and on ({label}) {ever}"


def make(uid: str, title: str, about: str, rows: tuple[Row, ...], variables: tuple[Variable, ...]) -> str:
    """Return the JSON of a dashboard."""
    board = (
        dashboard.Dashboard(title)
        .uid(uid)
        .description(about)
        .tags(["paddock"])
        .timezone(common_models.TimeZoneBrowser)
        .refresh("30s")
        .time("now-1h", "now")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .readonly()
        .link(
            dashboard.DashboardLink("Paddock")
            .type(models.DashboardLinkType.DASHBOARDS)
            .tags(["paddock"])
            .as_dropdown(True)
            .keep_time(True)
            .include_vars(True)
        )
        .with_variable(
            dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus").current(DEFAULT_SOURCE)
        )
    )
    for each in variables:
        board = board.with_variable(_variable(each))
    for row in rows:
        board = board.with_row(dashboard.Row(row.title))
        for panel in row.panels:
            board = board.with_panel(_text(panel) if isinstance(panel, Text) else _panel(panel))
    return JSONEncoder(sort_keys=True, indent=2).encode(board.build()) + "\n"


def _variable(given: Variable) -> dashboard.QueryVariable:
    made = (
        dashboard.QueryVariable(given.name)
        .label(given.name.capitalize())
        .datasource(SOURCE)
        .query(given.query)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
        .include_all(True)
        .multi(True)
        .all_value(".+")
    )
    return made.current(models.VariableOption(selected=True, text="All", value="$__all")) if given.all_first else made


def _panel(panel: Panel) -> dashboard.Panel:
    made = {"lines": _lines, "stat": _stat, "table": _table, "bars": _bars}[panel.kind](panel)
    made = made.title(panel.title).description(panel.about).datasource(SOURCE).unit(panel.unit)
    made = made.span(panel.width).height(panel.height).thresholds(_thresholds(panel)).min(0).no_value(panel.empty)
    if panel.links:
        made = made.data_links([dashboard.DashboardLink(each.title).url(each.url) for each in panel.links])
    if panel.most is not None:
        made = made.max(panel.most)
    if panel.decimals is not None:
        made = made.decimals(panel.decimals)
    if panel.words:
        made = made.mappings([_words(panel)])
    for letter, (query, legend) in zip(ascii_uppercase, panel.queries, strict=False):
        made = made.with_target(_target(panel, query, legend).ref_id(letter))
    return made


def _text(panel: Text) -> text.Panel:
    made = text.Panel().title(panel.title).mode(text_models.TextMode.MARKDOWN).content(panel.content)
    return made.span(panel.width).height(panel.height)


def _lines(panel: Panel) -> timeseries.Panel:
    made = timeseries.Panel().line_width(1).fill_opacity(60 if panel.stacked else 10)
    made = made.show_points(common_models.VisibilityMode.NEVER)
    made = made.legend(_legend(panel))
    if any(legend.endswith("limit") for _, legend in panel.queries):
        dashed = {"fill": "dash", "dash": [10, 10]}
        style = models.DynamicConfigValue(id_val="custom.lineStyle", value=dashed)
        flat = models.DynamicConfigValue(id_val="custom.fillOpacity", value=0)
        made = made.override_by_regexp("/limit$/", [style, flat])
    made = made.tooltip(common.VizTooltipOptions().mode(common_models.TooltipDisplayMode.MULTI))
    if panel.unit in _COUNTED:
        made = made.axis_soft_max(1)  # else an axis on which all is 0 goes up to 100
    if panel.stacked:
        made = made.stacking(common.StackingConfig().mode(common_models.StackingMode.NORMAL))
    if panel.warn is not None or panel.bad is not None:
        style = common.GraphThresholdsStyleConfig().mode(common_models.GraphThresholdsStyleMode.DASHED)
        made = made.thresholds_style(style)
    return made


def _legend(panel: Panel) -> common.VizLegendOptions:
    made = common.VizLegendOptions().show_legend(True).calcs(["lastNotNull"])
    if panel.beside:
        made = made.display_mode(common_models.LegendDisplayMode.TABLE).placement(common_models.LegendPlacement.RIGHT)
        return made.sort_by("Last *").sort_desc(True)
    return made.display_mode(common_models.LegendDisplayMode.LIST).placement(common_models.LegendPlacement.BOTTOM)


def _words(panel: Panel) -> models.ValueMap:
    found = {value: models.ValueMappingResult(text=text, color=colour) for value, text, colour in panel.words}
    return models.ValueMap(options=found)


def _stat(panel: Panel) -> stat.Panel:
    last = common.ReduceDataOptions().calcs(["lastNotNull"])
    made = stat.Panel().reduce_options(last).graph_mode(common_models.BigValueGraphMode.NONE)
    if panel.names == "only":
        # One below the other: side by side, long names are cut on a narrow screen.
        made = made.orientation(common_models.VizOrientation.HORIZONTAL)
        return made.text_mode(common_models.BigValueTextMode.NAME).color_mode(common_models.BigValueColorMode.NONE)
    return made.text_mode(common_models.BigValueTextMode.VALUE_AND_NAME) if panel.names == "too" else made


def _bars(_panel: Panel) -> bargauge.Panel:
    last = common.ReduceDataOptions().calcs(["lastNotNull"])
    made = bargauge.Panel().reduce_options(last).orientation(common_models.VizOrientation.HORIZONTAL)
    return made.display_mode(common_models.BarGaugeDisplayMode.GRADIENT)


def _table(panel: Panel) -> table.Panel:
    shown = {"include": {"names": [name for name, _ in panel.columns]}}
    order = {name: number for number, (name, _) in enumerate(panel.columns)}
    named = {"renameByName": dict(panel.columns), "indexByName": order, "excludeByName": {}}
    made = table.Panel().show_header(True)
    return made.transformations(
        [
            models.DataTransformerConfig(id_val="filterFieldsByName", options=shown),
            models.DataTransformerConfig(id_val="organize", options=named),
        ]
    )


def _target(panel: Panel, query: str, legend: str) -> prometheus.Dataquery:
    made = prometheus.Dataquery().expr(query).legend_format(legend).datasource(SOURCE)
    if panel.kind == "table":
        return made.instant().format(prometheus_models.PromQueryFormat.TABLE)
    # What is shown as of now is asked as of now: the last value of what ended an hour ago would stand beside it.
    return made.range() if panel.kind == "lines" else made.instant()


def _thresholds(panel: Panel) -> dashboard.ThresholdsConfig:
    """Return thresholds in ascending order; red comes first if a low value is bad."""
    if panel.falling:
        bounds = [("red", None), ("orange", panel.bad), ("green", panel.warn)]
    else:
        bounds = [("green", None), ("orange", panel.warn), ("red", panel.bad)]
    kept = [(colour, value) for number, (colour, value) in enumerate(bounds) if number == 0 or value is not None]
    steps = [models.Threshold(value=value, color=colour) for colour, value in kept]
    return dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps)
