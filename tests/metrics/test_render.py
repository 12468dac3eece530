"""The text is prometheus_client's own, byte for byte, and what Prometheus can read."""

import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Gauge, Info
from prometheus_client.exposition import choose_encoder, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_open_metrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_open_metrics
from prometheus_client.parser import text_string_to_metric_families as read_plain_text
from prometheus_client.utils import floatToGoString

from controller.metrics.containers import ContainerCollector
from controller.metrics.host import HostCollector
from controller.metrics.meter import PrometheusMeter
from controller.metrics.objects import ObjectCollector
from controller.metrics.registry import Registry, new_registry
from controller.metrics.render import Labels, label_text, number_text, open_metrics, plain_text, renderer
from tests.metrics.made_up import MadeUpUsage, many

AWKWARD = 'quo"te \\back\nline é'


def full_registry() -> Registry:
    """Everything that the daemon exports."""
    registry = new_registry("0.1.0", "abc123")
    meter = PrometheusMeter(registry, strict=True)
    meter.count("paddock_docker_requests_total", operation="containers.create")
    meter.observe("paddock_api_request_duration_seconds", 0.2, method="GET", route="/apis/{kind}")
    meter.gauge("paddock_store_size_bytes", 123456789)
    snapshot = many(3)
    registry.register(ContainerCollector(lambda: snapshot, MadeUpUsage(), detail=True))
    registry.register(ObjectCollector(lambda: snapshot))
    registry.register(HostCollector(lambda: snapshot))
    return registry


def still(registry: CollectorRegistry) -> CollectorRegistry:
    """The same families at every collect, so that two texts of them can be compared."""
    families = list(registry.collect())

    class Still:
        def collect(self) -> list:
            return families

    collector_registry = CollectorRegistry()
    collector_registry.register(Still())
    return collector_registry


def test_plain_text_equals_the_librarys() -> None:
    families = still(full_registry())
    assert plain_text(families) == generate_latest(families)


def test_open_metrics_equals_the_librarys() -> None:
    families = still(full_registry())
    assert open_metrics(families) == generate_open_metrics(families)


@pytest.mark.parametrize("value", [0, -0.0, 1e6, 1234567.5, 1e-9, 1 << 62, float("inf"), float("-inf"), float("nan")])
def test_awkward_values_labels_and_help_equal_the_librarys(value: float) -> None:
    registry = CollectorRegistry()
    Gauge("awkward", f"help {AWKWARD}", ("one", "another"), registry=registry).labels(AWKWARD, "").set(value)
    assert plain_text(registry) == generate_latest(registry)
    assert open_metrics(registry) == generate_open_metrics(registry)


@given(st.integers() | st.floats() | st.booleans() | st.integers(5, 20).map(lambda digits: 10**digits))
def test_numbers_equal_the_librarys(value: float) -> None:
    assert number_text(value) == floatToGoString(value)


@pytest.mark.parametrize("more", ["condition", "pool", "state"])  # before, between and after the others
def test_labels_write_their_text_once(more: str) -> None:
    labels = Labels({"sandbox": AWKWARD, "namespace": "default"})
    assert labels == {"namespace": "default", "sandbox": AWKWARD}
    assert labels.text == label_text(dict(labels))
    assert label_text({}) == ""
    for some in (labels, Labels({})):
        longer = some.plus(more, AWKWARD)
        assert longer == {**some, more: AWKWARD}
        assert longer.text == label_text(dict(longer))


def test_a_restricted_registry_renders_the_names_asked_for() -> None:
    text = plain_text(full_registry().restricted_registry(["paddock_sandbox_status_ready"])).decode()
    names = {line.split("{")[0] for line in text.splitlines() if not line.startswith("#")}
    assert names == {"paddock_sandbox_status_ready"}


def test_a_type_we_cannot_write_is_refused() -> None:
    registry = CollectorRegistry()
    Info("some", "facts", registry=registry)
    with pytest.raises(ValueError, match="some is a info"):
        plain_text(registry)


@pytest.mark.parametrize(
    ("accept", "render"),
    [
        ("", plain_text),
        ("*/*", plain_text),
        ("text/plain;version=0.0.4", plain_text),
        ("text/plain;version=1.0.0;escaping=underscores", plain_text),
        ("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5", open_metrics),
        ("application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5", open_metrics),
    ],
)
def test_negotiation_is_the_librarys(accept: str, render: object) -> None:
    ours, content_type = renderer(accept)
    assert ours is render
    assert content_type == choose_encoder(accept)[1]


def test_unusual_wishes_are_left_to_the_library() -> None:
    render, content_type = renderer("application/openmetrics-text;version=1.0.0;escaping=dots")
    assert "escaping=dots" in content_type
    assert render not in (plain_text, open_metrics)


def test_the_librarys_parsers_read_it() -> None:
    registry = full_registry()
    plain = {metric.name: metric for metric in read_plain_text(plain_text(registry).decode())}
    assert len(plain["paddock_container_pids"].samples) == 3
    opened = {metric.name: metric for metric in read_open_metrics(open_metrics(registry).decode())}
    assert opened["paddock_container_cpu_usage_seconds"].unit == "seconds"
    assert not [name for name in plain if name.endswith("_created")]


def test_promtool_finds_nothing_to_say() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:  # part of the Debian package prometheus; the parsers above stand in where it is missing
        return
    done = subprocess.run([promtool, "check", "metrics"], input=plain_text(full_registry()), capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
