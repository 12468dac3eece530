"""Problems of a document and their positions: the one shape in which the CLI and the API report them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

Path = tuple[str | int, ...]
MOST_PROBLEMS = 100  # in the answer to one request
_MOST_LETTERS = {"file": 500, "field": 500, "message": 1500}  # quoted from the request

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z")
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]|\[([^\]]*)\]")


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem. `line` and `column` count from 1; 0 if there is no place in a file.

    Without `file` nobody wrote the text: the field tells the place, and the position only if there is no field.
    `reason` is Kubernetes' word for the cause (FieldValueInvalid, FieldValueRequired ...).
    """

    file: str
    line: int
    column: int
    field: str
    message: str
    reason: str = "FieldValueInvalid"

    @classmethod
    def of_request(cls, field: str, message: str) -> "Problem":
        """Return a problem of a request, which has no place in a file."""
        return cls(file="", line=0, column=0, field=field, message=message)

    def __post_init__(self) -> None:
        for name, most in _MOST_LETTERS.items():
            text: str = getattr(self, name)
            if len(text) > most:
                object.__setattr__(self, name, f"{text[: most - 3]}...")

    def __str__(self) -> str:
        place = self.file
        if self.line and (self.file or not self.field):
            place = f"{self.file or 'body'}:{self.line}:{self.column}"
        return ": ".join(text for text in (place, self.field, self.message) if text)


def bounded(problems: Sequence[Problem]) -> list[Problem]:
    """Return the first problems, and one that counts the rest."""
    listed = list(problems[:MOST_PROBLEMS])
    if len(problems) > MOST_PROBLEMS:
        listed.append(Problem.of_request("", f"and {len(problems) - MOST_PROBLEMS} more"))
    return listed


def field_text(path: Path) -> str:
    """Return a path as people write it: `spec.ports[0].name`, `metadata.labels[example.org/team]`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN_KEY.match(step):
            text += f".{step}" if text else step
        else:
            text += f"[{step}]"
    return text


def field_path(text: str) -> Path:
    """Return the path of that text; the inverse of `field_text`."""
    steps: list[str | int] = []
    for match in _STEP.finditer(text):
        name, index, key = match.groups()
        steps.append(int(index) if index is not None else (name or key or ""))
    return tuple(steps)
