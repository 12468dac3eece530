"""The files passwd and group of a user that its image does not know, from the folders of the image's layers."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from controller.engine.images.accounts import Accounts, account_files
from controller.engine.kernel.host_users import read_overlaps
from controller.kinds.runtime.container import ContainerConfig, Limits
from controller.kinds.runtime.user_ids import parse_range

CONFIG = ContainerConfig("a:1", "pdk-a", Limits(0, 0, 0), "a", user="2000000:2000000", env=(("HOME", "/workspace"),))
PASSWD = "root:x:0:0:root:/root:/bin/bash\nsandbox:x:20000:20000:,,,:/home/sandbox:/bin/bash\n"


def image(*layers: Path) -> dict[str, Any]:
    lower = ":".join(map(str, layers[1:]))
    return {"GraphDriver": {"Name": "overlay2", "Data": {"UpperDir": str(layers[0]), "LowerDir": lower}}}


def layer(folder: Path, **files: str) -> Path:
    (folder / "etc").mkdir(parents=True)
    for name, text in files.items():
        (folder / "etc" / name).write_text(text)
    return folder


def test_the_images_names_stay_and_its_own_user_gets_the_id(tmp_path: Path) -> None:
    top, low = (
        layer(tmp_path / "top", group="sandbox:x:20000:\n"),
        layer(tmp_path / "low", passwd=PASSWD, group="x:x:1:"),
    )
    document = account_files(image(top, low), CONFIG)
    assert document["passwd"].splitlines() == [
        "root:x:0:0:root:/root:/bin/bash",
        "sandbox:x:2000000:2000000:,,,:/workspace:/bin/bash",
    ]
    assert document["group"].splitlines() == ["sandbox:x:20000:", "own:x:2000000:"]
    homeless = account_files(image(top, low), replace(CONFIG, env=()))
    assert homeless["passwd"].splitlines()[1].split(":")[5] == "/home/sandbox"
    odd = account_files(image(top, low), replace(CONFIG, env=(("HOME", "/a:b\n"),)))
    assert odd["passwd"].splitlines()[1].split(":")[5:] == ["/", "/bin/bash"]


def test_known_users_and_those_of_images_need_no_files(tmp_path: Path) -> None:
    own_path = layer(tmp_path / "own", passwd=PASSWD)
    for user in ("20000:20000", "0:0", "", "node", "9999:9999"):
        assert account_files(image(own_path), replace(CONFIG, user=user)) == {}


def test_links_and_other_engines_give_the_basic_names(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret:x:1:1::/:/bin/sh\n")
    linked = layer(tmp_path / "linked")
    (linked / "etc" / "passwd").symlink_to(tmp_path / "secret")
    for account_file in (
        account_files(image(linked), CONFIG),
        account_files({"GraphDriver": {"Name": "btrfs"}}, CONFIG),
    ):
        assert "s3cret" not in account_file["passwd"]
        assert "sandbox:x:2000000:2000000::/workspace:/bin/sh\n" in account_file["passwd"]


def test_an_engine_elsewhere_gets_no_files(tmp_path: Path) -> None:
    accounts = Accounts(tmp_path / "users", "tcp://127.0.0.1:1")
    assert accounts.mounts("some-uid", {"passwd": "x"}) == []
    accounts.remove("some-uid")
    assert not (tmp_path / "users").exists()


def test_users_of_the_host_within_the_range_are_found(tmp_path: Path) -> None:
    own_id_range = parse_range("2000000-2065535")
    assert read_overlaps(own_id_range, tmp_path) == ()
    (tmp_path / "passwd").write_text("root:x:0:0::/:/bin/sh\nguest:x:2000000:5::/:/bin/sh\n+:::::\nbad\n")
    (tmp_path / "subuid").write_text("low:100000:65536\nhigh:1950000:65536\nempty:2000001:0\n")
    (tmp_path / "subgid").write_text("high:1950000:65536\n")
    assert read_overlaps(own_id_range, tmp_path) == ("guest has 2000000", "high has 1950000-2015535")
