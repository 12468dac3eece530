"""`POST /mcp/execute`: tools without JSON-RPC."""

from tests.agent.conftest import Running


def test_a_tool_by_name(agent: Running) -> None:
    answer = agent.tool("exec", command="echo out; echo err >&2; exit 3")
    assert answer == {
        "success": False,
        "output": "out\n",
        "error": "err\n",
        "exitCode": 3,
        "result": answer["result"],
    }
    assert answer["result"]["stdoutBytes"] == 4


def test_a_tool_use_runs_its_tools_in_order(agent: Running) -> None:
    tools = [
        {"tool": "file.write", "parameters": {"path": "a", "content": "1"}},
        {"name": "file.read", "input": {"path": "a"}},
        "exec.list",
        "exec",
    ]
    context = {"exec": {"command": ["cat", "a"]}}
    metadata = {"agentType": "coding", "provider": "anthropic", "model": "x"}
    body = {"type": "tool_use", "tools": tools, "context": context, "metadata": metadata}
    status, answer = agent.request("POST", "/mcp/execute", body)
    assert status == 200
    assert answer["success"] is True
    assert answer["exitCode"] == 0
    assert [entry["tool"] for entry in answer["result"]] == ["file.write", "file.read", "exec.list", "exec"]
    assert answer["result"][3]["result"]["stdout"] == "1"


def test_arguments_in_one_string_are_split_as_a_shell_does(agent: Running) -> None:
    command = {"command": "printf", "args": "'%s|' 'two words' three"}
    answer = agent.request("POST", "/mcp/execute", {"tool": "exec", "parameters": command})[1]
    assert (answer["success"], answer["output"]) == (True, "two words|three|")
    answer = agent.request("POST", "/mcp/execute", {"tool": "exec", "parameters": {**command, "args": "'open"}})[1]
    assert (answer["success"], answer["error"]) == (False, "args: no closing quotation; close it, or send a list")


def test_the_first_failure_is_the_last_step(agent: Running) -> None:
    tools = [
        {"tool": "file.read", "parameters": {"path": "none"}},
        {"tool": "exec", "parameters": {"command": "touch x"}},
    ]
    answer = agent.request("POST", "/mcp/execute", {"type": "tool_use", "tools": tools})[1]
    assert answer["success"] is False
    assert answer["error"] == "none: no such file or folder"
    assert len(answer["result"]) == 1
    assert not (agent.root / "x").exists()


def test_bad_bodies_are_refused_in_words(agent: Running) -> None:
    for body in (
        b"{",
        [],
        {"tool": 1},
        {"type": "tool_use", "tools": []},
        {"type": "tool_use", "tools": ["x"], "context": 1},
    ):
        status, answer = agent.request("POST", "/mcp/execute", body)
        assert status == 400
        assert answer["success"] is False
        assert answer["error"]


def test_bad_arguments_are_reported_at_once(agent: Running) -> None:
    error = agent.tool("exec", command=[], timeout_s="soon", nothing=1)["error"]
    assert error.count("\n") == 2
    assert "nothing: is unknown" in error
    assert "timeout_s: must be number" in error
    assert agent.tool("nothing")["error"].startswith("nothing: no such tool")
