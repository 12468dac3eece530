"""The three dashboards, as code. `python -m deploy.grafana` writes their JSON anew; a test compares it."""

from collections.abc import Mapping

from deploy.grafana.controller import controller
from deploy.grafana.overview import overview
from deploy.grafana.sandbox import sandbox


def boards() -> Mapping[str, str]:
    """The JSON of each, by file name."""
    return {"overview.json": overview(), "sandbox.json": sandbox(), "controller.json": controller()}
