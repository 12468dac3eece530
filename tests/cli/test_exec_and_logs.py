"""`paddock logs`, `exec` and `inspect`, through the API to an engine in memory."""

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pexpect
import pytest
import yaml
from click.testing import CliRunner, Result

from controller.api.server.server import ApiServer
from controller.cli.main import cli
from controller.kinds.common.chunk import Chunk
from controller.kinds.common.labels import container_labels, container_name, egress_name, egress_uid
from controller.kinds.common.log_tail import Tail
from controller.kinds.planning.action import CreateContainer, PauseContainer, StartContainer
from controller.kinds.planning.instance_record import Instance
from controller.kinds.planning.instance_state import Termination
from controller.kinds.planning.outcome import Ok
from controller.kinds.runtime.container import ContainerConfig, Limits
from tests.cli.shells import shell
from tests.conftest import HandClock
from tests.fakes.engine import TINY, FakeEngine
from tests.helpers_api import QUICKSTART, ApiStack, make_api
from tests.instance_states import instance_state

Run = Callable[..., Result]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def engine() -> FakeEngine:
    fake_engine = FakeEngine("i-1", clock=HandClock())
    fake_engine.open(lambda: None)
    return fake_engine


@pytest.fixture
def boxed(tmp_path: Path, engine: FakeEngine, quiet: None) -> Iterator[ApiStack]:
    """A served API whose sandbox `quickstart` runs and has written a log."""
    api = make_api(tmp_path, engine=engine)
    api.apply()
    _run_box(api, engine)
    server: ApiServer = api.server()
    server.start()
    yield api
    server.stop()
    api.store.close()


def _run_box(api: ApiStack, engine: FakeEngine) -> None:
    obj = api.sandbox()
    name = container_name(obj.name, obj.uid)
    command = ("sh", "-c", "echo hello; echo oops >&2; sleep 60")
    config = ContainerConfig(
        TINY, name, Limits(500, 64 << 20, 64), obj.name, command=command, env=(("TOKEN", "s3cret"),)
    )
    labels = container_labels(
        instance="i-1",
        uid=obj.uid,
        namespace=obj.namespace,
        name=obj.name,
        role="sandbox",
        generation=1,
        config_hash="h",
        template_hash="t",
    )
    for action in (CreateContainer(obj.uid, config, labels, "test"), StartContainer(obj.uid, name, "test")):
        assert isinstance(engine.act(action), Ok)


@pytest.fixture
def paddock(boxed: ApiStack) -> Run:
    def run(*words: str, stdin: bytes | None = None) -> Result:
        return CliRunner().invoke(cli, ["--server", f"unix://{boxed.socket}", *words], input=stdin)

    return run


