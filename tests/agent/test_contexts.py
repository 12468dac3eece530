"""Code contexts of the agent, their kernels as plain processes: Python without IPython, bash, and forged kernels."""

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from images.agent.paddock_agent.contexts import cpus_of
from tests.agent.conftest import ENVIRONMENT, Running, Start, finished

BASIC = {"PADDOCK_KERNEL_ENGINE": "basic"}


@pytest.fixture
def basic(start: Start) -> Running:
    return start(environment=BASIC)


def run(agent: Running, code: str, context: str = "python", **more: Any) -> list[dict[str, Any]]:
    """Run code over a connection of its own; return the events but for `started` and pings."""
    body = {"context": context, "execution": "e1", "code": code, "language": context, **more}
    if context not in ("python", "javascript", "bash"):
        del body["language"]
    connection = agent.connect()
    connection.request("POST", "/contexts/execute", json.dumps(body), {"content-type": "application/json"})
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    assert answer.status == 200, text
    events = [json.loads(line) for line in text.splitlines()]
    assert {event.pop("execution") for event in events} == {"e1"}
    return [event for event in events if event["type"] not in ("started", "ping")]


def text(events: list[dict[str, Any]], stream: str = "stdout") -> str:
    return "".join(event["text"] for event in events if event["type"] == stream)


def value(events: list[dict[str, Any]]) -> str:
    return next(event["data"]["text/plain"] for event in events if event["type"] == "result")


def alive(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_streams_come_in_their_order(basic: Running) -> None:
    events = run(basic, "import sys\nprint('a'); print('b', file=sys.stderr); print('c')\n1")
    assert [(event["type"], event.get("text")) for event in events[:3]] == [
        ("stdout", "a\n"),
        ("stderr", "b\n"),
        ("stdout", "c\n"),
    ]
    assert text(run(basic, "import os; os.system('echo of a subprocess')")) == "of a subprocess\n"
    assert (events[-1]["status"], value(events)) == ("ok", "1")


def test_a_long_stream_keeps_head_and_tail(basic: Running) -> None:
    shown = text(run(basic, "print('h' + 'x' * 3_000_000 + 't')"))
    assert shown.startswith("hxxx")
    assert shown.endswith("xt\n")
    assert "[... 1951427 characters left out ...]" in shown
    direct = text(run(basic, "import os; os.write(1, b'y' * 2_000_000); None"))
    assert len(direct) < 1_050_000


def test_results_beyond_their_bounds_are_left_out_and_said(basic: Running) -> None:
    events = run(basic, "class Big:\n def _repr_html_(self): return 'x' * 5_000_000\nBig()")
    assert [event["type"] for event in events] == ["notice", "result", "done"]
    assert "text/html" in events[0]["text"]
    plot = run(basic, "class Plot:\n def _repr_png_(self): return bytes(200_000_000)\nPlot()")
    assert plot[0]["text"] == "left out of a result: image/png: 200000000 bytes, over the 4 MiB of a result"
    peak = "next(int(line.split()[1]) for line in open('/proc/self/status') if line.startswith('VmHWM'))"
    assert int(value(run(basic, peak))) < 300_000  # KiB: it was not encoded
    many = run(basic, "class Many:\n def _repr_html_(self): return 'x' * 3_000_000\nfor _ in range(8): display(Many())")
    assert sum(event["type"] == "result" for event in many) == 5
    assert "3 results were left out: over 16 MiB" in text(many, "notice")


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("def f(:", "SyntaxError"),
        ("import sys; sys.exit(3)", "SystemExit"),
        ("input()", "EOFError"),
        ("class X:\n def __str__(self): raise ValueError\nraise Exception(X())", "Exception"),
        ("exec('x' * 100_000)", "NameError"),
    ],
)
def test_errors_keep_the_state(basic: Running, code: str, name: str) -> None:
    run(basic, "kept = 1")
    error, done = run(basic, code)[-2:]
    assert (error["name"], done["status"], done["stateLost"]) == (name, "error", False)
    assert value(run(basic, "kept")) == "1"


