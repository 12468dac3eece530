"""The seccomp profiles: as their generator makes them, known by their digests, and each within the next."""

import hashlib
import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from controller.policy.attest.report import LIMITED, REFUSED
from controller.policy.levels.seccomp import LOG_ONLY, MINIMAL, STANDARD, WIDTH, name_of

FOLDER = Path(__file__).resolve().parents[2] / "images" / "seccomp"
NEVER = """unshare setns mount umount2 pivot_root move_mount fsopen open_tree bpf perf_event_open keyctl add_key
    request_key userfaultfd io_uring_setup clone3 open_by_handle_at init_module finit_module kexec_load reboot swapon
    acct iopl ioperm vmsplice settimeofday clock_settime quotactl syslog modify_ldt fanotify_init sethostname"""


def maker_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("seccomp_make", FOLDER / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rules(reference: str) -> list[dict[str, Any]]:
    syscalls: list[dict[str, Any]] = json.loads((FOLDER / f"{name_of(reference)}.json").read_text())["syscalls"]
    return syscalls


def allowed_calls(reference: str) -> set[str]:
    """The calls that are allowed whatever their arguments."""
    stored = [rule for rule in rules(reference) if rule["action"] == "SCMP_ACT_ALLOW" and not rule.get("args")]
    return {name for document in stored for name in document["names"]}


@pytest.mark.parametrize("reference", sorted(WIDTH))
def test_the_files_are_as_made_and_known_by_their_digests(reference: str) -> None:
    maker, file = maker_module(), FOLDER / f"{name_of(reference)}.json"
    text = maker.text(maker.profiles()[name_of(reference)])
    assert file.read_text() == text, "run: python images/seccomp/make.py"
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    assert reference == f"{name_of(reference)}@{digest}", (
        "write the new digest into controller/policy/levels/seccomp.py"
    )


def test_minimal_is_within_standard() -> None:
    assert allowed_calls(MINIMAL) < allowed_calls(STANDARD)
    by_arguments = [rule for rule in rules(MINIMAL) if rule.get("args")]
    assert by_arguments == [rule for rule in rules(STANDARD) if rule.get("args")]


@pytest.mark.parametrize("reference", [MINIMAL, STANDARD])
def test_calls_refused_by_every_profile(reference: str) -> None:
    profile = json.loads((FOLDER / f"{name_of(reference)}.json").read_text())
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO"
    assert not allowed_calls(reference) & set(NEVER.split())
    assert not allowed_calls(reference) & {"socket", "socketpair", "clone", "personality"}  # by their arguments only
    assert all(entry["subArchitectures"] == [] for entry in profile["archMap"])


def test_calls_refused_by_minimal() -> None:
    text = "ptrace process_vm_readv shmget semget msgget mq_open io_submit splice tee mlock mbind chroot"
    assert not allowed_calls(MINIMAL) & set(text.split())


def test_log_only_logs_every_unusual_call() -> None:
    profile = json.loads((FOLDER / "log-only.json").read_text())
    assert profile["defaultAction"] == "SCMP_ACT_LOG"
    assert {syscall["action"] for syscall in profile["syscalls"]} == {"SCMP_ACT_ALLOW"}
    assert allowed_calls(LOG_ONLY) == allowed_calls(STANDARD)


def test_reports_list_refused_calls() -> None:
    calls = {
        name: {call for rule in rules(name) if rule["action"] == "SCMP_ACT_ALLOW" for call in rule["names"]}
        for name in (MINIMAL, STANDARD)
    }
    for reference in (MINIMAL, STANDARD):
        assert not set(REFUSED[name_of(reference)]) & calls[reference]
        assert calls[reference] - allowed_calls(reference) == set(LIMITED)
    assert set(NEVER.split()) <= set(REFUSED["standard"])
    assert set(REFUSED["minimal"]) - set(REFUSED["standard"]) == calls[STANDARD] - calls[MINIMAL]
