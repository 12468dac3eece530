"""Admission of a Workflow: its graph, its names, its references to values, and the sandbox of its runs."""

import re
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from controller.kinds.sandbox import SandboxSpec
from controller.kinds.workflow import AgentStage, Stage, WorkflowSpec
from controller.policy import sandbox
from controller.policy.exec_paths import folder_refused, program_refused
from controller.policy.levels.levels import Policy
from controller.policy.refusal import Refusal

TOOLS = ("exec", "file.list", "file.read", "file.write", "git")
"""Tools that an agent stage may list."""
ANSWER = "answer"
"""The output that every agent stage has."""
_REFERENCE = re.compile(r"\$\(([^()]*)\)")
_COMMAND_REFERENCE = re.compile(r"\$\((?!\()")  # `$((` is arithmetic of the shell
_SCRIPT_BYTES = 120 << 10  # execve(2) takes 128 KiB in one argument
_RUN_FIELDS = ("name", "namespace", "uid")
_NOT_FOR_RUNS: Mapping[str, str] = {
    "run_state": "a run's sandbox runs as long as the run does; remove it",
    "restart_policy": "a run's sandbox is restarted whenever it ends; remove it",
}


def admit(spec: WorkflowSpec, policy: Policy) -> tuple[Refusal, ...]:
    """Return every reason to refuse a workflow."""
    return tuple(admit_at(spec, policy, "spec"))


def admit_at(spec: WorkflowSpec, policy: Policy, at: str) -> Iterator[Refusal]:
    """Yield every reason to refuse a workflow that stands at that path."""
    if spec.sandbox is not None:
        yield from _sandbox(spec.sandbox, policy, f"{at}.sandbox")
    yield from _repeated([parameter.name for parameter in spec.parameters], f"{at}.parameters", "parameter")
    yield from _names(spec, at)
    yield from _graph(spec.stages, f"{at}.stages")
    before = ancestors(spec)
    for place, stage in placed(spec):
        yield from _stage(spec, stage, before[stage.name], f"{at}.{place}")
    for number, stage in enumerate(spec.finally_):
        if stage.after is not None:
            message = "`finally` stages run one after the other; remove `after`, and write them in their order"
            yield Refusal(f"{at}.finally[{number}].after", message)


def placed(spec: WorkflowSpec) -> Iterator[tuple[str, Stage]]:
    """Yield each stage with its path below the workflow."""
    for field, stages in (("stages", spec.stages), ("finally", spec.finally_)):
        for number, stage in enumerate(stages):
            yield f"{field}[{number}]", stage


def dependencies(stages: Sequence[Stage]) -> dict[str, tuple[str, ...]]:
    """Return the names that each stage waits for: those that it says, else the stage before it."""
    by_stage: dict[str, tuple[str, ...]] = {}
    previous: tuple[str, ...] = ()
    for stage in stages:
        by_stage[stage.name] = previous if stage.after is None else stage.after
        previous = (stage.name,)
    return by_stage


def ancestors(spec: WorkflowSpec) -> dict[str, frozenset[str]]:
    """Return the stages that have succeeded before each one begins; for `finally` stages, all that may have."""
    direct = dependencies(spec.stages)
    by_stage: dict[str, frozenset[str]] = {}
    for name in direct:
        visited: set[str] = set()
        queue = list(direct[name])
        while queue:
            stage_name = queue.pop()
            if stage_name not in visited and stage_name in direct:
                visited.add(stage_name)
                queue += direct[stage_name]
        by_stage[name] = frozenset(visited - {name})
    every = frozenset(direct)
    return by_stage | {stage.name: every for stage in spec.finally_}


def expand(text: str, values: Mapping[str, str]) -> str:
    """Return the text with each `$(NAME)` replaced; one without a value becomes empty."""
    return _REFERENCE.sub(lambda match: values.get(match[1], ""), text)


def values_of(
    parameters: Mapping[str, str], outputs: Mapping[str, Mapping[str, str]], run: Mapping[str, str]
) -> dict[str, str]:
    """Return what references stand for, by their text."""
    by_reference = {f"parameters.{name}": value for name, value in parameters.items()}
    by_reference |= {f"run.{name}": value for name, value in run.items()}
    for stage, texts in outputs.items():
        by_reference |= {f"stages.{stage}.outputs.{name}": value for name, value in texts.items()}
    return by_reference


def _sandbox(spec: SandboxSpec, policy: Policy, at: str) -> Iterator[Refusal]:
    for refusal in sandbox.admit(spec, policy):
        yield Refusal(at + refusal.field.removeprefix("spec"), refusal.message)
    for field, message in _NOT_FOR_RUNS.items():
        if getattr(spec, field) != SandboxSpec.model_fields[field].default:
            alias = SandboxSpec.model_fields[field].alias or field
            yield Refusal(f"{at}.{alias}", message)


def _names(spec: WorkflowSpec, at: str) -> Iterator[Refusal]:
    places: dict[str, str] = {}
    artifacts: dict[str, str] = {}
    for place, stage in placed(spec):
        if stage.name in places:
            message = f"`{stage.name}` is also the name of {places[stage.name]}; give each stage a name of its own"
            yield Refusal(f"{at}.{place}.name", message)
        places.setdefault(stage.name, place)
        if stage.copy_ is None:
            continue
        name = stage.copy_.artifact
        if name in artifacts:
            message = f"`{name}` is also the artifact of stage `{artifacts[name]}`; give each a name of its own"
            yield Refusal(f"{at}.{place}.copy.artifact", message)
        artifacts.setdefault(name, stage.name)