def test_a_killed_interpreter_is_begun_anew(basic: Running) -> None:
    error, done = run(basic, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert (error["name"], done["status"], done["exitCode"], done["stateLost"]) == ("ContextDied", "died", 137, True)
    assert value(run(basic, "'os' in globals()")) == "False"


def test_endless_output_is_bounded_and_interrupted(basic: Running) -> None:
    events = run(basic, "while True: print('x' * 1000)", timeout=0.5)
    assert (events[-1]["status"], events[-1]["stateLost"]) == ("timeout", False)
    assert len(text(events)) < 1_100_000


def test_too_much_code_is_refused(basic: Running) -> None:
    body = {"context": "python", "language": "python", "execution": "e", "code": "#" * (2 << 20) + "#"}
    status, refused = basic.request("POST", "/contexts/execute", body)
    assert (status, refused["reason"]) == (413, "TooLarge")
    assert "use a file" in refused["error"]


def test_hostile_results_do_no_harm(basic: Running) -> None:
    assert "raised ValueError" in value(run(basic, "class X:\n def __repr__(self): raise ValueError\nX()"))
    nan = run(basic, "class J:\n def _repr_json_(self): return {'a': float('nan'), 'b': [1]}\nJ()")
    assert nan[0]["data"]["application/json"] == {"a": None, "b": [1]}
    cycle = run(basic, "a = []\na.append(a)\nclass J:\n def _repr_json_(self): return a\nJ()")
    assert "application/json: can't be sent" in text(cycle, "notice")
    hung = run(basic, "class H:\n def __repr__(self):\n  while True: pass\nH()", timeout=0.3)
    assert (hung[-1]["status"], hung[-1]["stateLost"]) == ("timeout", False)


def test_a_forked_child_ends_with_its_cell(basic: Running) -> None:
    code = "import os\nprint('once')\nchild = os.fork()\nif child: os.waitpid(child, 0)\n"
    code += "else: print('in the child')\nchild > 0"
    events = run(basic, code)
    assert text(events) == "once\nin the child\n"
    assert value(events) == "True"
    assert [event["type"] for event in events].count("done") == 1
    pool = (
        "import multiprocessing as m\nwith m.get_context('fork').Pool(2) as p: squares = p.map(abs, [-1, -2])\nsquares"
    )
    assert value(run(basic, pool)) == "[1, 2]"


def test_await_and_tasks_go_on_between_executions(basic: Running) -> None:
    run(basic, "import asyncio\ntask = asyncio.ensure_future(asyncio.sleep(0.05, 'bg'))")
    assert value(run(basic, "await task")) == "'bg'"
    assert run(basic, "await asyncio.sleep(60)", timeout=0.2)[-1]["status"] == "timeout"
    assert value(run(basic, "await asyncio.sleep(0.01, 7)")) == "7"


def test_what_heeds_no_interrupt_is_killed(basic: Running) -> None:
    code = "import time\nwhile True:\n try: time.sleep(0.1)\n except BaseException: pass"
    error, done = run(basic, code, timeout=0.2)
    assert (error["name"], done["status"], done["stateLost"]) == ("ContextDied", "timeout", True)
    assert value(run(basic, "1")) == "1"


def test_who_leaves_interrupts_and_state_stays(basic: Running) -> None:
    run(basic, "count = 0")
    connection = basic.connect()
    body = {"context": "python", "execution": "e9", "code": "print('begun', flush=True)\nwhile True: pass"}
    connection.request("POST", "/contexts/execute", json.dumps(body), {"content-type": "application/json"})
    answer = connection.getresponse()
    while b"begun" not in answer.readline():
        pass
    assert connection.sock is not None
    connection.sock.shutdown(2)
    connection.close()
    assert value(run(basic, "count")) == "0"


def test_a_context_ends_with_all_that_it_started(basic: Running) -> None:
    code = "import subprocess\nsubprocess.Popen(['sleep', '1000'], start_new_session=True).pid"
    child = int(value(run(basic, code)))
    assert alive(child)
    assert basic.request("POST", "/contexts/delete", {"context": "python"})[0] == 200
    finished(lambda: not alive(child))


def test_a_fork_is_a_copy_that_outlives_its_original(basic: Running) -> None:
    run(basic, "import os\nx = [1]")
    status, copy = basic.request("POST", "/contexts/fork", {"context": "python", "name": "copy"})
    assert (status, copy["forkOf"], copy["state"]) == (201, "python", "idle")
    assert value(run(basic, "x.append(2); x", "copy")) == "[1, 2]"
    assert value(run(basic, "x")) == "[1]"
    first, second = value(run(basic, "os.getpid()")), value(run(basic, "os.getpid()", "copy"))
    basic.request("POST", "/contexts/delete", {"context": "python"})
    finished(lambda: not alive(int(first)))
    assert value(run(basic, "x", "copy")) == "[1, 2]"
    # A refusal ends nothing but the copy that it did not make.
    run(basic, "import threading, time\nthreading.Thread(target=time.sleep, args=(5,), daemon=True).start()", "copy")
    status, refused = basic.request("POST", "/contexts/fork", {"context": "copy", "name": "no"})
    assert status == 409
    assert "threads are running" in refused["reasons"][0]
    assert alive(int(second))
    assert alive(os.getpid())


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import socket; kept = socket.socket()", "a socket is open"),
        ("kept = open('/tmp/paddock-fork-test', 'w')", "open for writing"),
        ("import subprocess; kept = subprocess.Popen(['sleep', '30'])", "processes are running"),
        ("import asyncio; kept = asyncio.ensure_future(asyncio.sleep(30))", "pending on the event loop"),
    ],
)
def test_fork_is_refused_for_what_it_breaks(basic: Running, code: str, reason: str) -> None:
    run(basic, code)
    status, refused = basic.request("POST", "/contexts/fork", {"context": "python", "name": "copy"})
    assert (status, len(refused["reasons"])) == (409, 1)
    assert reason in refused["reasons"][0]
    assert basic.request("POST", "/contexts/fork", {"context": "python", "name": "copy", "force": True})[0] == 201


