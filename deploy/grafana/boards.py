"""The dashboards, as code. `python -m deploy.grafana` regenerates their JSON; a test compares it."""

from collections.abc import Mapping

from deploy.grafana.capacity import pools, quotas
from deploy.grafana.controller import controller
from deploy.grafana.overview import overview
from deploy.grafana.runbooks import runbooks
from deploy.grafana.sandbox import sandbox


def boards() -> Mapping[str, str]:
    """Return the JSON of each dashboard by file name."""
    return {
        "overview.json": overview(),
        "sandbox.json": sandbox(),
        "pools.json": pools(),
        "quotas.json": quotas(),
        "controller.json": controller(),
        "runbooks.json": runbooks(),
    }
