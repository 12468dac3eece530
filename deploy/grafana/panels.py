"""What every dashboard of ours is made of: panels over Prometheus, laid out in rows, in one way."""

from dataclasses import dataclass

from grafana_foundation_sdk.builders import bargauge, common, dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import prometheus as prometheus_models

SOURCE = models.DataSourceRef(type_val="prometheus", uid="paddock-prometheus")
NAMESPACE = ("namespace", "label_values(paddock_sandbox_info, namespace)")


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel. `queries` are (PromQL, legend); `unit` is Grafana's id of a unit. `warn` and `bad` are thresholds."""

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


@dataclass(frozen=True, slots=True)
class Row:
    title: str
    panels: tuple[Panel, ...]


def make(uid: str, title: str, about: str, rows: tuple[Row, ...], variables: tuple[tuple[str, str], ...]) -> str:
    """The JSON of a dashboard. `variables` are (name, the query of its values)."""
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
    )
    for name, query in variables:
        board = board.with_variable(_variable(name, query))
    for row in rows:
        board = board.with_row(dashboard.Row(row.title))
        for panel in row.panels:
            board = board.with_panel(_panel(panel))
    return JSONEncoder(sort_keys=True, indent=2).encode(board.build()) + "\n"


def _variable(name: str, query: str) -> dashboard.QueryVariable:
    return (
        dashboard.QueryVariable(name)
        .label(name.capitalize())
        .datasource(SOURCE)
        .query(query)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
        .include_all(True)
        .multi(True)
        .all_value(".*")
        .current(models.VariableOption(selected=True, text="All", value="$__all"))
    )


def _panel(panel: Panel) -> dashboard.Panel:
    made = {"lines": _lines, "stat": _stat, "table": _table, "bars": _bars}[panel.kind](panel)
    made = made.title(panel.title).description(panel.about).datasource(SOURCE).unit(panel.unit)
    made = made.span(panel.width).height(panel.height).thresholds(_thresholds(panel)).min(0)
    if panel.most is not None:
        made = made.max(panel.most)
    for query, legend in panel.queries:
        made = made.with_target(_target(panel, query, legend))
    return made


def _lines(panel: Panel) -> timeseries.Panel:
    made = timeseries.Panel().line_width(1).fill_opacity(30 if panel.stacked else 10)
    made = made.show_points(common_models.VisibilityMode.NEVER)
    legend = common.VizLegendOptions().show_legend(True).placement(common_models.LegendPlacement.BOTTOM)
    made = made.legend(legend.display_mode(common_models.LegendDisplayMode.LIST).calcs(["lastNotNull"]))
    made = made.tooltip(common.VizTooltipOptions().mode(common_models.TooltipDisplayMode.MULTI))
    if panel.stacked:
        made = made.stacking(common.StackingConfig().mode(common_models.StackingMode.NORMAL))
    if panel.warn is not None or panel.bad is not None:
        style = common.GraphThresholdsStyleConfig().mode(common_models.GraphThresholdsStyleMode.DASHED)
        made = made.thresholds_style(style)
    return made


def _stat(_panel: Panel) -> stat.Panel:
    last = common.ReduceDataOptions().calcs(["lastNotNull"])
    return stat.Panel().reduce_options(last).graph_mode(common_models.BigValueGraphMode.AREA)


def _bars(_panel: Panel) -> bargauge.Panel:
    last = common.ReduceDataOptions().calcs(["lastNotNull"])
    made = bargauge.Panel().reduce_options(last).orientation(common_models.VizOrientation.HORIZONTAL)
    return made.display_mode(common_models.BarGaugeDisplayMode.GRADIENT)


def _table(_panel: Panel) -> table.Panel:
    return table.Panel().show_header(True)


def _target(panel: Panel, query: str, legend: str) -> prometheus.Dataquery:
    made = prometheus.Dataquery().expr(query).legend_format(legend).datasource(SOURCE)
    if panel.kind == "table":
        return made.instant().format(prometheus_models.PromQueryFormat.TABLE)
    return made.instant() if panel.kind == "bars" else made.range()


def _thresholds(panel: Panel) -> dashboard.ThresholdsConfig:
    steps = [models.Threshold(value=None, color="green")]
    steps += [models.Threshold(value=panel.warn, color="orange")] if panel.warn is not None else []
    steps += [models.Threshold(value=panel.bad, color="red")] if panel.bad is not None else []
    return dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps)
