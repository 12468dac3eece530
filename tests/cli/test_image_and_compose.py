"""`paddock image ...`, and `apply` and `delete` with --compose."""

from pathlib import Path

from click.testing import CliRunner

from controller.cli.main import cli
from tests.cli.conftest import Run
from tests.helpers_api import ApiStack

FILE = "services:\n  web: {image: 'tiny:${TAG}', ports: ['127.0.0.1:8080:80']}\n  db: {image: 'tiny:1'}\n"
TOOL = "registry.example/team/tool:1"


def compose_file(folder: Path, text: str = FILE) -> str:
    path = folder / "My Shop" / "compose.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return str(path)


def test_compose_applies_prunes_and_deletes(paddock: Run, served: ApiStack, tmp_path: Path) -> None:
    arguments = ("--compose", compose_file(tmp_path), "--var", "TAG=2")
    done = paddock("apply", *arguments, "--dry-run=client")
    assert done.stdout.splitlines() == [
        f"sandbox.paddock/my-shop-{entry} valid (client dry run)" for entry in ("web", "db")
    ]
    assert "services.web.ports: `paddock compose up` opens them at 127.0.0.1" in done.stderr
    output = paddock("apply", *arguments, "--dry-run=server")
    assert output.stdout.splitlines()[0] == "sandbox.paddock/my-shop-web created (server dry run)", output.output
    assert paddock("apply", *arguments, "-n", "team").stdout.count("created") == 2
    assert paddock("diff", *arguments).exit_code == 1
    assert paddock("apply", *arguments).stdout.count("created") == 2
    assert paddock("diff", *arguments).exit_code == 0
    assert served.sandbox("my-shop-web").spec["template"]["image"] == "tiny:2"
    compose_file(tmp_path, FILE.replace("  db: {image: 'tiny:1'}\n", ""))
    assert paddock("apply", *arguments, "--prune").stdout.splitlines() == [
        "sandbox.paddock/my-shop-web configured",
        "sandbox.paddock/my-shop-db pruned",
    ]
    outcome = paddock("delete", *arguments, "--no-wait")
    assert outcome.stdout.splitlines() == [f'sandbox.paddock "my-shop-{entry}" deleted' for entry in ("db", "web")]
    assert served.sandbox("my-shop-web").deleted_at is not None
    assert served.sandbox("my-shop-web", "team").deleted_at is None


def test_a_wrong_name_is_not_replaced_by_the_folders(paddock: Run, served: ApiStack, tmp_path: Path) -> None:
    good = paddock("apply", "--compose", compose_file(tmp_path, "services: {web: {image: 'tiny:1'}}"))
    assert "my-shop-web created" in good.stdout
    for name in ("my-shop${SUFFIX}", "No Name", "''", "[]"):
        path = compose_file(tmp_path, f"name: {name}\nservices: {{web: {{image: 'tiny:1'}}}}")
        for command in (("apply",), ("delete", "--no-wait")):
            done = paddock(*command, "--compose", path)
            assert (done.exit_code, done.stdout) == (1, ""), done.output
    assert served.sandbox("my-shop-web").deleted_at is None


def test_a_folder_is_sent_only_to_a_daemon_of_this_host(paddock: Run, tmp_path: Path) -> None:
    path = compose_file(tmp_path, "services:\n  web:\n    image: tiny:1\n    volumes: ['./data:/data']\n")
    arguments = ("apply", "--compose", path, "--dry-run=client")
    assert paddock(*arguments).stdout == "sandbox.paddock/my-shop-web valid (client dry run)\n"
    done = CliRunner().invoke(cli, ["--server", "https://other.example", *arguments])
    assert done.exit_code == 1
    assert f"{path}:4:15: services.web.volumes[0]: the folder of this file is not known here" in done.stderr


def test_compose_problems_have_positions(paddock: Run, served: ApiStack, tmp_path: Path) -> None:
    path = compose_file(tmp_path, FILE.replace("'tiny:1'", "x, privileged: true"))
    done = paddock("apply", "--compose", path)
    assert done.exit_code == 1
    assert f"{path}:2:16: services.web.image: `TAG` is not set" in done.stderr
    assert f"{path}:3:18: services.db.privileged: a sandbox is never privileged; remove it" in done.stderr
    assert served.store.list("Sandbox")[0] == []
    for message in (
        ("--project", "x", "-f", path),
        ("--compose", path, "--applyset", "x"),
        ("--compose", path, "-f", path),
    ):
        assert paddock("apply", *message).exit_code == 2
    assert paddock("apply", "--compose", path, "--var", "TAG").exit_code == 2
    assert paddock("diff", "--compose", path).exit_code == 2
    assert paddock("delete", "--compose", path, "--all").exit_code == 2


def test_images_are_listed_pulled_built_and_pushed(paddock: Run, served: ApiStack, tmp_path: Path) -> None:
    served.images.remote[TOOL] = "sha256:" + "d" * 64
    done = paddock("image", "pull", TOOL)
    assert (done.exit_code, done.stderr) == (0, "1: Pulling\n")
    assert done.stdout == f"{TOOL} pulled (registry.example/team/tool@sha256:{'d' * 64})\n"
    rows = paddock("image", "list").stdout.splitlines()
    assert [row.split()[0] for row in rows] == ["IMAGE", "paddock/base:1", TOOL]
    (tmp_path / "Dockerfile").write_text("FROM paddock/base:1\nCOPY a /a\n")
    (tmp_path / "a").write_text("x")
    built = paddock("image", "build", "-t", "registry.example/a:1", "--build-arg", "A=1", str(tmp_path))
    assert (built.exit_code, built.stdout.startswith("registry.example/a:1 built (sha256:")) == (0, True), built.output
    assert "COPY a /a" in built.stderr
    assert paddock("image", "push", "registry.example/a:1").exit_code == 0
    assert "registry.example/a:1" in served.images.remote
    done = paddock("image", "delete", TOOL, "registry.example/a:1")
    assert done.stdout.splitlines() == [f"{TOOL} deleted", "registry.example/a:1 deleted"], done.output
    assert [row.split()[0] for row in paddock("image", "list").stdout.splitlines()] == ["IMAGE", "paddock/base:1"]