def _repeated(names: Sequence[str], at: str, what: str) -> Iterator[Refusal]:
    for number, name in enumerate(names):
        if name in names[:number]:
            yield Refusal(f"{at}[{number}].name", f"{what} `{name}` is written twice; keep one")


def _graph(stages: Sequence[Stage], at: str) -> Iterator[Refusal]:
    names = {stage.name for stage in stages}
    for number, stage in enumerate(stages):
        for place, name in enumerate(stage.after or ()):
            where = f"{at}[{number}].after[{place}]"
            if name not in names:
                listed = ", ".join(other_stage.name for other_stage in stages if other_stage is not stage) or "none"
                yield Refusal(where, f"`{name}` is not a stage of this workflow; the others are {listed}")
            elif name == stage.name:
                yield Refusal(where, "a stage can't wait for itself; remove it")
    yield from _cycle(stages, at)


def _cycle(stages: Sequence[Stage], at: str) -> Iterator[Refusal]:
    """Yield a refusal of stages that wait for each other. Of a name that is written twice, the first counts."""
    by_name = {stage.name: stage for stage in reversed(stages)}
    waits = {
        name: tuple(predecessor for predecessor in after if predecessor in by_name and predecessor != name)
        for name, after in dependencies([stage for stage in stages if stage is by_name[stage.name]]).items()
    }
    try:
        TopologicalSorter(waits).prepare()
    except CycleError as error:
        chain = list(reversed(error.args[1]))
        first = next(number for number, stage in enumerate(stages) if stage.name in chain)
        message = f"these stages wait for each other: {' after '.join(chain)}; remove one `after`"
        yield Refusal(f"{at}[{first}].after", message)


def _stage(spec: WorkflowSpec, stage: Stage, before: frozenset[str], at: str) -> Iterator[Refusal]:
    """Yield the refusals of one stage. `before` are the stages that it may refer to, `at` is its path in the spec."""
    yield from _repeated([output.name for output in stage.outputs], f"{at}.outputs", "output")
    if stage.exec is not None:
        for number, command in enumerate(stage.exec.commands or ()):
            if _COMMAND_REFERENCE.search(command):
                message = (
                    "`$(...)` is not replaced in commands, so that no value becomes a script; pass it as a variable"
                )
                example = '`env: [{name: REF, value: $(parameters.ref)}]` and "$REF"'
                message = f"{message}: {example} (backquotes run a command of the shell)"
                yield Refusal(f"{at}.exec.commands[{number}]", message)
        for number, variable in enumerate(stage.exec.env):
            yield from _references(spec, before, variable.value, f"{at}.exec.env[{number}].value")
        if (
            sum(len(command.encode(errors="surrogatepass")) + 1 for command in stage.exec.commands or ())
            > _SCRIPT_BYTES
        ):
            message = (
                f"they are longer than {_SCRIPT_BYTES} bytes together; put a script into the sandbox, and run that"
            )
            yield Refusal(f"{at}.exec.commands", message)
        # The engine would refuse it in the middle of the run.
        if stage.exec.command and (reason := program_refused(stage.exec.command[0])):
            yield Refusal(f"{at}.exec.command[0]", reason)
        if reason := folder_refused(stage.exec.working_dir or ""):
            yield Refusal(f"{at}.exec.workingDir", reason)
    if stage.agent is not None:
        yield from _agent(spec, stage.agent, before, f"{at}.agent")
        if any(output.name == ANSWER for output in stage.outputs):
            yield Refusal(f"{at}.outputs", f"`{ANSWER}` is the agent's own output; use another name")


def _agent(spec: WorkflowSpec, agent: AgentStage, before: frozenset[str], at: str) -> Iterator[Refusal]:
    yield from _references(spec, before, agent.instructions, f"{at}.instructions")
    for number, tool in enumerate(agent.tools):
        if tool not in TOOLS:
            yield Refusal(f"{at}.tools[{number}]", f"`{tool}` is not a tool of agent stages; use {', '.join(TOOLS)}")


def _references(spec: WorkflowSpec, before: frozenset[str], text: str, at: str) -> Iterator[Refusal]:
    """Yield a refusal for each `$(...)` that stands for nothing."""
    parameters = {parameter.name for parameter in spec.parameters}
    stages = {stage.name: stage for _, stage in placed(spec)}
    for match in _REFERENCE.finditer(text):
        match match[1].split("."):
            case ["parameters", name]:
                if name not in parameters:
                    listed = ", ".join(sorted(parameters)) or "none"
                    yield Refusal(at, f"`{match[0]}` names no parameter; declared are {listed}")
            case ["run", field] if field in _RUN_FIELDS:
                continue
            case ["stages", name, "outputs", output]:
                yield from _output(stages, before, name, output, at)
            case _:
                advice = "write $(parameters.NAME), $(stages.STAGE.outputs.NAME) or $(run.name)"
                yield Refusal(at, f"`{match[0]}` stands for nothing; {advice}")


def _output(stages: Mapping[str, Stage], before: frozenset[str], name: str, output: str, at: str) -> Iterator[Refusal]:
    stage = stages.get(name)
    if stage is None:
        yield Refusal(at, f"`{name}` is not a stage of this workflow; the stages are {', '.join(stages)}")
        return
    if name not in before:
        yield Refusal(at, f"stage `{name}` need not have ended by then; add it to `after`")
    outputs = [output.name for output in stage.outputs] + ([ANSWER] if stage.agent is not None else [])
    if output not in outputs:
        listed = ", ".join(outputs) or "none"
        yield Refusal(at, f"stage `{name}` has no output `{output}`; its outputs are {listed}")
