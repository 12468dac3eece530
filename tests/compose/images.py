"""Stand-ins for the images that the public projects name: one image from Debian's packages, under each name."""

import re
import subprocess
from collections.abc import Iterator

from tests.compose.projects import FOLDER

BASE = "paddock-test/compose:1"
# What an image is, by a part of its name; all others are `app`, which answers HTTP. Settings are as the image has them.
_KINDS = (
    ("redis", "redis", ()),
    ("memcached", "memcached", ()),
    ("postgres", "postgres", ()),
    ("mariadb", "mariadb", ()),
    ("mysql", "mariadb", ()),
    ("nginx", "nginx", ()),
    ("mongo", "app", ("PORT=27017",)),
    ("rabbitmq", "app", ("PORT=5672",)),
    ("wordpress", "app", ("PORT=80", "NEEDS=db:3306")),
    ("nextcloud", "app", ("PORT=80",)),
    ("ghost", "app", ("PORT=2368",)),
    ("gitea", "app", ("PORT=3000",)),
    ("grafana", "app", ("PORT=3000",)),
)
# Folders that the real image declares as VOLUME, by a part of its name.
_VOLUMES = (
    ("redis", ("/data",)),
    ("postgres", ("/var/lib/postgresql/data",)),
    ("mariadb", ("/var/lib/mysql",)),
    ("mysql", ("/var/lib/mysql",)),
    ("mongo", ("/data/db", "/data/configdb")),
    ("rabbitmq", ("/var/lib/rabbitmq",)),
    ("wordpress", ("/var/www/html",)),
    ("nextcloud", ("/var/www/html",)),
    ("ghost", ("/var/lib/ghost/content",)),
    ("gitea", ("/data",)),
    ("minio/minio", ("/data",)),
    ("prom/prometheus", ("/prometheus",)),
    ("apache/kafka", ("/etc/kafka/secrets", "/var/lib/kafka/data", "/mnt/shared/config")),
)
_IMAGE = re.compile(r"^ +image: (\S+)$", re.MULTILINE)


def recipe(image: str) -> str:
    """Return the Dockerfile of a stand-in."""
    name = image.rpartition("/")[2]
    kind, settings = next(((kind, settings) for piece, kind, settings in _KINDS if piece in name), ("app", ()))
    lines = (f"ENV {setting}" for setting in (f"STAND_IN={kind}", f"NAME={name.partition(':')[0]}", *settings))
    volumes = (f"VOLUME {path}" for path in volumes_of(image))
    return "\n".join((f"FROM {BASE}", *lines, *volumes))


def volumes_of(image: str) -> tuple[str, ...]:
    """Return the folders that the real image declares as VOLUME."""
    return next((paths for piece, paths in _VOLUMES if piece in image), ())


def images_of(outcome: str) -> Iterator[str]:
    """Return the images that the sandboxes of a project name."""
    yield from dict.fromkeys(_IMAGE.findall(outcome))


def build(engine: str, image: str) -> None:
    """Build the stand-in of an image on an engine, where BASE is."""
    command = ["docker", "-H", engine, "build", "-q", "-t", image, "-"]
    subprocess.run(command, input=recipe(image).encode(), check=True, capture_output=True)


def all_images() -> tuple[str, ...]:
    """Return all images of the accepted projects, but for those that they build themselves."""
    outcomes = "".join(path.read_text() for path in sorted(FOLDER.glob("*.txt")))
    built = set(re.findall(r"compose up` builds (\S+)", outcomes))
    return tuple(image for image in images_of(outcomes) if image not in built)