def completions(agent: Running, code: str, context: str = "python") -> tuple[int, list[str]]:
    status, answer = agent.request("POST", "/contexts/complete", {"context": context, "code": code})
    assert status == 200, answer
    return answer["replaced"], answer["matches"]


def test_live_names_complete_code_that_is_not_run(basic: Running) -> None:
    assert basic.request("POST", "/contexts/complete", {"context": "python", "code": "a"})[0] == 404
    run(basic, "class Name:\n alpha = alpine = 1\nvalue_of_mine = Name()")
    assert completions(basic, "1 + value_of") == (8, ["value_of_mine"])
    assert completions(basic, "print(value_of_mine.al") == (2, ["alpha", "alpine"])
    assert completions(basic, "no_such_name.x") == (1, [])
    run(basic, "class Loud:\n def __dir__(self):\n  print('loud')\n  return ['quiet']\nloud = Loud()")
    assert completions(basic, "loud.") == (0, ["quiet"])
    assert run(basic, "1")[-1]["count"] == 3
    run(basic, "class Hung:\n def __dir__(self):\n  while True: pass\nhung = Hung(); kept = 1")
    assert completions(basic, "hung.") == (0, [])
    assert value(run(basic, "kept")) == "1"


def test_a_completion_kills_no_interpreter(basic: Running, tmp_path: Path) -> None:
    end = tmp_path / "end"
    run(
        basic,
        "import os, signal, time\nclass Deaf:\n def __dir__(self):\n"
        "  handler = signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        f"  while not os.path.exists({str(end)!r}): time.sleep(0.01)\n"
        "  signal.signal(signal.SIGINT, handler)\n  return ['late']\ndeaf = Deaf(); state = 1",
    )
    assert completions(basic, "deaf.") == (0, [])
    busy = {"context": "python", "execution": "e1", "code": "state"}
    assert basic.request("POST", "/contexts/complete", {"context": "python", "code": "s"})[0] == 409
    assert basic.request("POST", "/contexts/execute", busy)[0] == 429
    end.touch()
    finished(lambda: basic.request("POST", "/contexts/complete", {"context": "python", "code": "s"})[0] == 200)
    assert value(run(basic, "state")) == "1"


