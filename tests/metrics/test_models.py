"""Metrics of providers and model servers."""

from dataclasses import replace
from typing import Any

from controller.kinds.meta import StoredObject
from controller.kinds.modelserver import stored_model_server
from controller.kinds.planning.snapshot import Snapshot
from controller.kinds.provider import stored_provider
from controller.metrics.models import ModelsCollector
from tests.metrics.made_up import Scraped, conditions, scrape, snapshot
from tests.snapshots import changed_snapshot


def obj(kind: str, name: str, spec: dict[str, Any], **ready: str) -> StoredObject:
    status = {"conditions": conditions(**ready)}
    return StoredObject(kind=kind, namespace="default", name=name, uid=f"uid-of-{name}", spec=spec, status=status)


def scraped(seen: Snapshot | None) -> Scraped:
    return scrape(ModelsCollector(lambda: seen).collect)


def test_a_source_is_ready_or_not_or_was_not_tried() -> None:
    api = {"type": "OpenAI", "url": "https://api.example.com"}
    states = {"good": "True", "bad": "False/Unauthorized", "new": "Unknown/NotTried"}
    providers = [stored_provider(obj("Provider", name, api, Ready=state)) for name, state in states.items()]
    stored = replace(obj("Provider", "going", api, Ready="True"), deleted_at=1.0)
    server = stored_model_server(obj("ModelServer", "smol", {"template": {"image": "a:1"}}, Ready="True/Idle"))
    everything = {provider.obj.uid: provider for provider in (*providers, stored_provider(stored))}
    printed = scraped(changed_snapshot(snapshot(), providers=everything, servers={server.obj.uid: server}))
    observed = [
        printed.value("paddock_provider_status_ready", namespace="default", provider=name)
        for name in (*states, "going")
    ]
    assert observed == [1, 0, None, None]
    assert printed.value("paddock_model_server_status_ready", namespace="default", model_server="smol") == 1
