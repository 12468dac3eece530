"""`paddock code`."""

import shutil
import subprocess
import sys
import webbrowser
from urllib.parse import quote

import click

from controller.cli.commands.inside.ssh import is_set_up, setup_
from controller.cli.errors import CliError
from controller.cli.options import DEFAULT_NAMESPACE, namespace_option, sandbox_name
from controller.cli.relays import ssh as ssh_client
from controller.cli.text.output import note, say

_FOLDER = "/workspace"
_PROGRAMS = {
    "vscode": ("code", "--folder-uri", "vscode-remote://ssh-remote+{host}{folder}"),
    "cursor": ("cursor", "--folder-uri", "vscode-remote://ssh-remote+{host}{folder}"),
    "zed": ("zed", "ssh://{host}{folder}"),
}
_GATEWAY = "jetbrains-gateway://connect#type=ssh&host={host}&port=22&user=sandbox&projectPath={folder}&deploy=true"


@click.command("code")
@click.argument("name")
@namespace_option
@click.option("--ide", type=click.Choice((*_PROGRAMS, "jetbrains")), default="vscode", show_default=True)
@click.option("--folder", default=_FOLDER, show_default=True, help="Folder in the sandbox to open.")
@click.option("--print", "only_print", is_flag=True, help="Print how to open it, and open nothing.")
@click.pass_context
def code_(ctx: click.Context, name: str, namespace: str | None, ide: str, folder: str, only_print: bool) -> None:
    """Open an editor in a sandbox. It runs on your machine, and its server in the sandbox, by SSH.

    Runs `paddock ssh setup` first if that was not done. The sandbox should be of the template `ide`
    (specs/templates/ide.yaml): editors need some memory, processes and a home that is kept.

    \b
    paddock code quickstart
    paddock code quickstart --ide zed
    """
    host = ssh_client.host_name(sandbox_name(name), namespace or DEFAULT_NAMESPACE)
    words = {"host": host, "folder": quote(folder)}
    if ide == "jetbrains":
        url = _GATEWAY.format(host=host, folder=quote(folder, safe=""))
        command = [url]
    else:
        program, *arguments = _PROGRAMS[ide]
        command = [program, *(argument.format(**words) for argument in arguments)]
    if only_print:
        say(" ".join(command))
        return
    if not is_set_up():
        ctx.invoke(setup_)
    if ide == "jetbrains":
        if not webbrowser.open(command[0]):
            say(command[0])
        return
    path = shutil.which(command[0])
    if path is None:
        raise CliError(
            f"{command[0]}: the program is not installed here; install it with its command line, or connect your editor"
            f" to the SSH host {host}"
        )
    note(f"Opening {host} in {ide}")
    sys.exit(subprocess.run([path, *command[1:]], check=False).returncode)
