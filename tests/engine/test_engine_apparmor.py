"""AppArmor: the engine's report against the kernel's loaded profiles."""

from pathlib import Path

import pytest

from controller.engine.kernel.apparmor import in_force, with_modes

SAID = ("name=apparmor", "name=seccomp,profile=builtin")


def test_a_profile_that_is_loaded_confines(tmp_path: Path) -> None:
    (tmp_path / "docker-default.3").mkdir()
    assert in_force(SAID, tmp_path, tmp_path / "none") == SAID


@pytest.mark.parametrize("others", [(), ("docker-default-of-mine.1", "lsb_release.2")])
def test_an_engine_that_loaded_none_confines_nothing(tmp_path: Path, others: tuple[str, ...]) -> None:
    for name in others:
        (tmp_path / name).mkdir()
    assert in_force(SAID, tmp_path, tmp_path / "none") == ("name=seccomp,profile=builtin",)


def test_an_unloaded_profile_is_still_attested(tmp_path: Path) -> None:
    """Else removing it by hand would be all it takes for no sandbox to be attested by it any more."""
    parser = tmp_path / "apparmor_parser"
    parser.touch()
    loaded = tmp_path / "profiles"
    loaded.mkdir()
    assert in_force(SAID, loaded, parser) == SAID


def test_without_kernel_access_the_engine_is_trusted(tmp_path: Path) -> None:
    assert in_force(SAID, tmp_path / "hidden", tmp_path / "none") == SAID


@pytest.mark.parametrize("mode", ["enforce", "complain"])
def test_a_stack_shows_the_mode_of_each_profile(tmp_path: Path, mode: str) -> None:
    """Of the whole the kernel says `mixed`, whether the engine's profile is enforced or not."""
    label = "crun//&docker-default (mixed)"
    assert with_modes(label, tmp_path / "hidden") == label
    for name, profile_mode in (("crun", "unconfined"), ("docker-default", mode)):
        assert with_modes(label, tmp_path) == label
        (tmp_path / f"{name}.1").mkdir()
        (tmp_path / f"{name}.1" / "name").write_text(f"{name}\n")
        (tmp_path / f"{name}.1" / "mode").write_text(f"{profile_mode}\n")
    assert with_modes(label, tmp_path) == f"crun (unconfined)//&docker-default ({mode})"
    assert with_modes("docker-default (enforce)", tmp_path) == "docker-default (enforce)"