def test_bash_completes_variables_commands_and_files(basic: Running, tmp_path: Path) -> None:
    (tmp_path / "a file").touch()
    run(basic, f"cd {tmp_path}; VALUE_OF_MINE=1; function_of_mine() {{ :; }}", "bash")
    assert completions(basic, "echo $VALUE_OF", "bash") == (9, ["$VALUE_OF_MINE"])
    assert completions(basic, "true; function_of", "bash") == (11, ["function_of_mine"])
    assert completions(basic, "cat a", "bash") == (1, ["a file"])
    assert completions(basic, "cat $(x';", "bash")[0] == 0
    assert text(run(basic, "echo $VALUE_OF_MINE", "bash")) == "1\n"


@pytest.mark.skipif(not shutil.which("node"), reason="no node on this host")
def test_node_completes_the_scope_and_properties(start: Start) -> None:
    agent = start(environment={"PATH": os.environ["PATH"]})
    run(agent, "const valueOfMine = { alpha: 1, get hung() { while (true); } }; let text = 'a'", "javascript")
    assert completions(agent, "1 + valueOf", "javascript") == (7, ["valueOfMine"])
    assert completions(agent, "valueOfMine.al", "javascript") == (2, ["alpha"])
    assert completions(agent, "valueOfMine.hung.", "javascript") == (0, [])
    assert completions(agent, "text.padS", "javascript") == (4, ["padStart"])


@pytest.mark.skipif(not shutil.which("node"), reason="no node on this host")
def test_node_completes_no_indices(start: Start) -> None:
    agent = start(environment={"PATH": os.environ["PATH"]})
    code = (
        "const bytes = Buffer.alloc(1e8), match = /a/.exec('a'), numbers = new Array(2e5).fill(0);"
        "const entries = Object.fromEntries(numbers.map((_, n) => ['entry' + n, n]));"
        "const proxy = new Proxy({}, { ownKeys() { while (true); } })"
    )
    run(agent, code, "javascript")
    assert completions(agent, "bytes.readDoubleL", "javascript") == (11, ["readDoubleLE"])
    assert completions(agent, "bytes.byteLen", "javascript") == (7, ["byteLength"])
    assert completions(agent, "match.gro", "javascript") == (3, ["groups"])
    assert completions(agent, "numbers.find", "javascript")[1] == ["find", "findIndex", "findLast", "findLastIndex"]
    assert completions(agent, "entries.entry77777", "javascript")[1][0] == "entry77777"
    assert completions(agent, "proxy.", "javascript") == (0, [])
    assert value(run(agent, "bytes.length", "javascript")) == "100000000"


@pytest.mark.skipif(not shutil.which("node"), reason="no node on this host")
def test_node_lets_go_of_results(start: Start) -> None:
    agent = start(environment={"PATH": os.environ["PATH"]})
    run(agent, "const result = new WeakRef({}); result.deref()", "javascript")
    collect = "require('v8').setFlagsFromString('--expose-gc'); require('vm').runInNewContext('gc')()"
    run(agent, collect, "javascript")
    assert value(run(agent, "result.deref() === undefined", "javascript")) == "true"


