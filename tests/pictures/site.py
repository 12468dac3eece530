"""Subject of the pictures: a daemon with sandboxes of every sort, and a Prometheus that scrapes it."""

import contextlib
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

from tests.daemon import RunningDaemon, wait_for
from tests.e2e.test_prometheus import TALKS, Prometheus, prometheus, scene
from tests.lab.internet import lab

SCRAPE_SECONDS = 5
AROUND = """
apiVersion: paddock/v1alpha1
kind: Quota
metadata: {name: all}
spec: {hard: {cpu: 2, memory: 2Gi, pids: 2000, sandboxes: 12}}
---
apiVersion: paddock/v1alpha1
kind: Quota
metadata: {name: all, namespace: team-a}
spec: {hard: {memory: 256Mi, sandboxes: 4}}
---
apiVersion: paddock/v1alpha1
kind: SandboxTemplate
metadata: {name: tiny}
spec:
  image: "paddock/test-tiny:1"
  command: ["sleep", "1000000"]
  resources: {limits: {cpu: 50m, memory: 32Mi, pids: 64}}
---
apiVersion: paddock/v1alpha1
kind: SandboxPool
metadata: {name: warm}
spec: {templateRef: {name: tiny}, warmReplicas: 2}
"""
BOX = """
---
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: %(name)s, namespace: %(namespace)s}
spec:
  template: {image: "paddock/test-tiny:1", command: ["sh", "-c", "%(does)s"]}
  resources: {limits: {cpu: 50m, memory: %(memory)s, pids: %(pids)s}}
  lifecycle: {shutdownGracePeriodSeconds: 0}
  restartPolicy: %(restarts)s
"""
CLAIM = """
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: %s}
spec: {templateRef: {name: tiny}, resources: {limits: {cpu: 50m, memory: 32Mi, pids: 64}}}
"""
_DEFAULTS = {"namespace": "default", "memory": "32Mi", "pids": "64", "restarts": "Always"}
BOXES = (
    {"name": "spins", "does": "while :; do :; done"},
    {"name": "forks", "does": "for i in $(seq 57); do sleep 1000000 & done; wait"},
    {"name": "reads", "does": "while :; do dd if=/bin/busybox of=/dev/null bs=1M iflag=direct; sleep 1; done"},
    {"name": "hoards", "does": "head -c 29000000 /dev/zero > /tmp/held; while :; do sleep 1; done"},
    {"name": "fails", "does": "sleep 3; exit 1", "restarts": "OnFailure"},
    {"name": "idles", "does": "sleep 1000000", "namespace": "team-a"},
    {"name": "works", "does": "while :; do gzip -c /bin/busybox > /dev/null; sleep 5; done", "namespace": "team-a"},
    {"name": "waits", "does": "sleep 1000000", "namespace": "team-a", "memory": "224Mi"},
)


@contextlib.contextmanager
def site(folder: Path) -> Iterator[tuple[RunningDaemon, Prometheus]]:
    """Both, with every sandbox that can run running. All of it is gone at the end."""
    (folder / "daemon").mkdir()
    with lab() as place, scene(place, folder / "daemon", PADDOCK_RESYNC_SECONDS="15") as daemon:
        target = urllib.parse.urlsplit(daemon.metrics_url()).netloc
        with prometheus(folder / "prometheus", place.host, target, f"{SCRAPE_SECONDS}s") as requested:
            daemon.apply(AROUND + "".join(BOX % {**_DEFAULTS, **sandbox} for sandbox in BOXES) + TALKS)
            running_ones = '(sum(paddock_sandbox_status_state{state="Running"}) or vector(0)) >= 7'
            wait_for("the sandboxes run", lambda: requested.shows(running_ones), 120)
            for name in ("one", "two"):  # of the pool, with scrapes between them
                members = 'sum(paddock_pool_containers{state="ready"}) > 0'
                wait_for("a member of the pool", lambda members=members: requested.shows(members), 120)
                daemon.apply(CLAIM % name)
                claimed = f'paddock_sandbox_status_state{{sandbox="{name}"}}'
                wait_for("its sandbox is scraped", lambda claimed=claimed: requested.shows(claimed), 120)
            yield daemon, requested
