"""Commands that wait go on over a restart of the daemon, and lose no change meanwhile."""

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from click.testing import CliRunner, Result

from controller.api.server.server import ApiServer
from controller.cli.main import cli
from tests.daemon import wait_for
from tests.helpers_api import ApiStack

# httpx closes a socket whose connect failed only once it is collected.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
RESTART = "controller.cli.objects.watch.RESTART_SECONDS"


class Daemon:
    """The API's listener, which can be restarted, and a command that runs meanwhile."""

    def __init__(self, api: ApiStack) -> None:
        self.api = api
        self._server: ApiServer = api.server()
        self._server.start()
        self.results: list[Result] = []

    def stop(self) -> None:
        self._server.stop()

    def restart(self, meanwhile: Callable[[], object]) -> None:
        self.stop()
        wait_for("its watches are gone", lambda: self.api.services.watches.count == 0)
        meanwhile()
        assert not self.results
        self._server = self.api.server()
        self._server.start()

    @contextmanager
    def running(self, *words: str) -> Iterator[Callable[[], Result]]:
        """Run the command until it watches, and on within the block; yield what waits for its end."""
        address = f"unix://{self.api.socket}"

        def run() -> None:
            self.results.append(CliRunner().invoke(cli, ["--server", address, *words]))

        thread = threading.Thread(target=run)
        thread.start()
        wait_for("it watches", lambda: self.api.services.watches.count == 1 or self.results)

        def ended() -> Result:
            thread.join()
            return self.results[0]

        yield ended
        thread.join()


@pytest.fixture
def daemon(api: ApiStack) -> Iterator[Daemon]:
    api.apply()
    created = Daemon(api)
    yield created
    created.stop()
    created.results.clear()
    gc.collect()


def test_get_watch_goes_on(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    with daemon.running("get", "sb", "-w", "-o", "jsonpath=restarts:{.status.restartCount}") as running:
        daemon.restart(meanwhile=daemon.api.set_ready)
        wait_for("it watches again", lambda: daemon.api.services.watches.count == 1 or daemon.results)
        daemon.api.change(status={"restartCount": 7, "conditions": []})
        hub = daemon.api.services.watches
        wait_for("all is handed on", lambda: daemon.results or hub._at == daemon.api.store.revision())
        monkeypatch.setattr(RESTART, 0)
        hub.close()
        done = running()
    assert done.stdout.split() == ["restarts:", "restarts:2", "restarts:7"]
    assert done.stderr.count("waiting for the daemon") == 2, done.stderr


def test_wait_goes_on(daemon: Daemon) -> None:
    with daemon.running("wait", "--for=condition=Ready", "sb/quickstart", "--timeout", "60s") as running:
        daemon.restart(meanwhile=daemon.api.set_ready)
        done = running()
    assert (done.exit_code, done.stdout) == (0, "sandbox.paddock/quickstart condition met\n")
    assert "waiting for the daemon" in done.stderr


def test_wait_keeps_its_own_deadline(daemon: Daemon) -> None:
    with daemon.running("wait", "--for=condition=Ready", "sb/quickstart", "--timeout", "2s") as running:
        daemon.stop()
        done = running()
    assert done.exit_code == 1
    assert "no Paddock daemon answers" in done.stderr


def test_watch_gives_up_on_a_daemon_that_stays_away(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RESTART, 0.3)
    with daemon.running("get", "sb", "--watch-only") as running:
        daemon.stop()
        done = running()
    assert done.exit_code == 1
    assert "no Paddock daemon answers" in done.stderr


def test_restart_of_one_that_can_not_be_stopped_says_so(daemon: Daemon) -> None:
    problem = {"type": "FilesKept", "status": "False", "reason": "TooLarge", "message": "its files are too large"}
    with daemon.running("restart", "quickstart", "--timeout", "60s") as running:
        daemon.api.change(status={"conditions": [{**problem, "observedGeneration": 2}]})
        done = running()
    assert (done.exit_code, "quickstart is not restarted: its files are too large" in done.stderr) == (1, True)
    stored = daemon.api.store.get("Sandbox", "default", "quickstart")
    assert stored is not None
    assert stored.spec["runState"] == "Running"