def test_output_errors_and_exit_code_come_through(paddock: Run) -> None:
    done = paddock("exec", "quickstart", "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert (done.exit_code, done.stdout, done.stderr) == (3, "out\n", "err\n")
    assert paddock("exec", "sandbox/quickstart", "--", "true").exit_code == 0


def test_stdin_is_passed_byte_for_byte(paddock: Run) -> None:
    data = bytes(range(256)) * 2000
    done = paddock("exec", "-i", "quickstart", "--", "cat", stdin=data)
    assert (done.exit_code, done.stdout_bytes) == (0, data)


def test_unreadable_stdin_is_an_error(boxed: ApiStack) -> None:
    done = shell("paddock exec -i quickstart -- cat 0>/dev/null", boxed.socket)
    reason = "Bad file descriptor; the command was killed, start it with another input"
    assert (done.returncode, done.stderr) == (1, f"error: stdin can't be read: {reason}\n")


def test_without_i_stdin_is_not_read(paddock: Run) -> None:
    assert paddock("exec", "quickstart", "--", "cat", stdin=b"secret").stdout == ""


def test_logs(paddock: Run) -> None:
    assert sorted(paddock("logs", "quickstart").stdout.split()) == ["hello", "oops"]
    assert paddock("logs", "quickstart", "--tail", "0").stdout == ""
    assert paddock("logs", "sandbox/quickstart", "--tail=1").stdout == "oops\n"


def test_the_egress_log(paddock: Run, boxed: ApiStack, engine: FakeEngine) -> None:
    output = paddock("logs", "quickstart", "--egress")
    assert output.exit_code == 1
    assert "has no proxy now" in output.stderr
    assert paddock("logs", "quickstart", "--egress", "-f").exit_code == 2
    obj = boxed.sandbox()
    uid, name = egress_uid(obj.uid), egress_name(obj.uid)
    config = ContainerConfig(TINY, name, Limits(500, 64 << 20, 64), name)
    labels = container_labels(
        instance="i-1",
        uid=uid,
        namespace=obj.namespace,
        name=obj.name,
        role="egress",
        generation=1,
        config_hash="",
        template_hash="",
    )
    assert isinstance(engine.act(CreateContainer(uid, config, labels, "a test")), Ok)
    lines = (
        "1795291289.296 10.213.4.9 TCP_MISS/200 GET git.example.org:80 - 198.51.100.80 178",
        "squid says something else",
        "1795291316.691 10.213.4.9 TCP_DENIED/200 CONNECT other.example.org:443 git.example.org - 0",
    )
    engine.container(name).output += [(1.0, Chunk("stdout", f"{line}\n".encode())) for line in lines]
    assert paddock("logs", "quickstart", "--egress").stdout.splitlines() == [
        "2026-11-21T20:01:29.296Z allowed GET git.example.org:80 bytes=178",
        "2026-11-21T20:01:56.691Z refused CONNECT other.example.org:443 bytes=0 inside=git.example.org",
    ]
    assert "refused CONNECT" in paddock("logs", "quickstart", "--egress", "--tail", "1").stdout


def test_previous_log_of_a_replaced_container_is_its_tail(paddock: Run, boxed: ApiStack) -> None:
    output = paddock("logs", "quickstart", "-p")
    assert (output.exit_code, output.stdout) == (1, "")
    assert "has no previous run" in output.stderr
    obj = boxed.sandbox()
    end = Termination("another", 1, "Error", 1.0, 2.0, tail=Tail(("one", "two")))
    parent = (obj.uid, "Sandbox", obj.namespace, obj.name)
    with boxed.store.transaction() as transaction:
        transaction.put_instance(
            Instance("web", *parent, "sandbox", Limits(500, 64 << 20, 64), 1.0, instance_state(last_end=end))
        )
    done = paddock("logs", "quickstart", "-p", "--tail", "1")
    assert (done.exit_code, done.stdout) == (0, "two\n")
    assert "warning: its container was replaced: these are the last kept lines" in done.stderr
    assert "can't be followed" in paddock("logs", "quickstart", "-pf").stderr


def test_nothing_stays_open(paddock: Run, engine: FakeEngine) -> None:
    paddock("exec", "quickstart", "--", "true")
    paddock("logs", "quickstart")
    assert not engine.open_streams


def test_exec_in_a_stopped_sandbox_gives_its_reason(paddock: Run, boxed: ApiStack, engine: FakeEngine) -> None:
    boxed.set_ready("False", "Paused", "asked for by runState")
    (container,) = engine.observe().containers[boxed.sandbox().uid]
    engine.act(PauseContainer(container.uid, container.name, container.id, "test"))
    done = paddock("exec", "quickstart", "--", "true")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == (
        "error: sandbox `quickstart` is not running (paused): Paused: asked for by runState; it keeps its processes and"
        " code contexts: set it to Running first (`paddock set run-state`)\n"
    )


def test_an_unreachable_engine_is_reported(paddock: Run, engine: FakeEngine) -> None:
    engine.go_down("the engine does not answer; start it")
    assert paddock("logs", "quickstart").stderr == "error: the engine does not answer; start it\n"
    assert paddock("exec", "quickstart", "--", "true").stderr == "error: the engine does not answer; start it\n"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["exec", "nope", "--", "true"], 1, "`nope` not found"),
        (["exec", "quickstart"], 2, "COMMAND"),
        (["exec", "-t", "quickstart", "--", "sh"], 2, "stdin is not a terminal"),
        (["exec", "-e", "=A", "quickstart", "--", "sh"], 2, "NAME=VALUE"),
        (["exec", "-e", "A", "quickstart", "--", "sh"], 2, "NAME=VALUE"),
        (["exec", "pod/quickstart", "--", "sh"], 2, "is not supported here"),
        (["logs", "nope"], 1, "`nope` not found"),
        (["logs", "quickstart", "--since", "yesterday"], 2, "is not a valid duration"),
    ],
)
def test_wrong_arguments(paddock: Run, words: list[str], code: int, said: str) -> None:
    done = paddock(*words)
    assert done.exit_code == code
    assert said in done.stderr


