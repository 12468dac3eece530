"""Metrics of a running daemon equal the catalogue; closed labels start at 0."""

import urllib.request
from collections.abc import Iterator
from itertools import product

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from controller.metrics.catalogue import CATALOGUE
from tests.daemon import RunningDaemon, running, wait_for
from tests.e2e.helpers_specs import OTHER_KINDS

pytestmark = pytest.mark.docker
SANDBOX = (
    OTHER_KINDS
    + """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: box}
spec:
  template: {image: "paddock/test-tiny:1", command: ["sleep", "1000000"]}
  resources: {limits: {disk: 10Mi}}
  lifecycle: {shutdownGracePeriodSeconds: 0}
"""
)
FOREIGN = ("process_", "python_")
# Told only by what happens to an object now and then, by an unusual host, or on request.
SOMETIMES = {
    "paddock_contexts",
    "paddock_host_swap_free_bytes",
    "paddock_host_swap_size_bytes",
    "paddock_snapshot_last_capture_timestamp_seconds",
    "paddock_sandbox_hibernated",
    "paddock_sandbox_hibernated_resident_bytes",
    "paddock_sandbox_hibernated_swapped_bytes",
    "paddock_model_gateway_up",
    "paddock_model_requests_in_flight",
    "paddock_sandbox_deletion_timestamp_seconds",
    "paddock_sandbox_status_waiting_reason",
    "paddock_sandbox_status_last_termination_reason",
    "paddock_sandbox_status_last_termination_exit_code",
    "paddock_sandbox_labels",
    "paddock_pool_max_containers",
    "paddock_container_fs_reads_bytes_total",
    "paddock_container_fs_writes_bytes_total",
    "paddock_container_fs_usage_bytes",
    "paddock_sandbox_spec_gpus",
    "paddock_store_last_backup_timestamp_seconds",
}
# One series for each value that comes up; which ones may is said by the code that counts them.
OPEN = {name for name, family in CATALOGUE.items() if not family.closed}


def scrape(daemon: RunningDaemon) -> dict[str, Metric]:
    """Families by the catalogue's name."""
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    with urllib.request.urlopen(urllib.request.Request(daemon.metrics_url(), headers=accept), timeout=30) as answer:
        text = answer.read().decode()
    families = list(text_string_to_metric_families(text))
    return {family.name + ("_total" if family.type == "counter" else ""): family for family in families}


@pytest.fixture(scope="module")
def families(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Metric]]:
    with running(tmp_path_factory.mktemp("metrics"), PADDOCK_RESYNC_SECONDS="1") as daemon:
        daemon.apply(SANDBOX)
        daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandbox/box")
        daemon.paddock("wait", "--for=condition=Ready", "--timeout=60s", "sandboxpool/warm")

        def all_there() -> dict[str, Metric] | None:
            document = scrape(daemon)
            texts = (
                "paddock_store_info",
                "paddock_docker_info",
                "paddock_scheduler_job_last_success_timestamp_seconds",
            )
            return document if all(document.get(name) and document[name].samples for name in texts) else None

        yield wait_for("the figures of the background jobs", all_there)


def test_exported_families_equal_the_catalogue(families: dict[str, Metric]) -> None:
    ours = {name for name in families if not name.startswith(FOREIGN)}
    assert ours - CATALOGUE.keys() == set()
    names = {name for name in ours if families[name].samples}
    missing = {name for name, family in CATALOGUE.items() if not family.detail and name not in OPEN} - names
    assert missing - SOMETIMES == set()


def test_types_units_and_labels_are_the_catalogues(families: dict[str, Metric]) -> None:
    for name, family in families.items():
        catalogue = CATALOGUE.get(name)
        if catalogue is None:
            continue
        assert (family.type, family.unit, family.documentation) == (catalogue.type, catalogue.unit, catalogue.help), (
            name
        )
        for sample in family.samples:
            assert sample.labels.keys() - {"le"} == set(catalogue.labels), name


def test_closed_enums_are_there_from_the_start(families: dict[str, Metric]) -> None:
    for name, family in CATALOGUE.items():
        counted = family.type != "gauge" and name in families
        if not (family.closed and family.labels and counted):
            continue
        labels = {tuple(sample.labels[label] for label in family.labels) for sample in families[name].samples}
        assert labels >= set(product(*(family.values[label] for label in family.labels))), name


def test_open_families_are_exported_too(families: dict[str, Metric]) -> None:
    """Families of regular work (calls, store operations, sandboxes, pools) are exported; others need an occasion."""
    rare = {
        "paddock_docker_request_errors_total",
        "paddock_store_operation_errors_total",
        "paddock_pool_claims_total",
        "paddock_pool_claim_misses_total",
        "paddock_pool_claim_duration_seconds",
        "paddock_pool_members_retired_total",
        "paddock_pool_startup_failures_total",
        "paddock_mcp_tool_calls_total",
        "paddock_mcp_server_calls_total",
        "paddock_mcp_server_call_duration_seconds",
        "paddock_model_first_byte_seconds",
        "paddock_model_server_status_ready",
        "paddock_model_requests_total",
        "paddock_model_tokens_total",
        "paddock_provider_status_ready",
    }
    names = {name for name, family in families.items() if family.samples}
    desired = {name for name in OPEN if not CATALOGUE[name].detail} - SOMETIMES - rare
    texts = {name for name in desired if not name.startswith("paddock_container_network")}
    assert texts - names == set()


def test_a_warm_member_is_measured_without_a_sandboxs_name(families: dict[str, Metric]) -> None:
    info = [sample.labels for sample in families["paddock_container_info"].samples]
    assert {(document["sandbox"], document["pool"]) for document in info} == {("box", ""), ("", "warm")}
    assert len(families["paddock_container_memory_working_set_bytes"].samples) == 2


def test_a_sandbox_costs_at_most_60_series(families: dict[str, Metric]) -> None:
    series = [
        sample for family in families.values() for sample in family.samples if sample.labels.get("sandbox") == "box"
    ]
    assert 40 < len(series) <= 60
