"""Facts for `paddock doctor`: of the engine, the kernel, sockets and folders. Changes nothing, raises nothing."""

import contextlib
import ctypes
import errno
import grp
import os
import pwd
import stat
import subprocess
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from controller.engine.docker.client import Client
from controller.engine.docker.errors import Fault
from controller.engine.docker.inspect import container_of
from controller.engine.kernel import mount_calls
from controller.engine.kernel.firewall import NftFirewall
from controller.engine.kernel.idmap import IdMaps, Ids
from controller.engine.kernel.resolvers import read_private_resolvers
from controller.engine.mounts.host_folders import system_folder_of
from controller.engine.usage.host import HostGauge
from controller.engine.usage.swap import SwapGauge
from controller.kinds.common import labels as own
from controller.kinds.observed.doctor import EngineFacts, FolderFacts, KernelFacts, SocketFacts
from controller.kinds.runtime.user_ids import SHARED_ID
from controller.ports import Clock, Firewall, NullMeter

_MOST_SANDBOXES = 1000
_TIME_ERROR = 5  # adjtimex(2): the clock is not synchronised
_PACKAGE_SECONDS = 10.0
_SANDBOX_IDS = Ids(SHARED_ID, SHARED_ID)
_TIMEX_BYTES = 512  # more than struct timex has on any machine


def read_engine_facts(address: str, clock: Clock, *, timeout_seconds: float, local: bool) -> EngineFacts:
    """Read the engine's facts; `local`: its folders are on this host."""
    try:
        client = Client(address, meter=NullMeter(), timeout_seconds=timeout_seconds)
    except ValueError as error:
        return EngineFacts(address, trouble=f"{address} can't be used as the engine's address: {error}")
    try:
        facts = client.probe()
        info: dict[str, Any] = client.call("info", lambda api: api.info())
        version: dict[str, Any] = client.call("version", lambda api: api.version())
        shared = tuple(_shared_users(client))
    except Fault as fault:
        return EngineFacts(address, trouble=fault.message)
    finally:
        client.close()
    file_system, options = mount_of(facts.root_dir) if local else ("", ())
    return EngineFacts(
        address,
        facts=facts,
        file_system=file_system,
        mount_options=options,
        skew_seconds=_skew_seconds(str(info.get("SystemTime") or ""), clock.now()),
        runc_version=runc_version(version),
        runc_package=_package("runc") if local else "",
        shared_users=shared,
    )


def _shared_users(client: Client) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the users of more than one running sandbox, with the sandboxes' names. Raises Fault."""
    of_ours = {"label": [own.INSTANCE, f"{own.ROLE}=sandbox"]}
    sandboxes_of_users: dict[str, list[str]] = {}
    for row in client.call("containers.list", lambda api: api.containers(filters=of_ours))[:_MOST_SANDBOXES]:
        with contextlib.suppress(Fault):  # gone meanwhile, or it hangs
            container = container_of(client.inspect(str(row["Id"]), timeout_seconds=client.timeout_seconds))[0]
            sandboxes_of_users.setdefault(container.user.partition(":")[0] or "0", []).append(
                f"{container.namespace}/{container.object_name}"
            )
    yield from ((user, tuple(sorted(names))) for user, names in sorted(sandboxes_of_users.items()) if len(names) > 1)


def runc_version(version: Mapping[str, Any]) -> str:
    """Return the version of runc in the engine's answer to /version; "" if it has none."""
    parts = (component for component in version.get("Components") or () if component.get("Name") == "runc")
    return next((str(component.get("Version") or "") for component in parts), "")


