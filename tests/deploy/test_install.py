"""deploy/install.sh and uninstall.sh below a folder that stands for /: what goes where, upgrades, taking them back."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deploy.conftest import CHECKOUT, Checkout

# Knows what install.sh asks an interpreter for. In $TMPDIR: `good` names the only version whose daemon gets ready,
# `has-store` is there to be copied, `migrated` keeps a daemon from getting ready until a copy was restored.
INTERPRETER = r"""#!/bin/bash
echo "$*" >>"$TMPDIR/calls"
version=$(basename "$(readlink -f "$(dirname "$0")/..")")
case "$*" in
    "-P -m venv "*) mkdir -p "$4/bin" && cp "$0" "$4/bin/python" ;;
    *installed.py*socket) echo /run/paddock/paddock.sock ;;
    *installed.py*save*) [ ! -e "$TMPDIR/has-store" ] || { echo copy >"${@: -1}" && echo "${@: -1}"; } ;;
    *ready.py*)
        [ ! -e "$TMPDIR/migrated" ] || exit 1
        [ ! -e "$TMPDIR/good" ] || [ "$(cat "$TMPDIR/good")" = "$version" ] || { echo not ready; exit 1; } ;;
    *"controller restore"*) rm "$TMPDIR/migrated" ;;
    *"controller version"*) [ ! -e "$TMPDIR/does-not-run" ] ;;
