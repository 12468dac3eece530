"""Imports of a command before it runs: `paddock version` takes a few hundredths of a second."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("docker", "sqlalchemy", "pydantic", "httpx", "yaml", "fastapi", "rich", "structlog", "controller.kinds")


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


def test_version_imports_nothing_heavy() -> None:
    loaded = python(
        "import sys; from click.testing import CliRunner; from controller.cli.main import cli;"
        "result = CliRunner().invoke(cli, ['version']); assert result.exit_code == 0, result.output;"
        "print('\\n'.join(sys.modules))"
    ).split()
    assert not [each for each in HEAVY if each in loaded]


def test_the_way_of_ssh_imports_nothing_heavy() -> None:
    """OpenSSH starts it for each connection: of a prompt's time it is most."""
    loaded = python(
        "import sys; from click.testing import CliRunner; from controller.cli.main import cli;"
        "result = CliRunner().invoke(cli, ['--server', 'unix:///nowhere', 'ssh', 'proxy', 'box.paddock']);"
        "assert 'no Paddock daemon' in result.output, result.output;"
        "print('\\n'.join(sys.modules))"
    ).split()
    assert not [each for each in HEAVY if each in loaded]


def test_no_command_imports_the_daemons_packages() -> None:
    loaded = python(
        "import sys; from controller.cli.commands import COMMANDS, load;"
        "[load(name) for name in COMMANDS];"
        "print('\\n'.join(sys.modules))"
    ).split()
    unwanted = (
        "docker",
        "sqlalchemy",
        "controller.app.daemon",
        "controller.engine",
        "controller.store",
        "controller.settings",
    )
    assert not [each for each in unwanted if each in loaded]


def test_the_module_runs_as_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "controller", "version"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "paddock 0.1.0 (speaks paddock/v1alpha1)\n"
