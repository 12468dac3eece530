"""Each alert against sandboxes that are as they are meant to be, though they are not ready: none of them fires.

The sandboxes are made by the loop itself over a fake engine, and what a scrape shows of them is what the rules see.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from controller.metrics.collectors import collect
from controller.metrics.meter import PrometheusMeter
from controller.metrics.registry import Registry, new_registry
from controller.metrics.render import plain_text
from controller.service.objects.apply import Source
from tests.contract.store_backends import Backend
from tests.deploy.test_prometheus import ALERTS, FOLDER, promtool, with_promtool
from tests.loop.harness import LoopHarness
from tests.metrics.made_up import MadeUpUsage
from tests.small_sandboxes import SMALL

MINUTES = 60
# What tells the operator of a state all the same, once for all that are in it.
TELLS = {"waiting": {"QuotaWaiting"}, "ill": {"SandboxNotReady"}}


class Scene:
    """A harness, and what a scrape of its daemon shows."""

    def __init__(self, backend: Backend) -> None:
        self.registry: Registry = new_registry("0", "0")
        self.harness = LoopHarness(backend.store(), meter=PrometheusMeter(self.registry, strict=True))
        usage = MadeUpUsage()
        collect(self.registry, lambda: self.harness.reconcile_pass.last, usage, layers=dict, detail=False, labels=())

    def series(self) -> Iterator[tuple[str, float]]:
        for family in text_string_to_metric_families(plain_text(self.registry).decode()):
            for sample in family.samples:
                if "_created" not in sample.name and sample.name.startswith(
                    ("paddock_sandbox", "paddock_quota", "paddock_pool")
                ):
                    labels = ", ".join(f'{name}="{value}"' for name, value in sample.labels.items())
                    yield f"{sample.name}{{{labels}}}", sample.value

    def quota(self, **hard: object) -> None:
        document = {
            "apiVersion": "paddock/v1alpha1",
            "kind": "Quota",
            "metadata": {"name": "q"},
            "spec": {"hard": hard},
        }
        self.harness.services.apply.apply([Source("test", json.dumps(document))])


@pytest.fixture
def scene(backend: Backend) -> Iterator[Scene]:
    created = Scene(backend)
    yield created
    created.harness.close()


def suspended(scene: Scene) -> None:
    scene.harness.apply("box", resources=SMALL)
    scene.harness.settle()
    scene.harness.apply("box", resources=SMALL, runState="Suspended")
    scene.harness.settle()
    assert scene.harness.condition("box", "Suspended") == "True Suspended"


def idle(scene: Scene) -> None:
    scene.harness.engine.at_rest = True
    scene.harness.apply("box", resources=SMALL, lifecycle={"idleTimeoutSeconds": 60})
    scene.harness.settle()
    for _ in range(4):
        scene.harness.clock.advance(60)
        scene.harness.settle()
    assert scene.harness.condition("box", "Suspended") == "True IdleReaped"


def paused(scene: Scene) -> None:
    scene.harness.apply("box", resources=SMALL, runState="Paused")
    scene.harness.settle()
    assert scene.harness.condition("box", "Ready") == "False Paused"


def finished(scene: Scene) -> None:
    scene.harness.apply("box", resources=SMALL, restartPolicy="Never")
    scene.harness.settle()
    scene.harness.engine.exit(scene.harness.container_name("box"), 0)
    scene.harness.settle()
    assert scene.harness.condition("box", "Finished") == "True Completed"


def deleting(scene: Scene) -> None:
    scene.harness.apply("box", resources=SMALL, lifecycle={"shutdownGracePeriodSeconds": 3600})
    scene.harness.settle()
    scene.harness.engine.container(scene.harness.container_name("box")).ignores_term = True
    scene.harness.delete("box")
    for _ in range(4):
        scene.harness.run_pass()
    assert scene.harness.condition("box", "Ready") == "False Terminating"
    answer = scene.harness.get("box")
    assert answer is not None
    assert answer.deleted_at is not None


def waiting(scene: Scene) -> None:
    scene.quota(memory="100Mi")
    for name in ("box", "other"):
        scene.harness.apply(name, resources=SMALL)
    scene.harness.settle()
    assert "False QuotaExceeded" in {scene.harness.condition(name, "Ready") for name in ("box", "other")}


def ill(scene: Scene) -> None:
    """The same eye sees what is wrong."""
    scene.harness.apply("box", resources=SMALL, template={"readiness": {"exec": {"command": ["false"]}}})
    scene.harness.settle(seconds=5)
    assert scene.harness.condition("box", "Ready").startswith("False")


@with_promtool
@pytest.mark.parametrize(
    "state", [suspended, idle, paused, finished, deleting, waiting, ill], ids=lambda each: each.__name__
)
def test_no_alert_fires_but_what_tells_of_that_state(
    scene: Scene, state: Callable[[Scene], None], tmp_path: Path
) -> None:
    state(scene)
    # A deletion is dated from where the rules' own time begins: it is ten minutes old at the end.
    documents = [
        {"series": name, "values": f"{(MINUTES - 10) * 60 if 'deletion_timestamp' in name else value:.0f}x{MINUTES}"}
        for name, value in scene.series()
    ]
    assert any("paddock_sandbox_status_ready" in document["series"] for document in documents)
    requested = [
        {"expr": f'ALERTS{{alertname="{alert["alert"]}", alertstate="firing"}}', "eval_time": f"{MINUTES}m"}
        for alert in ALERTS
    ]
    tests = [
        {
            "interval": "1m",
            "input_series": documents,
            "promql_expr_test": [{**document, "exp_samples": []} for document in requested],
        }
    ]
    rules = [str(FOLDER / f"{entry}.rules.yml") for entry in ("recording", "alerts")]
    file = tmp_path / "states.yml"
    file.write_text(yaml.safe_dump({"rule_files": rules, "evaluation_interval": "1m", "tests": tests}))
    message = promtool("test", "rules", str(file), check=False)
    fired = {alert["alert"] for alert in ALERTS if f'alertname="{alert["alert"]}"' in message}
    assert fired == TELLS.get(state.__name__, set()), message
