"""Programs and folders that no command may have, in specs: each with its field and its words."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.kinds.common.exec_paths import in_kernel_paths
from controller.kinds.sandbox import SandboxSpec
from controller.policy.exec_paths import folder_refused, program_refused
from controller.policy.levels.levels import Policy
from controller.policy.sandbox import admit

LONG = "/" + "a" * 4096


def refusals_of(**template: Any) -> dict[str, str]:
    spec = SandboxSpec.model_validate({"template": {"image": "paddock/test-tiny:1", **template}})
    return {refusal.field: refusal.message for refusal in admit(spec, Policy())}


@pytest.mark.parametrize(
    ("template", "field"),
    [
        ({"command": [LONG]}, "spec.template.command[0]"),
        ({"command": ["ä" * 2049]}, "spec.template.command[0]"),
        ({"liveness": {"exec": {"command": [LONG]}}}, "spec.template.liveness.exec.command[0]"),
        ({"readiness": {"exec": {"command": [LONG]}}}, "spec.template.readiness.exec.command[0]"),
        ({"startup": {"exec": {"command": [LONG]}}}, "spec.template.startup.exec.command[0]"),
        ({"workingDir": "/" + "ä" * 2048}, "spec.template.workingDir"),
        ({"workingDir": "/proc/self/fd/8"}, "spec.template.workingDir"),
        ({"workingDir": "/dev"}, "spec.template.workingDir"),
        ({"workingDir": "//sys/kernel"}, "spec.template.workingDir"),
        ({"workingDir": "/tmp/../proc/self"}, "spec.template.workingDir"),
    ],
)
def test_refused_at_admission_with_its_field(template: dict[str, Any], field: str) -> None:
    assert list(refusals_of(**template)) == [field]


def test_all_at_once() -> None:
    document = refusals_of(command=[LONG], workingDir="/proc", liveness={"exec": {"command": [LONG]}})
    assert list(document) == [
        "spec.template.command[0]",
        "spec.template.workingDir",
        "spec.template.liveness.exec.command[0]",
    ]
    assert document["spec.template.command[0]"] == (
        "the program's name has 4097 bytes, more than the maximum of 4096; write long text as an argument"
    )


@pytest.mark.parametrize("path", ["/procedures", "/home/proc", "/devel", "/workspace", "/system", ""])
def test_other_folders_are_accepted(path: str) -> None:
    assert folder_refused(path) == ""


def test_long_arguments_are_accepted() -> None:
    assert refusals_of(command=["/bin/sh", "-c", "a" * 70_000]) == {}
    assert program_refused("a" * 4096) == ""


@given(st.sampled_from(["/proc", "/sys", "/dev"]), st.lists(st.sampled_from(["/", "/.", "/a/.."]), max_size=6))
def test_every_spelling_of_a_kernel_folder_is_refused(path: str, detours: list[str]) -> None:
    assert in_kernel_paths("".join(detours) + path + "".join(detours))
