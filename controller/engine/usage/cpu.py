"""CPU time, limit and throttling of a container, from its cgroup files."""

import os
from collections.abc import Mapping

from controller.engine.usage.handles import Figures, Handles
from controller.engine.usage.limits import parse_cpu_max

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


def cpu_seconds(handles: Handles) -> float:
    """Return the CPU time in seconds. Raises OSError, ValueError or KeyError."""
    if handles.versions["cpuacct"] == 1:
        return _cpu_time1(handles)
    return _cpu_time2(handles.pairs("cpuacct", "cpu.stat"))


def cpu_figures(handles: Handles) -> Figures:
    """Return CPU times, and how often the limit held them back. Raises OSError, ValueError or KeyError."""
    times = _cpu1(handles) if handles.versions["cpuacct"] == 1 else _cpu2(handles)
    return times | (_quota1(handles) if handles.versions["cpu"] == 1 else _quota2(handles))


def _cpu_time1(handles: Handles) -> float:
    return handles.number("cpuacct", "cpuacct.usage") / 1e9


def _cpu_time2(stat: Mapping[bytes, bytes]) -> float:
    return int(stat[b"usage_usec"]) / 1e6


def _cpu1(handles: Handles) -> Figures:
    # cpuacct.usage_user counts double on some kernels; cpuacct.stat is coarse (10 ms) but right.
    ticks = handles.pairs("cpuacct", "cpuacct.stat")
    return {
        "cpu_usage_seconds": _cpu_time1(handles),
        "cpu_user_seconds": int(ticks[b"user"]) / _TICKS_A_SECOND,
        "cpu_system_seconds": int(ticks[b"system"]) / _TICKS_A_SECOND,
    }


def _cpu2(handles: Handles) -> Figures:
    stat = handles.pairs("cpuacct", "cpu.stat")
    return {
        "cpu_usage_seconds": _cpu_time2(stat),
        "cpu_user_seconds": int(stat[b"user_usec"]) / 1e6,
        "cpu_system_seconds": int(stat[b"system_usec"]) / 1e6,
    }


def _quota1(handles: Handles) -> Figures:
    quota, period = handles.number("cpu", "cpu.cfs_quota_us"), handles.number("cpu", "cpu.cfs_period_us")
    if quota <= 0:
        return {}
    stat = handles.pairs("cpu", "cpu.stat")
    return _throttling(stat) | {
        "cpu_throttled_seconds": int(stat[b"throttled_time"]) / 1e9,
        "cpu_limit_cores": quota / period,
    }


def _quota2(handles: Handles) -> Figures:
    quota, period = parse_cpu_max(handles.data("cpu", "cpu.max").decode())
    if quota is None:
        return {}
    stat = handles.pairs("cpu", "cpu.stat")
    return _throttling(stat) | {
        "cpu_throttled_seconds": int(stat[b"throttled_usec"]) / 1e6,
        "cpu_limit_cores": quota / period,
    }


def _throttling(stat: Mapping[bytes, bytes]) -> Figures:
    return {"cpu_periods": int(stat[b"nr_periods"]), "cpu_throttled_periods": int(stat[b"nr_throttled"])}
