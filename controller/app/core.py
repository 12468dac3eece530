"""Parts that all subsystems of the daemon share: settings, clock, wake-up, meter, traces."""

import logging
import stat
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from controller.app.errors import CannotStart
from controller.gateway.models import GatewayModels
from controller.loop.clock import SystemClock
from controller.loop.last_snapshot import LastGateway, LastSnapshot
from controller.loop.wake import LoopWaker
from controller.metrics.log_counter import LogCounter
from controller.metrics.meter import PrometheusMeter
from controller.metrics.registry import Registry, new_registry
from controller.ports import Meter
from controller.service.trace import Traces
from controller.settings import Settings
from controller.version import VERSION

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHERS_READ = stat.S_IRWXG | stat.S_IRWXO
_log = structlog.get_logger("paddock")


@dataclass(frozen=True, slots=True)
class Core:
    """The shared parts."""

    settings: Settings
    """Settings of the daemon."""
    undo: ExitStack
    """Closes the parts, newest first."""
    registry: Registry
    """Kinds by name."""
    meter: PrometheusMeter
    """Metrics of the process."""
    clock: SystemClock = field(default_factory=SystemClock)
    """Time of day."""
    waker: LoopWaker = field(default_factory=LoopWaker)
    """Wakes the reconcile loop."""
    traces: Traces = field(default_factory=Traces)
    """Traces of requests and passes."""
    last: LastSnapshot = field(default_factory=LastSnapshot)
    """Holds the snapshot of the last pass."""
    gateway: LastGateway = field(default_factory=LastGateway)
    """Holds the last state of the model gateway."""
    models: GatewayModels = field(default_factory=GatewayModels)
    """Models that the gateway offers."""

    @property
    def is_local(self) -> bool:
        """True if this daemon's engine runs on this machine: only then can its kernel be read."""
        return self.settings.is_host and self.settings.docker_host.startswith("unix:")


def make_core(settings: Settings, undo: ExitStack) -> Core:
    """Make the state folder and the metrics registry. Raises CannotStart."""
    _make_state_folder(settings.state_dir)
    registry = new_registry(VERSION)
    core = Core(settings, undo, registry, PrometheusMeter(registry))
    _count_logs(undo, core.meter)
    core.meter.gauge("paddock_config_last_reload_successful", 1)  # an invalid one prevents the start
    core.meter.gauge("paddock_config_last_reload_success_timestamp_seconds", core.clock.now())
    return core


def _count_logs(undo: ExitStack, meter: Meter) -> None:
    counter = LogCounter(meter)
    logging.getLogger().addHandler(counter)
    undo.callback(logging.getLogger().removeHandler, counter)


def _make_state_folder(state_dir: Path) -> None:
    try:
        state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise CannotStart(f"{state_dir}: {error.strerror}; set PADDOCK_STATE_DIR to a folder you may write") from error
    mode = stat.S_IMODE(state_dir.stat().st_mode)
    if mode & _OTHERS_WRITE:
        remedy = "users other than its owner may write there, and so become root by it"
        raise CannotStart(f"{state_dir}: mode {mode:04o}, {remedy}; `chmod 700 {state_dir}`, and check its contents")
    if mode & _OTHERS_READ:
        _log.warning("state folder readable for others; chmod 700 it", folder=str(state_dir), mode=f"{mode:04o}")
