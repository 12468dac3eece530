"""A watch over the containers of all engines of a lab: two running ones of one sandbox are never seen."""

import http.client
import json
import socket
import threading
import urllib.parse
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from tests.lab.fleet import Fleet, FleetHost

SECONDS = 0.05
_RUNNING = urllib.parse.quote(json.dumps({"status": ["running"], "label": ["paddock.uid"]}))


class Copies:
    """Samples from `start` to `stop`. What an engine that does not answer ran last, is taken to run on."""

    def __init__(self, hosts: Fleet) -> None:
        self.samples: Counter[str] = Counter()
        self.doubled: set[str] = set()
        self._running: dict[str, Counter[str]] = {}
        self._lock, self._over = threading.Lock(), threading.Event()
        self._threads = [threading.Thread(target=self._watch, args=(host,), daemon=True) for host in hosts]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _watch(self, host: FleetHost) -> None:
        while not self._over.wait(SECONDS):
            try:
                running = _running(host)
            except (OSError, http.client.HTTPException, ValueError):
                continue
            with self._lock:
                self._running[host.name] = running
                self.samples[host.name] += 1
                total: Counter[str] = sum(self._running.values(), Counter())
                self.doubled |= {uid for uid, count in total.items() if count > 1}


def _running(host: FleetHost) -> Counter[str]:
    """Return the number of a host's running containers of each sandbox, by uid."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as created:
        created.settimeout(5)
        created.connect(host.engine.base_url.removeprefix("unix://"))
        connection = http.client.HTTPConnection("localhost")
        connection.sock = created
        connection.request("GET", f"/containers/json?filters={_RUNNING}")
        answer = connection.getresponse()
        listed = json.loads(answer.read())
    if answer.status != http.client.OK:
        raise ValueError(listed)
    return Counter(entry["Labels"]["paddock.uid"] for entry in listed)


@contextmanager
def never_two(hosts: Fleet) -> Iterator[None]:
    """Fail if two containers of one sandbox ran at once meanwhile."""
    copies = Copies(hosts)
    copies.start()
    try:
        yield
    finally:
        copies.stop()
    assert min(copies.samples[host.name] for host in hosts) > 0, "every engine was asked"
    assert not copies.doubled, "two containers of one sandbox ran at once"
