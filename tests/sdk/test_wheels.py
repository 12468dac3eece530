"""Both distributions as wheels, each in an environment without anything else of Paddock."""

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.timeout(300)
USE = """
import importlib.metadata, sys
import paddock
for name in paddock.__all__:
    getattr(paddock, name)
try:
    paddock.Paddock("unix:///nowhere/paddock.sock").sandboxes.list()
except paddock.Unreachable as error:
    print("no daemon:", error)
loaded = {each.partition(".")[0] for each in sys.modules}
print("of the daemon:", sorted(loaded & {"controller", "pydantic", "docker", "sqlalchemy"}))
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("wheels")
    for source in (ROOT / "controller/client", ROOT):
        arguments = [
            "wheel",
            "--quiet",
            "--no-deps",
            "--no-build-isolation",
            "--no-index",
            "-w",
            str(folder),
            str(source),
        ]
        subprocess.run([sys.executable, "-m", "pip", *arguments], check=True, cwd=folder)
    return {path.name.partition("-")[0]: path for path in folder.iterdir()}


def environment(folder: Path, *installed: Path) -> Path:
    """Make an environment with these wheels, and the libraries of this one behind them; return its interpreter."""
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    for wheel in installed:
        with zipfile.ZipFile(wheel) as opened:
            opened.extractall(packages)
    return folder / "bin/python"


def run(python: Path, *words: str) -> subprocess.CompletedProcess[str]:
    # A path in the variable runs no .pth file, so this checkout is not found by way of its editable install.
    env = {**os.environ, "PYTHONPATH": sysconfig.get_path("purelib")}
    return subprocess.run([python, *words], env=env, cwd=python.parent, capture_output=True, text=True, check=True)


def test_the_sdk_alone(wheels: dict[str, Path], tmp_path: Path) -> None:
    with zipfile.ZipFile(wheels["paddock_sdk"]) as opened:
        names = opened.namelist()
        (metadata,) = (opened.read(name).decode() for name in names if name.endswith("METADATA"))
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"paddock", "paddock_sdk"}
    assert {"paddock/py.typed", "paddock/_archive/tar.py", "paddock/_version.py"} <= set(names)
    assert not [name for name in names if name.startswith("paddock/_archive/state")]
    assert [line for line in metadata.splitlines() if line.startswith("Requires-Dist")] == [
        "Requires-Dist: httpx>=0.27",
        "Requires-Dist: websockets>=12",
    ]
    lines = run(environment(tmp_path / "env", wheels["paddock_sdk"]), "-c", USE).stdout.splitlines()
    assert lines[0].startswith("no daemon: no Paddock daemon answers at unix:///nowhere/paddock.sock")
    assert lines[1] == "of the daemon: []"


def test_the_daemon_depends_on_the_sdk_and_shares_no_file_with_it(wheels: dict[str, Path], tmp_path: Path) -> None:
    files: dict[str, set[str]] = {}
    for name in ("paddock", "paddock_sdk"):
        with zipfile.ZipFile(wheels[name]) as opened:
            files[name] = set(opened.namelist())
    assert files["paddock"] & files["paddock_sdk"] == set()
    with zipfile.ZipFile(wheels["paddock"]) as opened:
        (metadata,) = (opened.read(entry).decode() for entry in files["paddock"] if entry.endswith("METADATA"))
    assert "Requires-Dist: paddock-sdk" in metadata
    python = environment(tmp_path / "env", wheels["paddock"], wheels["paddock_sdk"])
    assert "serve" in run(python, "-m", "controller", "--help").stdout
