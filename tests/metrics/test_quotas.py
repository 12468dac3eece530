"""Metrics of quotas."""

from dataclasses import replace

from controller.kinds.hostquota import HostQuotaSpec
from controller.kinds.meta import StoredObject
from controller.kinds.planning.snapshot import FleetView, Snapshot
from controller.kinds.quota import Amount, QuotaSpec, StoredQuota
from controller.metrics.quotas import QuotaCollector
from tests.metrics.made_up import MIB, Scraped, sandbox, scrape, snapshot
from tests.snapshots import changed_snapshot

HOST = {"scope": "host", "namespace": ""}
HERE = {"scope": "namespace", "namespace": "default"}


def scraped(seen: Snapshot | None) -> Scraped:
    return scrape(QuotaCollector(lambda: seen).collect)


def quota(name: str, **hard: object) -> StoredQuota:
    spec = {"hard": hard}
    obj = StoredObject(kind="Quota", namespace="default", name=name, uid=f"uid-of-{name}", spec=spec)
    return StoredQuota(obj, QuotaSpec.model_validate(spec))


def test_the_host_has_bounds_of_its_own() -> None:
    printed = scraped(snapshot(sandbox("a"), sandbox("b")))
    assert printed.value("paddock_quota_memory_limit_bytes", **HOST) == 16 << 30
    assert printed.value("paddock_quota_cpu_limit_cores", **HOST) == 8 * 16
    assert printed.value("paddock_quota_pids_limit", **HOST) is None, "what is not bounded has no limit"
    assert printed.value("paddock_quota_memory_used_bytes", **HOST) == 2 * 256 * MIB
    assert printed.value("paddock_quota_cpu_used_cores", **HOST) == 1.0
    assert printed.value("paddock_quota_pids_used", **HOST) == 256
    assert printed.value("paddock_quota_sandboxes_used", **HOST) == 2


def test_a_namespace_has_the_narrowest_of_its_quotas() -> None:
    observed = snapshot(sandbox("a"))
    quotas = [quota("wide", cpu="4", sandboxes=9), quota("narrow", cpu="2", memory="1Gi")]
    printed = scraped(changed_snapshot(observed, quotas={entry.obj.uid: entry for entry in quotas}))
    assert printed.value("paddock_quota_cpu_limit_cores", **HERE) == 2
    assert printed.value("paddock_quota_sandboxes_limit", **HERE) == 9
    assert printed.value("paddock_quota_memory_limit_bytes", **HERE) == 1 << 30
    assert printed.value("paddock_quota_memory_used_bytes", **HERE) == 256 * MIB


def test_disk_and_gpus_are_promised_too() -> None:
    observed = snapshot(sandbox("a"))
    [(uid, instance)] = observed.instances.items()
    holds = replace(instance, reserves=replace(instance.reserves, disk_bytes=3 * MIB, gpus=2))
    all_ = quota("all", disk="10Mi", gpus=4)
    printed = scraped(changed_snapshot(observed, quotas={"q": all_}, instances={uid: holds}))
    assert printed.value("paddock_quota_fs_limit_bytes", **HERE) == 10 * MIB
    assert printed.value("paddock_quota_fs_used_bytes", **HERE) == 3 * MIB
    assert printed.value("paddock_quota_gpus_limit", **HERE) == 4
    assert printed.value("paddock_quota_gpus_used", **HERE) == 2


def test_a_written_hostquota_is_the_hosts() -> None:
    spec = {"hard": {"memory": "1Gi", "sandboxes": 3}}
    obj = StoredObject(kind="HostQuota", namespace="", name="host", uid="h", spec=spec)
    printed = scraped(changed_snapshot(snapshot(), quotas={"h": StoredQuota(obj, HostQuotaSpec.model_validate(spec))}))
    assert printed.value("paddock_quota_memory_limit_bytes", **HOST) == 1 << 30
    assert printed.value("paddock_quota_sandboxes_limit", **HOST) == 3


def test_a_namespace_is_counted_over_all_hosts_by_the_leading_one() -> None:
    observed = replace(snapshot(sandbox("a")), fleet=FleetView(elsewhere={"default": Amount(memory_bytes=MIB)}))
    assert scraped(observed).value("paddock_quota_memory_used_bytes", **HERE) == 257 * MIB
    follows = scraped(replace(observed, fleet=replace(observed.fleet, leads=False)))
    assert follows.value("paddock_quota_memory_used_bytes", **HERE) is None
    assert follows.value("paddock_quota_memory_used_bytes", **HOST) == 256 * MIB


def test_before_the_first_snapshot_there_is_nothing() -> None:
    assert scraped(None).samples == []