esac
"""
SYSTEMCTL = '#!/bin/sh\necho "$*" >>"$TMPDIR/systemctl"\n'


@pytest.fixture
def host(checkout: Checkout) -> Checkout:
    checkout.command("python3", INTERPRETER)
    checkout.command("systemctl", SYSTEMCTL)
    shutil.copytree(CHECKOUT / "migrations", checkout.root / "migrations", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(CHECKOUT / "controller/version.py", checkout.root / "controller/version.py")
    checkout.env["DESTDIR"] = str(checkout.base / "host")
    checkout.env["PADDOCK_DAEMON_TIMEOUT"] = "0"
    (checkout.base / "host").mkdir()
    return checkout


def root(host: Checkout) -> Path:
    return host.base / "host"


def with_systemd(host: Checkout) -> None:
    (root(host) / "run/systemd/system").mkdir(parents=True)


def current(host: Checkout) -> str:
    return os.readlink(root(host) / "usr/local/lib/paddock/current")


def versions(host: Checkout) -> set[str]:
    return {path.name for path in (root(host) / "usr/local/lib/paddock").glob("*+*")}


def systemctl(host: Checkout) -> list[str]:
    path = host.base / "systemctl"
    lines = path.read_text().splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return lines


def another_version(host: Checkout, number: str) -> None:
    path = host.root / "controller/version.py"
    path.write_text(re.sub(r'^VERSION = ".*"', f'VERSION = "{number}"', path.read_text(), flags=re.MULTILINE))


def install(host: Checkout) -> str:
    done = host.run("deploy/install.sh")
    assert done.returncode == 0, done.stdout + done.stderr
    return current(host)


def test_everything_is_put_in_its_place_and_a_second_run_changes_nothing(host: Checkout) -> None:
    name = install(host)
    assert re.fullmatch(r"\d+\.\d+\.\d+\+[0-9a-f]{8}", name)
    wrapper = root(host) / "usr/local/bin/paddock"
    assert wrapper.stat().st_mode & 0o777 == 0o755
    assert '"/usr/local/lib/paddock/current/bin/python" -I -m controller "$@"' in wrapper.read_text()
    unit = (root(host) / "etc/systemd/system/paddock.service").read_text()
    assert "ExecStart=/usr/local/lib/paddock/current/bin/python -I -m controller serve\n" in unit
    assert 'socket_group = "paddock"' in (root(host) / "etc/paddock/paddock.toml").read_text()
    assert (root(host) / "var/lib/paddock").stat().st_mode & 0o777 == 0o700
    for file in ("tmpfiles.d/paddock.conf", "logrotate.d/paddock", "paddock/guard.nft"):
        assert (root(host) / "etc" / file).read_text() == (CHECKOUT / "deploy" / SOURCES[file]).read_text()
    assert systemctl(host) == []  # no systemd runs below that folder
    pip = (host.base / "calls").read_text().count("-m pip install")
    assert install(host) == name
    assert (host.base / "calls").read_text().count("-m pip install") == pip
    assert "--editable" not in (host.base / "calls").read_text()


SOURCES = {
    "tmpfiles.d/paddock.conf": "paddock.tmpfiles",
    "logrotate.d/paddock": "paddock.logrotate",
    "paddock/guard.nft": "paddock-guard.nft",
}


def test_an_upgrade_keeps_settings_and_data_and_the_version_before(host: Checkout) -> None:
    with_systemd(host)
    first = install(host)
    assert systemctl(host) == ["daemon-reload", "enable --quiet paddock", "restart paddock"]
    (root(host) / "etc/paddock/paddock.toml").write_text("workers = 2\n")
    (root(host) / "var/lib/paddock/paddock.db").write_text("data")
    (host.base / "has-store").touch()
    another_version(host, "0.2.0")
    second = install(host)
    assert second.startswith("0.2.0+")
    assert versions(host) == {first, second}
    assert (root(host) / "etc/paddock/paddock.toml").read_text() == "workers = 2\n"
    assert (root(host) / "var/lib/paddock/paddock.db").read_text() == "data"
    assert len(list((root(host) / "var/lib/paddock").glob("before-upgrade-*.db"))) == 1
    another_version(host, "0.3.0")
    third = install(host)
    assert versions(host) == {second, third}


def test_an_upgrade_that_does_not_get_ready_is_taken_back(host: Checkout) -> None:
    with_systemd(host)
    first = install(host)
    systemctl(host)
    (host.base / "good").write_text(first)
    another_version(host, "0.2.0")
    done = host.run("deploy/install.sh")
    assert done.returncode == 1
    assert f"did not get ready, so {first} runs again" in done.stderr
    assert current(host) == first
    assert systemctl(host)[-2:] == ["restart paddock", "restart paddock"]
    assert "controller restore" not in (host.base / "calls").read_text()


def test_where_the_version_before_can_not_use_the_store_any_more_it_gets_its_copy(host: Checkout) -> None:
    with_systemd(host)
    first = install(host)
    (host.base / "good").write_text(first)
    (host.base / "has-store").touch()
    (host.base / "migrated").touch()
    another_version(host, "0.2.0")
    done = host.run("deploy/install.sh")
    assert f"so {first} runs again" in done.stderr
    restored = re.findall(r"controller restore --config \S+ (\S+)", (host.base / "calls").read_text())
    assert [Path(entry).read_text() for entry in restored] == ["copy\n"]
    assert systemctl(host)[-2:] == ["stop paddock", "restart paddock"]


def test_a_version_that_does_not_run_changes_nothing(host: Checkout) -> None:
    with_systemd(host)
    first = install(host)
    systemctl(host)
    (host.base / "does-not-run").touch()
    another_version(host, "0.2.0")
    done = host.run("deploy/install.sh")
    assert done.returncode == 1
    assert "does not run; nothing was changed" in done.stderr
    assert (current(host), systemctl(host)) == (first, [])


def test_a_first_install_that_does_not_get_ready_says_what_to_do(host: Checkout) -> None:
    with_systemd(host)
    (host.base / "good").write_text("another")
    done = host.run("deploy/install.sh")
    assert done.returncode == 1
    assert "its daemon does not get ready" in done.stderr
    assert "paddock doctor" in done.stderr


def test_uninstalling_leaves_settings_and_data_and_purging_nothing(host: Checkout) -> None:
    with_systemd(host)
    install(host)
    systemctl(host)
    (root(host) / "usr/local/bin/other").touch()
    done = host.run("deploy/uninstall.sh")
    assert done.returncode == 0, done.stderr
    assert systemctl(host)[0] == "disable --quiet --now paddock"
    texts = {str(path.relative_to(root(host))) for path in root(host).rglob("*") if path.is_file()}
    assert texts == {"etc/paddock/paddock.toml", "etc/paddock/guard.nft", "usr/local/bin/other"}
    assert (root(host) / "var/lib/paddock").is_dir()
    assert host.run("deploy/uninstall.sh", "--purge").returncode == 0
    assert not (root(host) / "etc/paddock").exists()
    assert not (root(host) / "var/lib/paddock").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_purging_deletes_nothing_in_folders_that_are_bound_into_sandboxes(host: Checkout) -> None:
    install(host)
    base, place = host.base / "theirs", root(host) / "run/paddock/mounts/an id/0"
    base.mkdir()
    (base / "precious").touch()
    place.mkdir(parents=True)
    if subprocess.run(["mount", "--bind", base, place], check=False).returncode != 0:
        pytest.skip("this machine does not let root mount")
    done = host.run("deploy/uninstall.sh", "--purge")
    assert done.returncode == 0, done.stderr
    assert not (root(host) / "run/paddock").exists()
    assert (base / "precious").exists()


def test_what_is_not_ours_is_left_alone(host: Checkout) -> None:
    install(host)
    path = root(host) / "usr/local/bin/paddock"
    path.write_text("#!/bin/sh\n")
    (root(host) / "usr/local/lib/paddock/1.0+theirs").mkdir()
    assert "left alone" in host.run("deploy/uninstall.sh").stdout
    assert path.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be taken away")
def test_it_needs_root_without_a_folder_of_its_own(host: Checkout) -> None:
    for script in ("deploy/install.sh", "deploy/uninstall.sh"):
        done = host.run(script, env={"DESTDIR": ""}, prefix=host.as_nobody())
        assert done.returncode == 1
        assert "needs root" in done.stderr


def test_the_units_exposure(tmp_path: Path) -> None:
    """`systemd-analyze security` at most 5.5, and nothing in it that systemd does not know."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        return  # of Debian's package systemd; the unit's text is what is judged, so any one machine will do
    unit = tmp_path / "paddock.service"
    unit.write_text((CHECKOUT / "deploy/paddock.service").read_text().replace("@PREFIX@", "/usr"))
    done = subprocess.run(
        [analyze, "security", "--offline=true", "--no-pager", "--threshold=55", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "Unknown" not in done.stderr
