"""Setuid files of an image, from the folders of its layers."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.engine.docker.errors import Fault
from controller.engine.images.image_checks import check_image, user_with
from controller.engine.images.image_layers import setuid_files
from controller.kinds.runtime.container import ContainerConfig, Limits
from controller.kinds.runtime.mount import Slot
from controller.kinds.runtime.user_ids import IdRange


def image(*layers: Path, driver: str = "overlay2") -> dict[str, Any]:
    """As the engine inspects one; the first layer is on top."""
    lower = ":".join(map(str, layers[1:]))
    data = {"UpperDir": str(layers[0])} | ({"LowerDir": lower} if lower else {})
    return {"GraphDriver": {"Name": driver, "Data": data}}


def put(layer: Path, path: str, mode: int = 0o755) -> None:
    file = layer / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("x")
    file.chmod(mode)


@pytest.fixture
def top(tmp_path: Path) -> Path:
    (tmp_path / "top").mkdir()
    return tmp_path / "top"


@pytest.fixture
def low(tmp_path: Path) -> Path:
    (tmp_path / "low").mkdir()
    return tmp_path / "low"


def test_setuid_files_of_all_layers_are_found(top: Path, low: Path) -> None:
    put(top, "usr/bin/su", 0o4755)
    put(top, "usr/bin/true")
    put(low, "usr/bin/wall", 0o2755)
    (low / "usr/bin/link").symlink_to("wall")
    assert setuid_files(image(top, low)) == ("/usr/bin/su", "/usr/bin/wall")


def test_upper_layers_hide_replaced_files(top: Path, low: Path) -> None:
    for path in ("usr/bin/su", "opt/tool/run", "usr/bin/kept"):
        put(low, path, 0o4755)
    put(top, "usr/bin/su")
    put(top, "opt/tool")  # a file where a folder was; as overlayfs marks what was removed
    (top / "usr/share").mkdir()
    assert setuid_files(image(top, low)) == ("/usr/bin/kept",)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may write such an attribute")
def test_an_opaque_folder_hides_all_below(top: Path, low: Path) -> None:
    put(low, "opt/tool/run", 0o4755)
    (top / "opt/tool").mkdir(parents=True)
    try:
        os.setxattr(top / "opt/tool", "trusted.overlay.opaque", b"y")
    except OSError:
        pytest.skip("this file system has no such attributes")
    assert setuid_files(image(top, low)) == ()


def test_what_cannot_be_read_is_not_known(top: Path, low: Path) -> None:
    assert setuid_files(image(top, driver="btrfs")) is None
    assert setuid_files({}) is None
    assert setuid_files(image(top, low / "gone")) is None


class Engine:
    """As much of a client as looking into an image takes."""

    base_url = "unix:///run/docker.sock"

    def __init__(self, answer: dict[str, Any]) -> None:
        self.answer = answer

    def call(self, _operation: str, _do: object) -> dict[str, Any]:
        raise Fault("4xx", "it hands out no files", status=400)

    def image(self, _reference: str) -> dict[str, Any]:
        return self.answer


def test_notes_name_setuid_files_and_root(top: Path) -> None:
    for name in "abcdef":
        put(top, f"bin/{name}", 0o4755)
    config = ContainerConfig("some:1", "pdk-a", Limits(0, 0, 0), "a")
    document = {**image(top), "Config": {"User": "root:root"}}
    root, setuid = check_image(Engine(document), "some:1", config).notes  # type: ignore[arg-type]
    assert "runs as root" in root
    assert setuid.endswith("which gain nothing in this sandbox: /bin/a, /bin/b, /bin/c, /bin/d and 2 more")
    granted = replace(config, security_options=())
    assert "become other users" in check_image(Engine(document), "some:1", granted).notes[1]  # type: ignore[arg-type]
    owned = ContainerConfig("some:1", "pdk-a", Limits(0, 0, 0), "a", user="20000:20000")
    assert check_image(Engine({"Config": {"User": ""}}), "some:1", owned).notes == ()  # type: ignore[arg-type]
    [unknown] = check_image(Engine({"Config": {"User": "1"}}), "some:1", granted).notes  # type: ignore[arg-type]
    assert "it is unknown if the image some:1 has setuid" in unknown


FITS = {"paddock.dev/user": "any"}


@pytest.mark.parametrize(
    ("user", "labels", "found"),
    [
        ("20000:20000", FITS, "1700005:1700005"),
        ("20000", FITS, "1700005:1700005"),
        ("20000:20000", {}, ""),  # built on an older base: its folders are that user's alone
        ("20000:20000", {"paddock.dev/user": "other"}, ""),
        ("1000:1000", FITS, ""),
        ("", FITS, ""),
        ("0:0", FITS, ""),
        ("sandbox", FITS, ""),
    ],
)
def test_only_paddocks_own_user_gives_way(user: str, labels: dict[str, str], found: str) -> None:
    data = {"User": user, "Labels": labels}
    assert user_with(data, 1_700_005) == found
    assert user_with(data, 0) == ""
    own_config = ContainerConfig("some:1", "pdk-a", Limits(0, 0, 0), "a", own_id=1_700_005)
    checked = check_image(Engine({"Config": data}), "some:1", own_config)  # type: ignore[arg-type]
    assert (checked.user, checked.groups) == (found, ("20000",) if found else ())
    image_check = check_image(Engine({"Config": data}), "some:1", replace(own_config, user="34567:34567"))  # type: ignore[arg-type]
    assert image_check.user == "34567:34567"


@pytest.mark.parametrize("user", ["1700001:1700001", "1700001", "1000:1700009", "root:1700000"])
def test_an_images_user_is_no_other_sandboxs(user: str) -> None:
    config = ContainerConfig(
        "some:1", "pdk-a", Limits(0, 0, 0), "a", own_id=1_700_005, owned_ids=IdRange(1_700_000, 1_700_009)
    )
    client = Engine({"Config": {"User": user, "Labels": FITS}})
    checked = check_image(client, "some:1", config)  # type: ignore[arg-type]
    assert checked.terminal
    assert f"has the USER {user}, one of 1700000-1700009" in checked.refusal
    assert check_image(client, "some:1", replace(config, user="34567:34567")).refusal == ""  # type: ignore[arg-type]


def test_mounts_cover_volumes_however_those_are_written() -> None:
    volumes = {"/data//x": {}, "/data/../srv/": {}, "/var/run/y": {}}
    engine = Engine({"Config": {"User": "1", "Volumes": volumes}})
    slots = (Slot("/data/x"), Slot("/srv"), Slot("/var/run/y"))
    config = ContainerConfig("some:1", "pdk-a", Limits(0, 0, 0), "a", slots=slots)
    assert check_image(engine, "some:1", config).refusal == ""  # type: ignore[arg-type]
    other_spelling = replace(config, slots=(*slots[:2], Slot("/run/y")))
    assert "VOLUME /var/run/y" in check_image(engine, "some:1", other_spelling).refusal  # type: ignore[arg-type]
