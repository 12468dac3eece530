"""`paddock create`."""

from collections.abc import Sequence

import click

from controller.cli.options import DEFAULT_NAMESPACE, files_option, namespace_option

_SANDBOX_WORDS = ("sandbox", "sandboxes", "sb")


@click.command("create")
@click.argument("what", nargs=-1, metavar="[sandbox NAME [-- COMMAND ...]]", type=click.UNPROCESSED)
@files_option
@namespace_option
@click.option("--dry-run", type=click.Choice(["none", "client"]), default="none", help="client: only validate.")
@click.option("--image", default="", metavar="IMAGE", help="Of a new sandbox.  [default: paddock/python:1]")
@click.option("--template", default="", metavar="NAME", help="Of a new sandbox: a SandboxTemplate.")
@click.option("--level", default="", metavar="NAME", help="Of a new sandbox: its security level.")
@click.pass_context
def create_(
    ctx: click.Context,
    what: Sequence[str],
    files_: Sequence[str],
    recursive: bool,
    namespace: str | None,
    dry_run: str,
    image: str,
    template: str,
    level: str,
) -> None:
    """Create objects from files, or one sandbox; what exists is refused. `apply` creates and changes.

    \b
    paddock create -f specs/quickstart.yaml
    paddock create sandbox web --image paddock/python:1
    """
    if what and files_:
        raise click.UsageError("-f names the objects; leave the words out")
    if not what:
        if image or template or level:
            raise click.UsageError("no name given; write `paddock create sandbox NAME`")
        from controller.cli.objects.written import write

        write(ctx, files_, recursive=recursive, namespace=namespace, replace=False, only_check=dry_run == "client")
        return
    if what[0] not in _SANDBOX_WORDS or len(what) < 2:
        raise click.UsageError(f"`{what[0]}` can't be created by its name; write sandbox NAME, or -f FILE")
    if image and template:
        raise click.UsageError("--template and --image exclude each other; give one")
    if dry_run != "none":
        raise click.UsageError("--dry-run is for files; leave it out")
    from controller.cli.runs.run import SandboxRequest, create_sandbox
    from controller.cli.text.output import say

    request = SandboxRequest(name=what[1], image=image, template=template, level=level)
    create_sandbox(ctx, namespace or DEFAULT_NAMESPACE, request, what[2:])
    say(f"sandbox.paddock/{what[1]} created")
