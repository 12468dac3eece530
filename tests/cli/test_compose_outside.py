"""A Compose file that somebody else wrote runs nothing here, and takes nothing along from beside its folder."""

from pathlib import Path

import pytest

from controller.cli.compose import ports
from tests.cli.conftest import Run
from tests.helpers_api import ApiStack

SECRET = "machine example.com password letmein\n"
SERVICE = "name: shop\nservices:\n  web:\n    image: tiny:1\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project's folder, with a file of its user's above it and a link to that."""
    (tmp_path / ".netrc").write_text(SECRET)
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "link").symlink_to("../.netrc")
    return folder


def write(folder: Path, text: str, name: str = "compose.yaml") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


@pytest.mark.filterwarnings("ignore:subprocess:ResourceWarning")  # it runs on by itself
def test_ports_are_forwarded_by_no_folder_here(
    served: ApiStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("controller", "paddock", "json"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("import pathlib; pathlib.Path('ran').touch()\n")
    monkeypatch.chdir(tmp_path)
    state = tmp_path / "state" / "ports.json"
    try:
        opened = ports.start(state, "default", [("web", 0, 80)], {"PADDOCK_SERVER": f"unix://{served.socket}"})
        assert [port[::2] for port in opened["ports"]] == [["web", 80]]
    finally:
        ports.stop(state)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("path", ["../.netrc", "./link", "ABSOLUTE"])
@pytest.mark.parametrize(
    "text",
    [
        SERVICE + "    volumes: ['{}:/stolen']\n",
        SERVICE + "    env_file: '{}'\n",
        SERVICE + "    extends: {{service: web, file: '{}'}}\n",
        SERVICE + "    secrets: [key]\nsecrets: {{key: {{file: '{}'}}}}\n",
        SERVICE + "    configs: [key]\nconfigs: {{key: {{file: '{}'}}}}\n",
    ],
    ids=["bind", "env_file", "extends", "secret", "config"],
)
def test_a_text_outside_is_refused(paddock: Run, served: ApiStack, project: Path, path: str, text: str) -> None:
    file = write(project, text.format(path.replace("ABSOLUTE", str(project.parent / ".netrc"))))
    done = paddock("apply", "--compose", file)
    assert done.exit_code == 1
    assert f"{file}:" in done.stderr
    assert f"{project.parent}/.netrc is not read, as it lies outside" in done.stderr
    assert "--allow-outside" in done.stderr
    assert "1 problem;" in done.stderr
    assert served.store.list("Sandbox")[0] == []


def test_a_text_outside_is_sent_if_allowed(paddock: Run, served: ApiStack, project: Path) -> None:
    file = write(project, SERVICE + "    volumes: ['../.netrc:/key']\n")
    assert paddock("apply", "--compose", file, "--allow-outside").exit_code == 0
    assert served.sandbox("shop-web").spec["files"][0]["text"] == SECRET
    assert paddock("compose", "-f", file, "config").exit_code == 1
    assert SECRET.strip() in paddock("compose", "-f", file, "config", "--allow-outside").stdout
    assert paddock("delete", "--compose", file, "--no-wait").exit_code == 0  # nothing is read for that


def test_links_choose_no_other_folder(paddock: Run, project: Path) -> None:
    """Neither a linked `.env` nor a linked Compose file leads elsewhere."""
    file = write(project, SERVICE + "    environment: [KEY]\n")
    write(project.parent, "KEY=letmein\n", "keys")
    (project / ".env").symlink_to("../keys")
    output = paddock("compose", "-f", file, "config")
    assert (output.exit_code, f"{project}/.env: " in output.stderr) == (1, True), output.output
    assert "letmein" in paddock("compose", "--allow-outside", "-f", file, "config").stdout
    (project / ".env").unlink()
    write(project.parent, SERVICE, "other.yaml")
    (project / "linked.yaml").symlink_to("../other.yaml")
    override = write(project, "services: {web: {volumes: ['./.netrc:/key']}}\n", "override.yaml")
    linked = paddock("compose", "-f", str(project / "linked.yaml"), "-f", override, "config", "--allow-outside")
    assert "letmein" not in linked.output


@pytest.mark.parametrize("context", ["../beside", "linked", "ABSOLUTE"])
def test_a_build_outside_is_refused(paddock: Run, served: ApiStack, project: Path, context: str) -> None:
    beside = project.parent / "beside"
    beside.mkdir()
    (project / "linked").symlink_to("../beside")
    write(beside, "FROM paddock/base:1\n", "Dockerfile")
    context = context.replace("ABSOLUTE", str(beside))
    file = write(project, f"name: shop\nservices:\n  web: {{build: '{context}'}}\n")
    for message in (("up", "-d"), ("build",)):
        done = paddock("compose", "-f", file, *message)
        assert done.exit_code == 1
        assert f"service web: `build:` would send {beside}, outside of" in done.stderr
    assert served.store.list("Sandbox")[0] == []
    assert "built" in paddock("compose", "-f", file, "build", "--allow-outside").stdout


def test_variables_that_go_along_are_named(
    paddock: Run, served: ApiStack, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_TOKEN", "letmein")
    monkeypatch.setenv("OTHER_TOKEN", "not-named")
    write(project, "BESIDE=1\n", ".env")
    file = write(project, SERVICE + "    environment: [SOME_TOKEN, BESIDE, GIVEN]\n")
    done = paddock("apply", "--compose", file, "--var", "GIVEN=1")
    assert done.stderr.count("note: the file takes these variables of your environment along: SOME_TOKEN\n") == 1
    assert not {"letmein", "not-named", "OTHER_TOKEN"} & set(done.output.split())
    names = [variable["name"] for variable in served.sandbox("shop-web").spec["template"]["env"]]
    assert sorted(names) == ["BESIDE", "GIVEN", "SOME_TOKEN"]