def _package(name: str) -> str:
    """Return the version of a package installed by dpkg; "" if there is none, or no dpkg."""
    command = ["dpkg-query", "--show", "--showformat=${db:Status-Status} ${Version}", name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PACKAGE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    status, _, version = done.stdout.partition(" ")
    return version.strip() if done.returncode == 0 and status == "installed" else ""


def read_kernel_facts(
    clock: Clock,
    *,
    root_dir: str,
    state_dir: Path,
    firewall: Firewall | None = None,
    root: Path = Path("/"),
) -> KernelFacts:
    """Read the kernel's abilities and the host's free resources. `root` is the parent of /proc and /sys."""
    gauge = HostGauge(clock, proc=root / "proc")
    state = gauge.read(str(_existing(state_dir)))
    net = root / "sys/class/net"
    guard, resolvers = (firewall or NftFirewall()).guard(), read_private_resolvers(root)
    return KernelFacts(
        root=os.geteuid() == 0,
        controllers=frozenset(_controllers(root)),
        bridges=tuple(sorted(bridge.parent.name for bridge in net.glob("*/bridge"))),
        forwarding=_flag(root / "proc/sys/net/ipv4/ip_forward"),
        unguarded=guard.message,
        resolvers=resolvers,
        dropped_resolvers=tuple(
            resolver for resolver in resolvers if resolver not in guard.resolvers and not guard.message
        ),
        clock_synchronised=_synchronised(),
        use=gauge.read(root_dir),
        state_disk=state.disk,
        state_inodes=state.inodes,
        swap=SwapGauge(root).read(),
    )


def read_socket_facts(path: str) -> SocketFacts:
    """Read a socket file's owner and permissions."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return SocketFacts(path)
    except OSError as error:
        return SocketFacts(path, trouble=error.strerror or str(error))
    if not stat.S_ISSOCK(status.st_mode):
        return SocketFacts(path, trouble="it is not a socket")
    return SocketFacts(path, stat.S_IMODE(status.st_mode), _user(status.st_uid), _group(status.st_gid))


def group_exists(name: str) -> bool:
    """Tell whether the host has a group of that name."""
    try:
        grp.getgrnam(name)
    except KeyError:
        return False
    return True


def mount_of(path: str, *, mountinfo: Path = Path("/proc/self/mountinfo")) -> tuple[str, tuple[str, ...]]:
    """Return the type and options of a path's file system; ("", ()) if unreadable."""
    try:
        lines = mountinfo.read_text().splitlines()
    except OSError:
        return "", ()
    best, type_and_options = "", ("", tuple[str, ...]())
    for line in lines:
        before_dash, _, after_dash = line.partition(" - ")
        fields, system_fields = before_dash.split(), after_dash.split()
        if len(fields) < 6 or len(system_fields) < 3:
            continue
        point = fields[4]
        if _holds(point, path) and len(point) >= len(best):  # of two at one path the later one is on top
            best, type_and_options = point, (system_fields[0], tuple(system_fields[2].split(",")))
    return type_and_options


def _holds(point: str, path: str) -> bool:
    return path == point or path.startswith(point.rstrip("/") + "/")


def _controllers(root: Path) -> Iterator[str]:
    unified = root / "sys/fs/cgroup/cgroup.controllers"
    try:
        if unified.exists():
            yield from unified.read_text().split()
            return
        for line in (root / "proc/cgroups").read_text().splitlines():
            fields = line.split()
            if len(fields) == 4 and not line.startswith("#") and fields[3] == "1":
                yield fields[0]
    except OSError:
        return


def _flag(path: Path) -> bool | None:
    try:
        return path.read_text().strip() != "0"
    except OSError:
        return None


def _synchronised() -> bool | None:
    """Tell whether the kernel's clock is synchronised (NTP); None if unknown. Changes nothing."""
    state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    return None if state < 0 else state != _TIME_ERROR


def _skew_seconds(reported: str, now: float) -> float | None:
    try:
        return datetime.fromisoformat(reported).timestamp() - now
    except ValueError:
        return None


def _existing(path: Path) -> Path:
    """Return the folder, or its closest existing parent."""
    return next((candidate for candidate in (path, *path.parents) if candidate.exists()), path)


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _group(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


def read_folder_facts(path: str, *, maps: bool = False) -> FolderFacts:
    """Read a folder's owner and file system; with `maps`, try id maps there, too."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return FolderFacts(path)
    except OSError as error:
        return FolderFacts(path, trouble=_message(error))
    try:
        status = os.fstat(opened)
        return FolderFacts(
            path,
            mode=stat.S_IMODE(status.st_mode),
            owner=_user(status.st_uid),
            group=_group(status.st_gid),
            roots=status.st_uid == 0,
            file_system=mount_of(os.path.realpath(path))[0],
            hosts_own=system_folder_of(opened),
            maps_ids=_maps_ids(opened, status) if maps else None,
        )
    except OSError as error:
        return FolderFacts(path, trouble=_message(error))
    finally:
        os.close(opened)


def _maps_ids(folder: int, status: os.stat_result) -> bool | None:
    """Try id maps on a detached mount; None if that can't be known."""
    maps = IdMaps()
    try:
        tree = mount_calls.tree_of(folder)
        try:
            namespace = maps.of(Ids(status.st_uid, status.st_gid), _SANDBOX_IDS)
            mount_calls.change(tree, propagation=mount_calls.PRIVATE, user_namespace=namespace)
        finally:
            os.close(tree)
    except OSError as error:
        return False if error.errno in (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS) else None
    finally:
        maps.close()
    return True


def _message(error: OSError) -> str:
    return "it is not a folder" if error.errno == errno.ENOTDIR else (error.strerror or str(error)).lower()
