"""`paddock why`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from controller.cli.client import connect
from controller.cli.errors import CliError
from controller.cli.objects.kinds import Kinds
from controller.cli.options import DEFAULT_NAMESPACE, namespace_option
from controller.cli.text.output import columns, json_text, say, yaml_text

_VERDICTS = {
    "AsAsked": "as desired",
    "Acting": "being reconciled",
    "Waiting": "waiting",
    "Refused": "refused",
    "Unknown": "in an unknown state",
    "NotSeenYet": "not reconciled yet",
}

_KINDS = ("Sandbox", "MCPServer")


@click.command("why")
@click.argument("what", nargs=-1, required=True, metavar="[KIND] NAME | KIND/NAME")
@namespace_option
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), help="Output format; default: text.")
@click.pass_context
def why_(ctx: click.Context, what: Sequence[str], namespace: str | None, output: str | None) -> None:
    """Explain the state of a sandbox, MCP server or workflow run: desired and observed state, and what it waits for.

    \b
    paddock why quickstart
    paddock why sandbox/quickstart -o yaml
    paddock why mcpserver/calculator
    """
    client = connect(ctx)
    object_words = [f"sandbox/{what[0]}"] if len(what) == 1 and "/" not in what[0] else list(what)
    targets = Kinds(client).targets(object_words)
    if len(targets) != 1 or len(targets[0].names) != 1:
        raise click.UsageError("name one sandbox, MCP server or workflow run")
    resource, name = targets[0].resource, targets[0].names[0]
    if resource.kind == "WorkflowRun":
        run = client.get(resource.path(namespace or DEFAULT_NAMESPACE, name))
        say((json_text if output == "json" else yaml_text)(run["status"]) if output else "\n".join(_run_lines(run)))
        return
    if resource.kind not in _KINDS:
        none = "no decisions are made for this kind; name a sandbox, an MCP server or a workflow run"
        raise CliError(f"{resource.kind}: {none}")
    explanation = client.get(f"{resource.path(namespace or DEFAULT_NAMESPACE, name)}/why")
    if output is not None:
        say((json_text if output == "json" else yaml_text)(explanation))
    else:
        say("\n".join(_lines(resource.kind, explanation)))


def _lines(kind: str, explanation: Mapping[str, Any]) -> Iterator[str]:
    metadata = explanation["metadata"]
    reason = "" if explanation["reason"] == explanation["verdict"] else f"{explanation['reason']}: "
    yield f"{kind.lower()}/{metadata['name']} is {_VERDICTS.get(explanation['verdict'], explanation['verdict'])}"
    yield f"  {reason}{explanation['message']}"
    if explanation["underWay"]:
        yield "  engine calls are in flight"
    if "until" in explanation:
        yield f"  next reconcile in {explanation['waitSeconds']:.0f} s ({explanation['until']}), or on the next event"
    yield from _facts(f"Desired (generation {metadata.get('generation', 1)}):", explanation["wanted"])
    yield from _facts("Observed:", explanation["seen"])
    yield from _facts("Recorded:", explanation["remembered"])
    if explanation["calls"]:
        yield "Engine calls:"
        yield from (f"  {call['call']}  # {call['why']}" for call in explanation["calls"])
    if explanation["events"]:
        yield "Events:"
        rows = [
            [event["lastTimestamp"], event["type"], event["reason"], event["message"]]
            for event in explanation["events"]
        ]
        yield _indent(columns(rows))


def _run_lines(run: Mapping[str, Any]) -> Iterator[str]:
    status = run.get("status", {})
    yield f"workflowrun/{run['metadata']['name']} is {status.get('phase', 'Pending')}"
    for condition in status.get("conditions", ()):
        yield f"  {condition['reason']}: {condition['message']}" if condition["message"] else f"  {condition['reason']}"
    rows = []
    for stage in status.get("stages", ()):
        message = " ".join(filter(None, (stage.get("reason", ""), stage.get("message", ""))))
        again = f" (attempt {stage['attempt']})" if stage["attempt"] > 1 else ""
        rows.append([stage["name"], f"{stage['state']}{again}", message])
    yield "Stages:"
    yield _indent(columns(rows))
    sandbox = status.get("sandboxRef", {}).get("name")
    if sandbox and status.get("phase") == "Running":
        yield f"`paddock why sandbox {sandbox}` explains its sandbox"


def _facts(title: str, facts: Sequence[Mapping[str, str]]) -> Iterator[str]:
    if facts:
        yield title
        yield _indent(columns([[fact["name"], fact["value"]] for fact in facts]))


def _indent(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
