"""The last hour of usage: samples in order, old ones forgotten, and figures that were not reported stay empty."""

from controller.kinds.observed.observed import Container, State
from controller.kinds.observed.usage import UsageSample
from controller.service.sandbox.usage_history import UsageHistory
from tests.api.listeners import API, client, opened
from tests.conftest import HandClock
from tests.helpers_api import ApiStack
from tests.metrics.made_up import USAGE

CONTAINER = Container(id="a", name="a", uid="uid-a", state=State.RUNNING)


def sample(clock: HandClock, cores: float = 0.25) -> UsageSample:
    return UsageSample(CONTAINER, USAGE._replace(network=None), clock.now(), cores, 5.0)


def test_an_hour_of_samples_stays(clock: HandClock) -> None:
    running = {"uid-a": sample(clock)}
    history = UsageHistory(lambda: running, clock.now)
    for count in range(130):
        running["uid-a"] = sample(clock, cores=count)
        history.sample()
        history.sample()  # the same reading again
        clock.advance(30)
    samples = history.of("uid-a")
    assert [past.cpu_percent for past in samples] == [100.0 * count for count in range(9, 130)]
    assert (samples[0].memory_bytes, samples[0].network_receive_bytes) == (USAGE.memory_working_set_bytes, None)
    running.clear()
    clock.advance(3600)
    history.sample()
    assert history.of("uid-a") == []


def test_history_is_served(api: ApiStack, clock: HandClock) -> None:
    api.apply('{"apiVersion": "paddock/v1alpha1", "kind": "Sandbox", "metadata": {"name": "web"},'
                ' "spec": {"template": {"image": "paddock/base:1"}}}')  # fmt: skip
    with opened(api), client(api) as root:
        answer = root.get(f"{API}/namespaces/default/sandboxes/web/metrics/history").json()
        assert (answer["kind"], answer["items"]) == ("SandboxMetricsHistory", [])
        assert root.get(f"{API}/namespaces/default/sandboxes/none/metrics/history").status_code == 404