def test_image_errors_are_messages(paddock: Run, served: ApiStack, tmp_path: Path) -> None:
    done = paddock("image", "pull", "registry.example/none:1")
    assert (done.exit_code, "error: registry.example/none:1: the registry does not have it" in done.stderr) == (1, True)
    (tmp_path / "Dockerfile").write_text("FROM paddock/base:1\nADD a /a\n")
    done = paddock("image", "build", "-t", "a:1", str(tmp_path))
    assert (done.exit_code, "Dockerfile:2:1: ADD: may fetch from a network; write COPY" in done.stderr) == (1, True)
    assert paddock("image", "build", "-t", "a:1", str(tmp_path), "--build-arg", "A").exit_code == 2
    done = paddock("image", "delete", "registry.example/none:1")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "registry.example/none:1" in done.stderr


def test_a_refused_up_loses_no_ended_service(paddock: Run, served: ApiStack, tmp_path: Path) -> None:
    served.images.remote["tiny:1"] = "sha256:" + "d" * 64
    path = compose_file(tmp_path, "services: {once: {image: 'tiny:1'}, web: {image: 'tiny:1'}}")
    assert paddock("apply", "--compose", path).exit_code == 0
    finished = {"type": "Finished", "status": "True", "reason": "Completed", "observedGeneration": 1}
    served.change("my-shop-once", status={"conditions": [finished], "observedGeneration": 1})
    served.change("my-shop-web", finalizers=("a/test",), deleted_at=1.0)
    done = paddock("compose", "-f", path, "up", "-d")
    assert (done.exit_code, "run once more" in done.stderr) == (1, False), done.output
    assert "is being deleted" in done.stderr
    assert served.sandbox("my-shop-once").deleted_at is None


def test_image_volumes_become_volumes(paddock: Run, served: ApiStack, tmp_path: Path) -> None:
    served.images.remote[TOOL] = "sha256:" + "d" * 64
    served.images.volumes[TOOL] = ("/data",)
    path = compose_file(tmp_path, f"services:\n  db: {{image: '{TOOL}'}}\n  web: {{image: 'none:1'}}\n")
    done = paddock("compose", "-f", path, "up", "-d", "db", "web")
    assert (done.exit_code, f"{path}:3:16: services.web.image: none:1: the registry" in done.stderr) == (1, True)
    assert not served.store.list("Sandbox")[0]
    done = paddock("compose", "-f", path, "up", "-d", "db", "--timeout", "1ms")
    assert f"{path}:2:8: services.db.image: the image keeps data in /data: a volume of 1Gi" in done.stderr
    volumes = served.sandbox("my-shop-db").spec["template"]["volumes"]
    assert [(volume["name"], volume["mountPath"]) for volume in volumes] == [("my-shop-db--data", "/data")]
    paddock("apply", "--compose", path)
    assert served.sandbox("my-shop-db").spec["template"]["volumes"] == volumes
    served.images.away = True
    done = paddock("apply", "--compose", path)
    assert (done.exit_code, "services.db.image: no Docker Engine answers" in done.stderr) == (1, True), done.output
    assert served.sandbox("my-shop-db").spec["template"]["volumes"] == volumes
    served.images.away = False
    served.images.delete(TOOL)
    paddock("apply", "--compose", path)
    assert served.sandbox("my-shop-db").spec["template"]["volumes"] == volumes
    done = paddock("run", "--wait", "1ms", "-d", "--name", "one", "-v", "own:/srv", TOOL)
    assert f"note: {TOOL} keeps data in /data: a volume of 1Gi there, which is deleted with the sandbox" in done.stderr
    (claim,) = served.sandbox("one").spec["template"]["volumeClaimTemplates"]
    assert (claim["mountPath"], claim["size"], claim["reclaimPolicy"]) == ("/data", "1Gi", "Delete")
    assert "keeps data" not in paddock("run", "--wait", "1ms", "-d", "-v", "own:/data", TOOL).stderr
    served.images.volumes[TOOL] = ("/srv/x",)
    done = paddock("run", "--wait", "1ms", "-d", "--name", "two", "-v", "own:/srv", TOOL)
    assert (done.exit_code, "keeps data in /srv/x (VOLUME), in the mount /srv; mount" in done.stderr) == (1, True)
    assert "note: " not in done.stderr


def test_down_deletes_volumes_of_an_uncoverable_image(paddock: Run, served: ApiStack, tmp_path: Path) -> None:
    served.images.remote[TOOL] = "sha256:" + "d" * 64
    served.images.volumes[TOOL] = ("/data",)
    path = compose_file(
        tmp_path, f"services: {{db: {{image: '{TOOL}', volumes: ['more:/more']}}}}\nvolumes: {{more: {{}}}}"
    )
    paddock("compose", "-f", path, "up", "-d", "--timeout", "1ms")
    served.images.volumes[TOOL] = ("/data", "/data/sub")
    done = paddock("compose", "-f", path, "down", "-v", "--timeout", "1ms")
    assert "VOLUME" not in done.output
    assert served.sandbox("my-shop-db").deleted_at is not None
