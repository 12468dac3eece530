"""Compose files of public projects, written anew from their features: a folder each, with what lies beside the file."""

from pathlib import Path

FOLDER = Path(__file__).parent / "public"
PROJECTS = tuple(sorted(folder.name for folder in FOLDER.iterdir() if folder.is_dir()))
# Accepted by nobody here: two networks that keep services apart; the engine's socket, a privileged service.
REFUSED = ("nginx-flask-mysql", "traefik-whoami")


def files_of(project: str) -> tuple[str, ...]:
    """Return the Compose files of a project, the one and then the one that overrides it."""
    names = ("compose.yaml", "docker-compose.yml", "compose.override.yaml")
    return tuple(str(FOLDER / project / name) for name in names if (FOLDER / project / name).exists())
