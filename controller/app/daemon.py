"""The daemon: every subsystem put together in order, and `paddock serve`. Importing this does no work."""

import os
import signal
import sys
import threading
from _thread import start_new_thread
from contextlib import ExitStack

import structlog

from controller.app.api import services_of, start_listeners
from controller.app.core import make_core
from controller.app.crash_handler import end_with_endless_threads
from controller.app.engine import claim_engine, make_engine, make_policy
from controller.app.errors import CannotStart, StoppedWaiting
from controller.app.gateway import start_gateway
from controller.app.hold import make_hold, make_sentinel
from controller.app.logs import configure_logs
from controller.app.loop import make_loop
from controller.app.memory import freeze_objects, tune_collection, tune_malloc
from controller.app.placements import make_placements
from controller.app.store import follow_hosts, join_fleet, open_store
from controller.app.workflows import make_snapshots, make_workflows
from controller.mcp.servers.sessions import Sessions
from controller.settings import Settings
from controller.version import VERSION


class Daemon:
    """The daemon. `start` raises CannotStart with nothing left running; `stop` is clean and final.

    `stopping` ends the standby wait. It is also set, with `failed`, when this daemon has to be restarted.
    """

    def __init__(self, settings: Settings, stopping: threading.Event) -> None:
        self._settings, self._stopping = settings, stopping
        self._stack = ExitStack()
        self.metrics_port = 0
        self.api_url = self.e2b_url = ""  # of the TCP listeners
        self.failed = False

    def start(self) -> None:
        """Become the leader, open the store, bind the listeners, then start the reconcile loop.

        The first failure undoes the rest. Raises CannotStart; StoppedWaiting.
        """
        with ExitStack() as undo:
            self._assemble(undo)
            self._stack = undo.pop_all()

    def stop(self) -> None:
        """Close the listeners, finish the engine calls in flight, store their outcomes. Sandboxes run on.

        A sentinel stays until what may be started elsewhere is frozen; then it ends.
        """
        self._stack.close()

    def _assemble(self, undo: ExitStack) -> None:
        """Build and start the daemon, the lower parts first; `undo` stops what was started, in reverse."""
        core = make_core(self._settings, undo)
        sentinel = make_sentinel(core)
        store, lease, leading = open_store(core, self._stopping, self.fail)
        claim_engine(core, store, self._stopping)
        engine, secrets = make_engine(core, store.instance_id)
        policy = make_policy(core.settings)
        fleet = join_fleet(core, store, lease)
        loop = make_loop(core, store, lease, engine=engine, policy=policy, place=fleet.place, fail=self.fail)
        follow_hosts(core, fleet, loop.watches.notify)
        services = services_of(core, store, engine, secrets=secrets, policy=policy, loop=loop)
        sessions = Sessions(services.mcp_servers, core.meter)
        self.api_url, self.e2b_url, self.metrics_port = start_listeners(
            core, services, store, engine=engine, loop=loop, sessions=sessions
        )
        undo.callback(loop.reconcile_loop.stop)
        undo.callback(services.detached.resume())  # before the first pass, so that no sandbox in use is reaped
        undo.callback(services.run_stages.resume())
        make_workflows(core, store, lease, fleet=fleet, services=services, loop=loop)
        make_snapshots(core, store, lease, engine.snapshots, policy, loop)
        make_hold(core, sentinel, leading, engine)
        make_placements(core, fleet, policy, loop)
        loop.reconcile_loop.start()
        services.usage_history.start()
        undo.callback(services.usage_history.stop)
        undo.callback(sessions.close)  # while the loop still runs: it removes their sandboxes
        start_gateway(core, services, store, engine=engine, secrets=secrets, policy=policy, loop=loop)

    def fail(self) -> None:
        """End: another daemon has taken over, or this one can't go on. No effect if it is ending already."""
        self.failed = self.failed or not self._stopping.is_set()
        self._stopping.set()


def serve(settings: Settings) -> int:
    """Run until SIGTERM or SIGINT, and return the exit code. Start errors go to stderr.

    The exit code is 1 after a lost leader lease or a crash: restarted, the daemon is a standby.
    """
    configure_logs(settings)
    log = structlog.get_logger("paddock")
    stopping, each_second = threading.Event(), tune_malloc()
    for number in (signal.SIGTERM, signal.SIGINT):
        # On a thread of its own: the one that is interrupted may hold the event's lock, about to wait for it.
        signal.signal(number, lambda *_: start_new_thread(stopping.set, ()))
    tune_collection()
    daemon = Daemon(settings, stopping)
    end_with_endless_threads(daemon.fail)
    try:
        daemon.start()
    except StoppedWaiting:
        log.info("stopped")
        return 0
    except CannotStart as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - the person who started it reads this
        return 1
    metrics = (
        f"http{'s' * bool(settings.metrics_tls_cert_file)}://{settings.metrics_host}:{daemon.metrics_port}/metrics"
    )
    listeners = {"socket": str(settings.socket)} if "api" in settings.roles else {"fleet": settings.fleet_address}
    listeners |= {"metrics": metrics} | ({"api": daemon.api_url} if daemon.api_url else {})
    listeners |= {"e2b": daemon.e2b_url} if daemon.e2b_url else {}
    log.info("serving", version=VERSION, pid=os.getpid(), **listeners)
    freeze_objects()
    while not stopping.wait(1.0):  # bounded: a signal just before a wait is handled only at its end
        each_second()
    log.info("stopping")
    daemon.stop()
    freeze_objects()  # the interpreter's last collection would take longer than the rest of stopping
    log.info("stopped")
    return int(daemon.failed)