def test_bash_keeps_folder_variables_and_functions(basic: Running) -> None:
    run(basic, "cd /tmp; A=5; f() { echo fun $A; }", "bash")
    assert text(run(basic, "f; pwd", "bash")) == "fun 5\n/tmp\n"
    assert run(basic, "(exit 7)", "bash")[-1]["code"] == 7
    assert run(basic, "sleep 30; echo after", "bash", timeout=0.3)[-1]["status"] == "timeout"
    assert text(run(basic, "echo $A; yes | head -c 2", "bash")) == "5\ny\n"
    assert text(run(basic, "yes | head -c 2", "bash"), "stderr") == ""
    died = run(basic, "exit 3", "bash")[-1]
    assert (died["status"], died["exitCode"], died["stateLost"]) == ("died", 3, True)


_LATER = """
import pickle, sys, threading
sys.path.insert(0, sys.argv[1])
from paddock_kernel.later import loaded_later
errors = []
def use():
    try:
        from hashlib import sha1
        import ssl, lzma
        assert sha1(b"").digest_size == 20 and ssl.OPENSSL_VERSION and lzma.FORMAT_XZ
    except BaseException as error:
        errors.append(error)
with loaded_later():
    import asyncio, bz2
    unused = "bz2" in sys.modules and "_bz2" not in sys.modules
    threads = [threading.Thread(target=use) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    from bz2 import BZ2File
    from asyncio.sslproto import SSLProtocol
    assert bz2.BZ2File is BZ2File is pickle.loads(pickle.dumps(BZ2File))
assert unused and not errors, errors
import asyncio.sslproto, bz2, hashlib, lzma, ssl
assert asyncio.sslproto.SSLProtocol is SSLProtocol
for module in (asyncio.sslproto, bz2, hashlib, lzma, ssl):
    assert type(module) is type(sys) and sys.modules[module.__spec__.name] is module, module
"""


def test_modules_of_later_are_loaded_by_imports() -> None:
    kernels = Path(__file__).parents[2] / "images/agent/kernels"
    subprocess.run([sys.executable, "-S", "-c", _LATER, str(kernels)], check=True, timeout=60)


def test_code_imports_the_modules_themselves(basic: Running) -> None:
    code = (
        "import importlib, sys, bz2, hashlib, lzma, ssl\nmodules = [bz2, hashlib, lzma, ssl]\n"
        "all(type(m) is type(sys) and sys.modules[m.__spec__.name] is m and importlib.reload(m) is m for m in modules)"
    )
    assert value(run(basic, code)) == "True"


