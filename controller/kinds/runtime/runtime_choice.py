"""Runtime of new sandboxes whose spec names none, as chosen for this host."""

from dataclasses import dataclass
from typing import Literal

DefaultRuntime = Literal["auto", "runc", "crun"]


@dataclass(frozen=True, slots=True)
class RuntimeChoice:
    """The choice and its reason. `fell_back`: it is not the one that the setting `default_runtime` names.

    `runtime` is "" for the engine's own default.
    """

    runtime: str
    reason: str
    message: str
    fell_back: bool = False
