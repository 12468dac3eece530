"""`paddock workflow`: start runs of workflows, follow and cancel them, fetch their artifacts."""

import sys
from pathlib import Path
from typing import Any

import click

from controller.cli.calls.workflows import WorkflowRuns
from controller.cli.client import connect
from controller.cli.options import DEFAULT_NAMESPACE, DURATION, Group, namespace_option, raw_option
from controller.cli.text.output import columns, note, say

_INTERRUPTED = 130  # exit code after Ctrl-C


@click.group("workflow", cls=Group)
def workflow_() -> None:
    """Run workflows: stages of commands, agents and copies in one sandbox.

    `paddock get workflowruns` lists runs, `paddock describe workflowrun NAME` shows one with its events.

    \b
    paddock workflow run build -p ref=v1 --wait --output ./out
    paddock workflow logs -f build-1a2b3c
    """


@workflow_.command("run")
@click.argument("name")
@namespace_option
@click.option("-p", "--parameter", "parameters", multiple=True, metavar="NAME=VALUE", help="A parameter. Repeatable.")
@click.option("--name", "run_name", default="", metavar="NAME", help="Name of the run. [default: a new one]")
@click.option("--sandbox", default="", metavar="NAME", help="Run in this sandbox, which stays.")
@click.option("--wait", is_flag=True, help="Show the progress, and wait until it has ended; exit code 1 if it failed.")
@click.option("--output", "output", default="", metavar="DIR", help="With --wait: unpack its artifacts there.")
@click.option("--timeout", type=DURATION, metavar="DURATION", help="With --wait: how long to wait. [default: for ever]")
@click.option(
    "--keep-sandbox", type=click.Choice(["Never", "OnFailure", "Always"]), help="Overrides that of the workflow."
)
@click.pass_context
def run(ctx: click.Context, /, name: str, namespace: str | None, **options: Any) -> None:
    """Start a run of a workflow, and print its name."""
    from controller.cli import workflow

    if (options["output"] or options["timeout"]) and not options["wait"]:
        raise click.UsageError("--output and --timeout need --wait; add it")
    spec: dict[str, Any] = {
        "workflowRef": {"name": name},
        "parameters": workflow.parameters_of(options["parameters"]),
    }
    spec |= {"sandboxRef": {"name": options["sandbox"]}} if options["sandbox"] else {}
    spec |= {"keepSandbox": options["keep_sandbox"]} if options["keep_sandbox"] else {}
    runs = _runs(ctx, namespace)
    created = runs.create(options["run_name"] or workflow.run_name(name), spec)
    run_name = created["metadata"]["name"]
    say(f"workflowrun/{run_name} created")
    if not options["wait"]:
        note(f"follow it: paddock workflow logs -f {run_name}")
        return
    try:
        ended_run = workflow.follow(runs, run_name, options["timeout"])
    except KeyboardInterrupt:
        run_address = run_name if runs.namespace == DEFAULT_NAMESPACE else f"{run_name} -n {runs.namespace}"
        note(f"workflowrun/{run_name} goes on without this command")
        note(f"look at it: paddock describe workflowrun {run_address}")
        note(f"follow it: paddock workflow logs -f {run_address}")
        note(f"cancel it: paddock workflow cancel {run_address}")
        ctx.exit(_INTERRUPTED)
    if options["output"]:
        workflow.download_all(runs, run_name, Path(options["output"]))
    ctx.exit(workflow.exit_code(ended_run))


@workflow_.command("logs")
@click.argument("name")
@click.argument("stage", required=False, default="")
@namespace_option
@click.option("-f", "--follow", is_flag=True, help="Follow it until the run has ended.")
@raw_option
@click.pass_context
def logs(ctx: click.Context, name: str, stage: str, namespace: str | None, follow: bool, raw: bool) -> None:
    """Show the output of a run's stages, or of one."""
    from controller.cli.text.terminal_filter import Output
    from controller.cli.workflow import follow_logs

    with Output(sys.stdout.buffer, raw=raw) as out:
        follow_logs(_runs(ctx, namespace), name, stage, out, to_end=follow)


@workflow_.command("cancel")
@click.argument("name")
@namespace_option
@click.pass_context
def cancel(ctx: click.Context, name: str, namespace: str | None) -> None:
    """Cancel a run: stop its stages, then do its `finally` stages."""
    from controller.cli.workflow import cancel_run

    cancel_run(_runs(ctx, namespace), name)
    say(f"workflowrun/{name} cancelled")


@workflow_.command("artifacts")
@click.argument("name")
@click.argument("artifact", nargs=-1)
@namespace_option
@click.option("--output", "output", default="", metavar="DIR", help="Unpack them there, each into its own folder.")
@click.pass_context
def artifacts(ctx: click.Context, name: str, artifact: tuple[str, ...], namespace: str | None, output: str) -> None:
    """List the artifacts of a run, or unpack them."""
    from controller.cli.workflow import download_all, file_bytes

    runs = _runs(ctx, namespace)
    if output:
        download_all(runs, name, Path(output), artifact)
        return
    listed = [
        listed_artifact
        for listed_artifact in runs.artifacts(name)
        if not artifact or listed_artifact["name"] in artifact
    ]
    rows = [
        [
            listed_artifact["name"],
            listed_artifact["stage"],
            str(len(listed_artifact["files"])),
            str(file_bytes(listed_artifact)),
        ]
        for listed_artifact in listed
    ]
    say(columns([["NAME", "STAGE", "FILES", "BYTES"], *rows]))


def _runs(ctx: click.Context, namespace: str | None) -> WorkflowRuns:
    return WorkflowRuns(connect(ctx), namespace or DEFAULT_NAMESPACE)
