"""Agent stages: a model that calls tools of the sandbox, in turns. The loop runs here, outside the sandbox.

Each turn is in the transcript before its tools run, and their results before the next turn. After a restart the loop
goes on from there: commands have ids of their own, so none runs twice; other tools do the same a second time.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from controller.kinds.runtime.files import FileRequest
from controller.kinds.sandbox import KIND as SANDBOX
from controller.kinds.workflow import OUTPUT_BYTES, AgentStage
from controller.kinds.workflowrun import StageEnd
from controller.policy.workflow import ANSWER
from controller.ports import ModelError, ModelMessage, ModelReply, ModelRequest, Models, StreamError, ToolCall, ToolSpec
from controller.service import errors
from controller.service.sandbox.files import SandboxFiles
from controller.service.workflow.files import RunFiles
from controller.service.workflow.stages import Attempt, Commands, Outputs, Released

RESULT_BYTES = 16 << 10  # of a tool's result that the model gets
_ANSWER_TOKENS = 8192
_TRIES, _PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 4, 2.0, 30.0
_CUT = "Your answer was cut off at its bound of tokens, and none of its calls was run. Go on in smaller steps."
_PATH = {"type": "string", "description": "an absolute path in the sandbox"}
_SYSTEM = (
    "You work in a sandbox, without a person to ask. Do the task with your tools, check the result, and then answer "
    "without calling a tool: that ends your work."
)
TOOL_SPECS: Mapping[str, ToolSpec] = {
    each.name: each
    for each in (
        ToolSpec(
            "exec",
            "Run a command of the shell in the sandbox; returns its exit code and output.",
            {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
        ),
        ToolSpec(
            "git",
            "Run git in the sandbox with these arguments.",
            {
                "type": "object",
                "properties": {"args": {"type": "array", "items": {"type": "string"}}},
                "required": ["args"],
            },
        ),
        ToolSpec(
            "file.read",
            "Return the content of a text file.",
            {"type": "object", "properties": {"path": _PATH}, "required": ["path"]},
        ),
        ToolSpec(
            "file.write",
            "Create or replace a text file; its folder is created if missing.",
            {
                "type": "object",
                "properties": {"path": _PATH, "content": {"type": "string"}},
                "required": ["path", "content"],
            },
        ),
        ToolSpec(
            "file.list",
            "List a folder.",
            {"type": "object", "properties": {"path": _PATH}, "required": ["path"]},
        ),
    )
}


class NoModels:
    """Models of a daemon without a gateway."""

    def complete(self, request: ModelRequest, *, seconds: float, stopped: Callable[[], bool]) -> ModelReply:  # noqa: ARG002
        """Raise ModelError."""
        raise ModelError(f"provider `{request.provider}` is not served by this daemon")


class _Stopped(Exception):
    """The attempt is to end."""


class AgentWorker:
    """Stages of agents."""

    def __init__(
        self, models: Models, commands: Commands, files: SandboxFiles, run_files: RunFiles, outputs: Outputs
    ) -> None:
        self._models, self._commands, self._files = models, commands, files
        self._run_files, self._outputs = run_files, outputs

    def work(self, attempt: Attempt) -> StageEnd:
        """Take turns until the model calls no tool, or a bound is reached."""
        agent_stage = attempt.stage.agent
        assert agent_stage is not None
        talk = _Talk(attempt, agent_stage, self._run_files)
        until = time.monotonic() + attempt.seconds
        try:
            while True:
                self._answer_calls(talk, until)
                if talk.answered:
                    return self._outputs.read(
                        attempt, StageEnd("Succeeded", message=talk.summary, outputs=talk.outputs)
                    )
                if over := talk.over(until):
                    return over
                talk.add_reply(self._reply(talk, until))
        except _Stopped:
            return StageEnd("Cancelled", reason="Cancelled", message="stopped on request")
        except ModelError as error:
            return StageEnd("Failed", reason="ModelFailed", message=str(error), repeatable=error.again)

    def _reply(self, talk: "_Talk", until: float) -> ModelReply:
        """Ask the model; a request that may succeed later is repeated a few times, a limited one while there is time.

        The pause is the one that the provider asks for, or doubles. One that is longer than the stage may take fails.
        """
        attempt, failures, pause = talk.attempt, 0, _PAUSE_SECONDS
        while True:
            try:
                seconds = max(1.0, until - time.monotonic())
                return self._models.complete(talk.request(), seconds=seconds, stopped=lambda: _ends(attempt))
            except ModelError as error:
                _check(attempt)
                failures += not error.limited
                wait = max(error.retry_after, pause)
                if not error.again or failures >= _TRIES or time.monotonic() + wait >= until:
                    raise
            _pause(attempt, wait)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _answer_calls(self, talk: "_Talk", until: float) -> None:
        """Run the tools that the last turn called and that have no result yet."""
        for number, call in talk.open_calls():
            _check(talk.attempt)
            result = self._call(talk, call, number, until)
            talk.add_result(call, result)

    def _call(self, talk: "_Talk", call: ToolCall, number: int, until: float) -> str:
        if call.name not in talk.asked.tools:
            return f"error: `{call.name}` is not one of your tools; they are {', '.join(talk.asked.tools) or 'none'}"
        try:
            match call.name:
                case "exec":
                    return self._exec(talk, ("sh", "-c", _text(call, "command")), number, until)
                case "git":
                    args = call.arguments.get("args")
                    if not isinstance(args, list) or not all(isinstance(argument, str) for argument in args):
                        return "error: `args` must be a list of texts"
                    return self._exec(talk, ("git", *args), number, until)
                case "file.read":
                    return self._read(talk.attempt, _text(call, "path"))
                case "file.write":
                    return self._write(talk.attempt, _text(call, "path"), _text(call, "content"))
                case "file.list":
                    return self._list(talk.attempt, _text(call, "path"))
        except (ValueError, StreamError, errors.ServiceError) as error:
            return f"error: {error}"
        return f"error: `{call.name}` is not served"

    def _exec(self, talk: "_Talk", command: tuple[str, ...], number: int, until: float) -> str:
        attempt, folder = talk.attempt, talk.asked.working_dir or ""
        id_ = f"{attempt.id}.{talk.turns}-{number}"
        seconds = max(1.0, until - time.monotonic())
        try:
            command_end = self._commands.run(attempt, id_, command, env={}, working_dir=folder, seconds=seconds)
        except errors.BadRequest:  # longer than the sandbox allows any command
            command_end = self._commands.run(attempt, id_, command, env={}, working_dir=folder, seconds=None)
        _check(attempt)
        output = self._commands.output(id_).decode("utf-8", "replace")
        state = f"exit code {command_end.exit_code}" if command_end.state == "Exited" else command_end.state
        return _cut(f"{state}\n{output}")

    def _read(self, attempt: Attempt, path: str) -> str:
        work = self._files.begin(
            SANDBOX, attempt.run.obj.namespace, attempt.run.sandbox_name, FileRequest("read", path)
        )
        try:
            work.result()
            data = b""
            while len(data) <= RESULT_BYTES and (piece := work.receive()):
                data += piece
        finally:
            work.close()
        return _cut(data.decode("utf-8", "replace"))

    def _write(self, attempt: Attempt, path: str, content: str) -> str:
        self._done(attempt, FileRequest("write", path, parents=True), content.encode("utf-8", "replace"))
        return "written"

    def _list(self, attempt: Attempt, path: str) -> str:
        listing = self._done(attempt, FileRequest("list", path))
        lines = [f"{entry['type']} {entry['size']} {entry['name']}" for entry in listing.get("items", ())]
        return _cut("\n".join(lines) or "(empty)")

    def _done(self, attempt: Attempt, ask: FileRequest, data: bytes | None = None) -> dict[str, Any]:
        work = self._files.begin(SANDBOX, attempt.run.obj.namespace, attempt.run.sandbox_name, ask)
        try:
            if data is not None:
                work.send(data)
                work.end()
            return work.result()
        finally:
            work.close()


class _Talk:
    """The conversation of one attempt, as its transcript has it."""

    def __init__(self, attempt: Attempt, agent_stage: AgentStage, files: RunFiles) -> None:
        self.attempt, self.asked, self._files = attempt, agent_stage, files
        self._lines = files.transcript(attempt.key, attempt.stage.name, attempt.number)
        if not self._lines:
            self._add({"role": "user", "text": attempt.expand(agent_stage.instructions)})

    @property
    def turns(self) -> int:
        """The number of the model's answers."""
        return sum(line["role"] == "assistant" for line in self._lines)

    @property
    def tokens(self) -> tuple[int, int]:
        """The tokens of all prompts, and of all answers."""
        prompts = sum(line.get("promptTokens", 0) for line in self._lines)
        return prompts, sum(line.get("completionTokens", 0) for line in self._lines)

    @property
    def answered(self) -> bool:
        """True once the last answer calls no tool. One that was cut off is followed by a request to go on."""
        last = self._lines[-1]
        return last["role"] == "assistant" and not last["calls"] and not last.get("cut")

    @property
    def summary(self) -> str:
        prompt, completion = self.tokens
        return f"{self.turns} turns, {prompt + completion} tokens"

    @property
    def outputs(self) -> dict[str, str]:
        text = self._lines[-1]["text"].encode("utf-8", "replace")[:OUTPUT_BYTES]
        return {ANSWER: text.decode("utf-8", "ignore")}

    def over(self, until: float) -> StageEnd | None:
        """Return the end of an attempt that has used up its turns, tokens or time."""
        _check(self.attempt)
        agent_stage, token_count = self.asked, sum(self.tokens)
        if self.turns >= agent_stage.max_turns:
            message = f"the model still called tools after {agent_stage.max_turns} turns (maxTurns)"
            return StageEnd("Failed", reason="MaxTurns", message=message, repeatable=False)
        if token_count >= agent_stage.max_tokens:
            message = f"the model used {token_count} tokens of at most {agent_stage.max_tokens} (maxTokens)"
            return StageEnd("Failed", reason="MaxTokens", message=message, repeatable=False)
        if time.monotonic() >= until:
            message = f"it did not end within {self.attempt.seconds:g} s (timeoutSeconds)"
            return StageEnd("Failed", reason="TimedOut", message=message)
        return None

    def request(self) -> ModelRequest:
        """Return the conversation so far as a request."""
        tokens_left = self.asked.max_tokens - sum(self.tokens)
        return ModelRequest(
            namespace=self.attempt.run.obj.namespace,
            provider=self.asked.provider,
            model=self.asked.model,
            messages=[_message(line) for line in self._lines],
            system=_SYSTEM,
            tools=tuple(TOOL_SPECS[name] for name in self.asked.tools if name in TOOL_SPECS),
            max_tokens=max(1, min(tokens_left, _ANSWER_TOKENS)),
            run=self.attempt.run.obj.name,
        )

    def open_calls(self) -> list[tuple[int, ToolCall]]:
        """Return the calls of the last turn without a result, with their numbers in it."""
        places = [at for at, line in enumerate(self._lines) if line["role"] == "assistant"]
        if not places:
            return []
        done = {line["callId"] for line in self._lines[places[-1] + 1 :] if line["role"] == "tool"}
        calls = [ToolCall(**call) for call in self._lines[places[-1]]["calls"]]
        return [(number, call) for number, call in enumerate(calls) if call.id not in done]

    def add_reply(self, reply: ModelReply) -> None:
        """Save an answer of the model. Calls of one answer get ids of their own, whatever it says."""
        calls = [
            asdict(ToolCall(f"call-{self.turns}-{at}", call.name, call.arguments))
            for at, call in enumerate(reply.calls)
        ]
        tokens = {"promptTokens": reply.prompt_tokens, "completionTokens": reply.completion_tokens}
        line = {"role": "assistant", "text": reply.text, "calls": calls, **tokens}
        self._add(*([{**line, "cut": True}, {"role": "user", "text": _CUT}] if reply.cut else [line]))

    def add_result(self, call: ToolCall, text: str) -> None:
        """Save the result of a call."""
        self._add({"role": "tool", "callId": call.id, "tool": call.name, "text": text})

    def _add(self, *lines: Mapping[str, Any]) -> None:
        self._files.add_to_transcript(self.attempt.key, self.attempt.stage.name, self.attempt.number, lines)
        self._lines += [json.loads(json.dumps(line)) for line in lines]


