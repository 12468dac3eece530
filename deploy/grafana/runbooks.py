"""Dashboard of the runbooks: deploy/prometheus/README.md, one panel an alert."""

import re
from pathlib import Path

from deploy.grafana.panels import Row, Text, make

_PAGE = Path(__file__).parents[1] / "prometheus" / "README.md"
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")
_SUBJECTS = (
    ("Paddock", "Paddock and its host"),
    ("Sandbox", "Sandboxes"),
    ("Pool", "Pools"),
    ("Quota", "Quotas"),
    ("Provider", "Providers"),
)


def runbooks() -> str:
    """Build the dashboard of the runbooks."""
    about = "What to do when an alert fires. The text is that of deploy/prometheus/README.md."
    found = texts()
    rows = tuple(
        Row(title, [Text(name, text, width=8, height=5) for name, text in found.items() if name.startswith(beginning)])
        for beginning, title in _SUBJECTS
    )
    return make("paddock-runbooks", "Paddock / Runbooks", about, rows, ())


def texts() -> dict[str, str]:
    """Return the runbook of each alert as markdown, without links: they lead into the repository."""
    page = _PAGE.read_text().partition("\n## Runbooks\n")[2].partition("\n## ")[0]
    parts = re.split(r"^### (\w+)$", page, flags=re.MULTILINE)
    return {name: _LINK.sub(r"\1", text).strip() for name, text in zip(parts[1::2], parts[2::2], strict=True)}
