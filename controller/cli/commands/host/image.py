"""`paddock image`: images of all hosts, or of one."""

import time
from collections.abc import Sequence
from datetime import datetime

import click

from controller.cli.calls.images import Images
from controller.cli.client import connect
from controller.cli.errors import CliError
from controller.cli.options import Group
from controller.cli.text.output import columns, json_text, note, say, say_table, without, yaml_text
from controller.cli.text.progress import image_work


@click.group("image", cls=Group)
def image_() -> None:
    """List, pull, build, push and delete images.

    The list is that of all hosts. The others work on the host of the daemon that is asked, unless --host names one.
    """


_host = click.option("--host", default="", metavar="NAME", help="The host to do it on.  [default: the daemon's]")


@image_.command("list")
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", help="Format.")
@click.pass_context
def list_(ctx: click.Context, output: str) -> None:
    """List the images that you may use."""
    answer = Images(connect(ctx)).of_hosts()
    images, missing = answer["items"], answer.get("missing")
    if output != "table":
        say(json_text(images) if output == "json" else yaml_text(images))
        if message := without(missing, "images"):
            note(message)
        return
    from controller.kinds.common.quantity import format_bytes
    from controller.kinds.sandbox import age

    rows = [["IMAGE", *([] if missing is None else ["HOST"]), "ID", "SIZE", "AGE"]]
    for image in images:
        created_at = datetime.fromisoformat(image["createdTime"]).timestamp()
        size = format_bytes(-(-image["sizeBytes"] // (1 << 20)) << 20)
        short_id = image["id"].removeprefix("sha256:")[:12]
        host = [] if missing is None else [image.get("host", "-")]
        rows += [[name, *host, short_id, size, age(time.time() - created_at)] for name in image["names"]]
    say_table(columns(rows))
    if message := without(missing, "images"):
        note(message)


@image_.command("pull")
@click.argument("images", nargs=-1, required=True, metavar="IMAGE ...")
@_host
@click.pass_context
def pull(ctx: click.Context, images: Sequence[str], host: str) -> None:
    """Pull images that the operator allows; a newer one of the same tag, too.

    \b
    paddock image pull registry.example.org/team/tool:1
    """
    client = Images(connect(ctx))
    for image in images:
        with image_work(f"pulling {image}") as progress:
            pulled = client.pull(image, progress, host=host)
        say(f"{image} pulled{_digest(pulled)}")


@image_.command("push")
@click.argument("image")
@_host
@click.pass_context
def push(ctx: click.Context, image: str, host: str) -> None:
    """Push an image to the registry in its name, with the host's own login. Needs the role admin.

    The operator lists the registries (setting push_registries).
    """
    client = Images(connect(ctx))
    with image_work(f"pushing {image}") as progress:
        pushed = client.push(image, progress, host=host)
    say(f"{image} pushed{_digest(pushed)}")


@image_.command("build")
@click.argument("folder", default=".", type=click.Path(exists=True, file_okay=False))
@click.option("-t", "--tag", required=True, metavar="NAME:TAG", help="Name and tag of the image.")
@click.option("-f", "--file", "dockerfile", default="Dockerfile", show_default=True, help="Its path in FOLDER.")
@click.option("--build-arg", "arguments", multiple=True, metavar="NAME=VALUE", help="A build argument. Repeatable.")
@_host
@click.pass_context
def build(ctx: click.Context, folder: str, tag: str, dockerfile: str, arguments: Sequence[str], host: str) -> None:
    """Build an image from the Dockerfile in FOLDER. Needs the role admin, and the setting image_build.

    FOLDER is sent to the daemon, without what its .dockerignore leaves out. RUN needs `image_build = "run"`, and has no
    network. ADD and ONBUILD are refused; the bases must be images that the operator allows.

    \b
    paddock image build -t team/tool:1 .
    """
    pairs = [argument.partition("=") for argument in arguments]
    if not all(name and equals for name, equals, _ in pairs):
        raise click.UsageError("write each --build-arg as NAME=VALUE")
    values = {name: value for name, _, value in pairs}
    client = Images(connect(ctx))
    try:
        with image_work(f"building {tag}") as progress:
            built = client.build(tag, folder, dockerfile=dockerfile, arguments=values, host=host, progress=progress)
    except OSError as error:
        raise CliError(f"{folder}: {error.strerror}; name a folder that you can read") from error
    say(f"{tag} built ({built.get('id', '')})")


@image_.command("delete")
@click.argument("images", nargs=-1, required=True, metavar="IMAGE ...")
@_host
@click.pass_context
def delete(ctx: click.Context, images: Sequence[str], host: str) -> None:
    """Delete images, each by one of its names; one that a container uses stays. Needs the role admin."""
    client = Images(connect(ctx))
    for image in images:
        client.delete(image, host=host)
        say(f"{image} deleted")


def _digest(image: dict[str, list[str]]) -> str:
    digests = image.get("digests") or []
    return f" ({digests[0]})" if digests else ""