def test_a_detached_command_is_listed(paddock: Run) -> None:
    assert "No detached commands" in paddock("execs", "quickstart").stderr
    output = paddock("exec", "-d", "quickstart", "--", "sh", "-c", "echo out; exit 3")
    id_ = output.stdout.strip()
    assert (output.exit_code, len(id_)) == (0, 12)
    deadline = time.monotonic() + 60
    while "Exited" not in (printed := paddock("execs", "quickstart").stdout):
        assert time.monotonic() < deadline, printed
    assert printed.splitlines()[1].split()[:3] == [id_, "Exited", "3"]
    assert paddock("logs", "quickstart", "--exec", id_).stdout == "out\n"
    assert f"{id_} has already ended (Exited)" in paddock("execs", "quickstart", "--kill", id_).stderr
    assert f'"id": "{id_}"' in paddock("execs", "quickstart", "-o", "json").stdout


def test_options_that_conflict_with_detach(paddock: Run) -> None:
    assert "leave -i and -t out" in paddock("exec", "-d", "-i", "quickstart", "--", "cat").stderr
    assert "leave the other options out" in paddock("logs", "quickstart", "--exec", "x", "-f").stderr
    assert "no detached command `x`" in paddock("logs", "quickstart", "--exec", "x").stderr


def test_inspect_hides_variable_values(paddock: Run, boxed: ApiStack) -> None:
    for form in ("yaml", "json"):
        done = paddock("inspect", "quickstart", "-o", form)
        assert done.exit_code == 0, done.stderr
        document = yaml.safe_load(done.stdout)
        assert document["container"]["Config"]["Env"] == ["TOKEN=(hidden)"]
        assert document["container"]["State"]["Running"] is True
        assert document["instance"] is None, "no loop has recorded one"
        assert "s3cret" not in done.stdout
    boxed.apply(QUICKSTART.replace("name: quickstart", "name: other"))
    assert yaml.safe_load(paddock("inspect", "other").stdout)["container"] is None


HOSTILE = "\x1b]0;mine\x07\x1b]52;c;cm0=\x07\x1b[6n"
AT_TERMINAL: dict[str, tuple[str, ...]] = {
    "logs": ("logs", "quickstart"),
    "exec": ("exec", "quickstart", "--", "echo", f"{HOSTILE}\x1b[31mred\x1b[2Jend"),
    "exec -t": ("exec", "-t", "quickstart", "--", "echo", f"{HOSTILE}\x1b[31mred\x1b[2Jend"),
}


@pytest.mark.parametrize("what", AT_TERMINAL)
def test_a_terminal_gets_no_hostile_escape_sequence(boxed: ApiStack, engine: FakeEngine, what: str) -> None:
    engine.say(container_name("quickstart", boxed.sandbox().uid), f"{HOSTILE}\x1b[31mred\x1b[2Jend\n")
    arguments = ["-m", "controller", "--server", f"unix://{boxed.socket}", *AT_TERMINAL[what]]

    def shown(*more: str) -> bytes:
        terminal = pexpect.spawn(sys.executable, [*arguments[:5], *more, *arguments[5:]], cwd=str(ROOT), timeout=60)
        terminal.expect("end\r?\n")
        before: bytes = terminal.before + terminal.match[0]
        before += terminal.read()
        terminal.wait()
        assert terminal.exitstatus == 0
        return before[before.index(b"\x1b") :].replace(b"\r", b"")

    on_screen = b"\x1b[2J" if what == "exec -t" else b""
    assert shown() == b"\x1b[31mred" + on_screen + b"end\n\x1b[m"
    assert shown("--raw") == HOSTILE.encode() + b"\x1b[31mred\x1b[2Jend\n"


def test_a_pipe_gets_every_byte(paddock: Run, boxed: ApiStack, engine: FakeEngine) -> None:
    engine.say(container_name("quickstart", boxed.sandbox().uid), HOSTILE)
    assert paddock("logs", "quickstart").stdout.endswith(HOSTILE)
    assert paddock("exec", "quickstart", "--", "echo", HOSTILE).stdout == f"{HOSTILE}\n"


def test_an_output_that_takes_no_more(boxed: ApiStack) -> None:
    full = shell("paddock exec quickstart -- echo hi >/dev/full", boxed.socket)
    assert full.returncode == 1
    assert (
        full.stderr == "error: the output can't be written: No space left on device; make room, or write it elsewhere\n"
    )
    for message in ("logs quickstart", "logs -f --prefix quickstart", "sandbox logs quickstart"):
        done = shell(f"paddock {message} | true; echo ${{PIPESTATUS[0]}}", boxed.socket)
        assert (done.stdout, done.stderr) == ("0\n", "")