def _message(line: Mapping[str, Any]) -> ModelMessage:
    calls = tuple(ToolCall(**call) for call in line.get("calls", ()))
    return ModelMessage(line["role"], line.get("text", ""), calls, line.get("callId", ""))


def _ends(attempt: Attempt) -> bool:
    return attempt.stopping or attempt.released


def _check(attempt: Attempt) -> None:
    if attempt.released:
        raise Released
    if attempt.stopping:
        raise _Stopped


def _pause(attempt: Attempt, seconds: float) -> None:
    """Wait, unless the attempt is to end."""
    until = time.monotonic() + seconds
    while (seconds_left := until - time.monotonic()) > 0:
        _check(attempt)
        attempt.changed.wait(seconds_left)
        attempt.changed.clear()
    _check(attempt)


def _text(call: ToolCall, name: str) -> str:
    argument = call.arguments.get(name)
    if not isinstance(argument, str) or not argument:
        raise ValueError(f"`{name}` must be a text")
    return argument


def _cut(text: str) -> str:
    """Return head and tail of a long text."""
    if len(text) <= RESULT_BYTES:
        return text
    half = RESULT_BYTES // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"


def transcript_text(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return a transcript as a log for people."""
    text_lines = []
    for line in lines:
        head = line["role"] if line["role"] != "tool" else f"tool {line.get('tool', '')}"
        text_lines.append(f"[{head}] {line.get('text', '')}".rstrip())
        text_lines += [f"[call] {call['name']} {json.dumps(call['arguments'])}" for call in line.get("calls", ())]
    return "".join(f"{text_line}\n" for text_line in text_lines)
