"""Containers parsed from an inspect or a list's row. Pure."""

import re
import signal
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any

from controller.engine.docker.create_config import drift_of_body, limits_of_body, storage_of_body
from controller.kinds.common import labels as own
from controller.kinds.observed.observed import Container, State
from controller.kinds.runtime.agent import FOLDER
from controller.kinds.runtime.container import Limits

_REAL_TIME = re.compile(r"RTMIN\+([1-9]|1[0-5])|RTMAX-([1-9]|1[0-4])")
NO_NETWORK = "none"
_FRACTION = re.compile(r"\.(\d+)")


def belongs_to(labels: Mapping[str, str] | None, instance_id: str) -> bool:
    """Tell whether these labels belong to a container of this instance id."""
    return bool(instance_id) and (labels or {}).get(own.INSTANCE) == instance_id


def labels_of(data: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the labels in an inspect."""
    return data.get("Config", {}).get("Labels") or {}


def container_of(data: Mapping[str, Any], *, swap_limit: bool = False) -> tuple[Container, Limits]:
    """Return the container of an inspect, and the limits that the engine has configured (also in `limits`)."""
    state, config = data.get("State", {}), data.get("Config", {})
    labels = labels_of(data)
    configured = limits_of_body(data.get("HostConfig", {}))
    container = Container(
        id=str(data["Id"]),
        name=str(data.get("Name", "")).lstrip("/"),
        state=state_of(str(state.get("Status", ""))),
        **_labelled(labels),
        image=str(config.get("Image", "")),
        image_id=str(data.get("Image", "")),
        limits=configured,
        pid=int(state.get("Pid") or 0),
        created_at=unix_seconds(str(data.get("Created", ""))),
        started_at=unix_seconds(str(state.get("StartedAt", ""))),
        finished_at=unix_seconds(str(state.get("FinishedAt", ""))),
        exit_code=int(state.get("ExitCode") or 0),
        oom_killed=bool(state.get("OOMKilled")),
        networks=_networks(data),
        peer_names=_peer_names(data),
        error=str(state.get("Error", "")),
        out_of_band=drift_of_body(data.get("HostConfig", {}), swap_limit=swap_limit),
        storage_bytes=storage_of_body(data.get("HostConfig", {})),
        log_path=str(data.get("LogPath") or ""),
        agent=_agent(data.get("Mounts") or ()),
        slots=tuple(sorted(_slots(data.get("Mounts") or (), labels.get(own.UID, "")))),
        user=str(config.get("User") or ""),
        working_dir=str(config.get("WorkingDir") or ""),
        home=_home(config.get("Env") or ()),
        stop_signal=stop_signal_of(str(config.get("StopSignal") or "")),
        runtime=str((data.get("HostConfig") or {}).get("Runtime") or ""),
        layer_path=str(((data.get("GraphDriver") or {}).get("Data") or {}).get("UpperDir") or ""),
    )
    return container, configured


def networks_of(settings: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the networks in the settings of an inspect or a list's row."""
    return tuple(sorted((settings or {}).get("Networks") or ()))


def _networks(data: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the networks of an inspect. A container that was made without any is on `none`, as others are.

    Newer engines attach nothing to it, and list the network all the same, without an endpoint.
    """
    settings = data.get("NetworkSettings") or {}
    if not data.get("Config", {}).get("NetworkDisabled"):
        return networks_of(settings)
    networks = settings.get("Networks") or {}
    attached = {name: network for name, network in networks.items() if (network or {}).get("EndpointID")}
    return networks_of({"Networks": attached}) or (NO_NETWORK,)


def _peer_names(data: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the names of others that it was attached with, each with the name that it stands for."""
    networks = ((data.get("NetworkSettings") or {}).get("Networks") or {}).values()
    links = (link.partition(":") for network in networks for link in (network or {}).get("Links") or ())
    return tuple(sorted((name, target) for target, _, name in links))


def _home(env: Iterable[str]) -> str:
    """Return the home folder among the variables of an inspect; "" if it is not one of them."""
    return next((variable.removeprefix("HOME=") for variable in env if variable.startswith("HOME=")), "")


def _agent(mounts: Iterable[Mapping[str, Any]]) -> str:
    """Return the volume of an agent's runtime among an inspect's mounts; "" for none."""
    runtime_mounts = (mount for mount in mounts if mount.get("Type") == "volume" and mount.get("Destination") == FOLDER)
    return next((str(mount.get("Name", "")) for mount in runtime_mounts), "")


def _slots(mounts: Iterable[Mapping[str, Any]], uid: str) -> Iterator[str]:
    """Yield the paths of the mount points in an inspect: those bound from `<folder>/<uid>/<number>`."""
    for mount in mounts:
        source = PurePath(str(mount.get("Source", "")))
        if mount.get("Type") == "bind" and source.name.isdigit() and source.parent.name == uid:
            yield str(mount.get("Destination", ""))


def stop_signal_of(text: str) -> str:
    """Return an image's STOPSIGNAL without `SIG`; "" for none, or one that the engine would refuse to send."""
    name = text.upper().removeprefix("SIG")
    if name.isdigit():
        return name if 0 < int(name) < signal.NSIG else ""
    return name if f"SIG{name}" in signal.Signals.__members__ or _REAL_TIME.fullmatch(name) else ""


def unreadable_container(row: Mapping[str, Any]) -> Container:
    """Return a listed container that could not be inspected: the data of its row, state unknown."""
    labels = row.get("Labels") or {}
    return Container(
        id=str(row["Id"]),
        name=name_of(row),
        state=State.UNKNOWN,
        **_labelled(labels),
        image=str(row.get("Image", "")),
        image_id=str(row.get("ImageID", "")),
        created_at=float(row.get("Created") or 0),
    )


def name_of(row: Mapping[str, Any]) -> str:
    """Return the name in a list's row, skipping link aliases (names with a second slash)."""
    names = [str(name).lstrip("/") for name in row.get("Names") or ()]
    return next((name for name in names if "/" not in name), "")


def state_of(word: str) -> State:
    """Return Docker's state as a State; UNKNOWN for one of a future engine."""
    try:
        return State(word)
    except ValueError:
        return State.UNKNOWN


def unix_seconds(text: str) -> float:
    """Convert RFC 3339 with up to nine decimals to Unix seconds; 0 for the engine's year 1 ("never") or a bad time."""
    if not text or text.startswith("0001-"):
        return 0.0
    digits = _FRACTION.search(text)
    without_fraction = _FRACTION.sub("", text).replace("Z", "+00:00")
    try:
        moment = datetime.fromisoformat(without_fraction)
    except ValueError:
        return 0.0
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.timestamp() + (float(f"0.{digits[1]}") if digits else 0.0)


def _labelled(labels: Mapping[str, str]) -> dict[str, Any]:
    generation, revision = labels.get(own.GENERATION, ""), labels.get(own.REVISION, "")
    return {
        "uid": labels.get(own.UID, ""),
        "namespace": labels.get(own.NAMESPACE, ""),
        "object_name": labels.get(own.NAME, ""),
        "role": labels.get(own.ROLE, "sandbox"),
        "generation": int(generation) if generation.isdigit() else 0,
        "revision": int(revision) if revision.isdigit() else 0,
        "config_hash": labels.get(own.CONFIG_HASH, ""),
        "template_hash": labels.get(own.TEMPLATE_HASH, ""),
    }