def test_executions_wait_for_each_other_in_a_bounded_queue(basic: Running) -> None:
    run(basic, "order = []")
    threads = [
        threading.Thread(target=run, args=(basic, f"import time; time.sleep(0.05); order.append({n})"))
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert value(run(basic, "len(order)")) == "4"


def forged(start: Start, tmp_path: Path, *lines: str) -> Running:
    """Start an agent whose Python is a program that answers the first execution with these lines."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "python3"
    said = "\n".join(f"printf '%s\\n' '{line}' >&5" for line in lines)
    ready = '{"id":null,"type":"ready","pid":1,"engine":"forged","version":"","reason":""}'
    program.write_text(f"#!/bin/sh\nprintf '%s\\n' '{ready}' >&5\nread -r line <&5\n{said}\nsleep 1000\n")
    program.chmod(0o755)
    return start(environment={"PATH": f"{folder}:{ENVIRONMENT['PATH']}"})


def test_events_of_a_replaced_kernel_are_checked(start: Start, tmp_path: Path) -> None:
    agent = forged(
        start,
        tmp_path,
        '{"id":99,"type":"stdout","text":"of another execution"}',
        '{"id":1,"type":"shell","text":"x"}',
        '{"id":1,"type":"result","main":true,"data":{"text/html\\n":"x"}}',
        '{"id":1,"type":"result","main":1,"data":{"text/plain":"x"}}',
        "not json",
        '{"id":1,"type":"done","count":-1}',
        '{"id":1,"type":"stdout","text":"good"}',
        '{"id":1,"type":"done","count":1}',
    )
    events = run(agent, "anything")
    assert [event["type"] for event in events] == ["stdout", "notice", "done"]
    assert events[1]["text"].startswith("6 events were dropped")


def test_a_kernel_that_ends_at_its_start_is_said(start: Start, tmp_path: Path) -> None:
    program = tmp_path / "python3"
    program.write_text("#!/bin/sh\necho no library >&2; exit 9\n")
    program.chmod(0o755)
    agent = start(environment={"PATH": f"{tmp_path}:{ENVIRONMENT['PATH']}"})
    status, refused = agent.request("POST", "/contexts", {"name": "a", "language": "python"})
    assert status == 503
    assert "ended at its start with exit code 9; its output: no library" in refused["error"]
    assert agent.request("GET", "/contexts")[1] == {"contexts": []}


def test_image_without_the_interpreter_is_an_error(start: Start, tmp_path: Path) -> None:
    agent = start(environment={"PATH": str(tmp_path)})
    status, refused = agent.request("POST", "/contexts", {"name": "a", "language": "javascript"})
    assert (status, refused["reason"]) == (422, "NoInterpreter")
    assert "the image has no `node` or `nodejs`" in refused["error"]


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"{",
        b"[" * 10_000,
        {"context": "python"},
        {"context": "python", "execution": "", "code": "1"},
        {"context": "python", "execution": "e", "code": "1", "env": {"A": 1}},
        {"context": "python", "execution": "e", "code": "1", "timeout": -1},
    ],
)
def test_bodies_of_another_form_are_refused(agent: Running, body: Any) -> None:
    assert agent.request("POST", "/contexts/execute", body)[0] == 400


def test_contexts_from_the_start_have_their_modules(start: Start) -> None:
    agent = start(environment=BASIC, contexts=[{"language": "python", "imports": ["colorsys", "no_such_module"]}])
    finished(lambda: agent.request("GET", "/contexts")[1]["contexts"][0]["state"] == "idle")
    assert value(run(agent, "'colorsys' in globals()")) == "True"


@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        ({"cpu.max": "150000 100000"}, 2),
        ({"cpu.max": "max 100000"}, 0),
        ({"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000"}, 1),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 0),
        ({}, 0),
    ],
)
def test_threads_are_as_many_as_processors(files: dict[str, str], cpus: int, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    assert cpus_of(str(tmp_path)) == cpus


def test_memory_is_taken_from_code_first(basic: Running) -> None:
    own = int(Path("/proc/self/oom_score_adj").read_text())  # the agent's, too
    assert int(value(run(basic, "int(open('/proc/self/oom_score_adj').read())"))) == min(own + 300, 1000)


def test_what_a_killed_supervisor_leaves_ends(basic: Running) -> None:
    start = "child = subprocess.Popen(['sleep', '1000'], start_new_session=True)"
    code = f"import os, subprocess\n{start}\nos.getpid(), child.pid, os.getppid()"
    kernel, child, supervisor = json.loads(value(run(basic, code)).replace("(", "[").replace(")", "]"))
    os.kill(supervisor, 9)
    finished(lambda: not alive(kernel) and not alive(child))
    assert value(run(basic, "1 + 1")) == "2"


def test_two_agents_end_nothing_of_each_other(start: Start) -> None:
    """Both have a context `python`, as two sandboxes do: what one kills is its own alone."""
    one, other = start(environment=BASIC), start(environment=BASIC)
    run(one, "kept = 1")
    run(other, "gone = 1")
    assert other.request("POST", "/contexts/fork", {"context": "python", "name": "copy"})[0] == 201
    assert other.request("POST", "/contexts/delete", {"context": "python"})[0] == 200  # its fork stays
    events = run(one, "print(kept)")
    assert [event["text"] for event in events if event["type"] == "stdout"] == ["1\n"]
