"""Commands: output, time-outs, background, and that nothing survives its end."""

import json

import pytest

from tests.agent.conftest import Running, Start, finished


def gone(agent: Running, mark: str) -> bool:
    """Return if no process has MARK in its command line."""
    return agent.tool("exec", command=["pgrep", "-f", mark])["exitCode"] == 1


def test_words_a_line_and_args_are_three_ways(agent: Running) -> None:
    assert agent.tool("exec", command=["echo", "a b", "$HOME"])["output"] == "a b $HOME\n"
    assert agent.tool("exec", command="echo a | tr a b")["output"] == "b\n"
    assert agent.tool("exec", command="echo", args=["a  b"])["output"] == "a  b\n"


def test_stdin_environment_and_folder(agent: Running) -> None:
    (agent.root / "src").mkdir()
    answer = agent.tool("exec", command="cat; echo $X; pwd", stdin="in\n", env={"X": "1"}, cwd="src")
    assert answer["output"] == f"in\n1\n{agent.root}/src\n"
    assert agent.tool("exec", command=["cat"])["output"] == ""
    assert agent.tool("exec", command=["wc", "-c"], stdin="x" * 1_000_000)["output"] == "1000000\n"
    assert agent.tool("exec", command=["cat"], stdin_base64="AAE=")["output"] == "\0\x01"


def test_the_environment_says_where_it_runs(start: Start) -> None:
    agent = start(project="shop", level="isolated", environment={"LANG": "C", "PADDOCK_AGENT": "{}"})
    answer = dict(line.split("=", 1) for line in agent.tool("exec", command=["env"])["output"].splitlines())
    assert answer == {
        "LANG": "C",
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "MCP_MODE": "sandbox",
        "MCP_ENABLED": "true",
        "MCP_PROJECT_ID": "shop",
        "MCP_SECURITY_LEVEL": "isolated",
    }


def test_a_command_that_does_not_exist(agent: Running) -> None:
    answer = agent.tool("exec", command=["no-such-program"])
    assert answer["exitCode"] == 127
    assert answer["error"] == "no-such-program: not found; is it installed in this image?"
    assert "outside the workspace" in agent.tool("exec", command=["true"], cwd="/etc")["error"]


def test_a_signal_shows_as_exit_code(agent: Running) -> None:
    answer = agent.tool("exec", command="kill -SEGV $$")
    assert answer["exitCode"] == 139
    assert answer["result"]["signal"] == "SIGSEGV"


def test_signals_and_descriptors_are_as_new(agent: Running) -> None:
    # Signals 32 and 33 are glibc's own: posix_spawn leaves them ignored.
    output = agent.tool("exec", command=["sh", "-c", "grep -E '^Sig(Ign|Blk|Cgt)' /proc/self/status; ls /proc/$$/fd"])[
        "output"
    ]
    assert [int(line.split()[1], 16) & 0x7FFFFFFF for line in output.splitlines()[:3]][:2] == [0, 0]
    assert output.split("\n", 3)[3] == "0\n1\n2\n"


@pytest.mark.parametrize(
    "escape",
    ["sleep 99", "setsid sleep 99; true", "env -i sleep 99", "(setsid sh -c 'sleep 99 & sleep 99' &) ; sleep 99"],
)
def test_a_timeout_ends_every_descendant(agent: Running, escape: str) -> None:
    mark = "99.0" + str(agent.port)
    answer = agent.tool("exec", command=escape.replace("99", mark), timeout_s=0.3)
    assert answer["error"] == "timeout of 0.3 s"
    assert answer["exitCode"] == 137
    assert gone(agent, mark)


def test_silence_ends_a_command(agent: Running) -> None:
    answer = agent.tool("exec", command="echo x; sleep 99", idle_timeout_s=0.2)
    assert answer["error"] == "no output for 0.2 s"
    assert answer["result"]["stdout"] == "x\n"


def test_what_a_command_leaves_behind_lives_on(agent: Running) -> None:
    answer = agent.tool("exec", command="sleep 77 & echo $!")
    assert answer["success"]
    assert agent.tool("exec", command=["kill", answer["output"].strip()])["success"]


def test_much_output_keeps_its_head_and_tail(agent: Running) -> None:
    answer = agent.tool("exec", command="echo first; head -c 10000000 /dev/zero | tr '\\0' x; echo; echo last")
    result = answer["result"]
    assert result["stdoutBytes"] == 10_000_000 + 12
    assert result["truncated"] is True
    assert result["stdout"].startswith("first\nx")
    assert result["stdout"].endswith("x\nlast\n")
    assert "bytes left out ...]" in result["stdout"]
    assert len(result["stdout"]) < 300_000


@pytest.mark.parametrize("byte", ["\\001", "\\377", "\\042"])
def test_messages_stay_small_however_they_escape(agent: Running, byte: str) -> None:
    line = f"head -c 3000000 /dev/zero | tr '\\0' '{byte}' | tee /dev/stderr"
    answer = agent.modern("tools/call", {"name": "exec", "arguments": {"command": line}})[1]
    assert len(json.dumps(answer, ensure_ascii=False).encode()) <= 900 * 1024
    assert answer["result"]["structuredContent"]["stdoutBytes"] == 3_000_000


def test_background_execs_are_asked_and_killed(agent: Running) -> None:
    name = agent.tool("exec", command="echo begun; sleep 99", background=True)["result"]["id"]
    finished(lambda: agent.tool("exec.get", id=name)["result"]["stdout"] == "begun\n")
    assert [entry["id"] for entry in agent.tool("exec.list")["result"]["execs"]] == [name]
    assert agent.tool("exec.kill", id=name)["result"]["running"] is False
    answer = agent.tool("exec.get", id=name)
    assert answer["exitCode"] == 137
    assert answer["error"] == "exec.kill"
    assert "has ended already" in agent.tool("exec.kill", id=name)["error"]
    assert "no such exec" in agent.tool("exec.get", id="exec-99")["error"]


def test_a_signal_reaches_the_command(agent: Running) -> None:
    line = "trap 'echo caught; exit 5' TERM; echo ready; while :; do sleep 0.02; done"
    name = agent.tool("exec", command=line, background=True)["result"]["id"]
    finished(lambda: "ready" in agent.tool("exec.get", id=name)["result"]["stdout"])
    agent.tool("exec.kill", id=name, signal="TERM")
    answer = agent.tool("exec.get", id=name, wait_s=30)
    assert answer["exitCode"] == 5
    assert answer["result"]["stdout"].endswith("caught\n")


def test_a_caller_that_leaves_ends_its_command(agent: Running) -> None:
    mark = "98.0" + str(agent.port)
    connection = agent.connect()
    body = json.dumps({"tool": "exec", "parameters": {"command": f"touch started; setsid sleep {mark}; true"}})
    connection.request("POST", "/mcp/execute", body, {"content-type": "application/json"})
    finished((agent.root / "started").exists)
    connection.close()
    finished(lambda: gone(agent, mark))


def test_only_so_many_run_at_once(start: Start) -> None:
    agent = start(max_execs=2)
    for _ in range(2):
        assert agent.tool("exec", command="sleep 99", background=True)["success"]
    assert agent.tool("exec", command="true")["error"].startswith("2 execs are running")


def test_build_and_test_run_their_commands(start: Start) -> None:
    agent = start(build=["echo", "built"])
    assert agent.tool("build", args=["x"])["output"] == "built x\n"
    assert agent.tool("test")["error"] == "this sandbox has no test command: set `template.agent.test`"
