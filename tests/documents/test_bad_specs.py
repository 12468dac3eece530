"""Bad specs and what is said of them: bad_specs/NAME.yaml beside bad_specs/NAME.txt, one message a line.

To accept new wording, run with PADDOCK_ACCEPT=1 and read the difference before it is committed.
"""

import os
from pathlib import Path

import pytest

from controller.documents.document import find_duplicates, parse
from controller.kinds.registry import discover

FOLDER = Path(__file__).parent / "bad_specs"
SPECS = sorted(FOLDER.glob("*.yaml"))


def said_of(path: Path) -> str:
    with path.open(newline="") as file:
        documents, problems = parse(path.name, file.read(), discover())
    return "".join(f"{problem}\n" for problem in [*problems, *find_duplicates(documents)])


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_a_bad_spec_is_refused_with_this_message(path: Path) -> None:
    expected = path.with_suffix(".txt")
    output = said_of(path)
    if os.environ.get("PADDOCK_ACCEPT"):
        expected.write_text(output)
    assert output, "nothing was found wrong"
    assert output == expected.read_text()


def test_there_is_a_corpus_and_every_expectation_has_its_spec() -> None:
    assert len(SPECS) >= 60
    assert {path.stem for path in FOLDER.glob("*.txt")} == {spec.stem for spec in SPECS}
