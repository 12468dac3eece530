"""Place: this host among those of its store."""

from collections.abc import Callable
from dataclasses import dataclass

from controller.kinds.host import NAME


@dataclass(frozen=True, slots=True)
class Place:
    """Name of this host, and the host of objects that name none ("": they wait for one).

    `leads` is True while this daemon decides for what belongs to no host: quotas' statuses, garbage collection,
    workflow runs without a sandbox. `alone`: there are no other hosts. Without `keeps_sandboxes` it is no host: `host`
    is its place's name, which no host can have.
    """

    host: str = NAME
    default: str = NAME
    leads: Callable[[], bool] = lambda: True
    alone: bool = True
    keeps_sandboxes: bool = True


@dataclass(frozen=True, slots=True)
class Reached:
    """Where other machines reach this host: HOST:PORT of its daemon, the URL of its metrics; "": not at all."""

    address: str = ""
    metrics_url: str = ""


ALONE, NOT_REACHED = Place(), Reached()
