"""Manifests of plugins: foreign files, read as strictly as any spec."""

from pathlib import Path

import pytest

from controller.cli.errors import CliError
from controller.cli.plugin import read_manifest

MANIFEST = (
    "name: p\nversion: '1.0'\ntype: tool\nobjects: [{kind: SandboxTemplate, metadata: {name: t}, spec: {image: x}}]\n"
)
LAUGHS = "".join(f"l{at}: &l{at} [{', '.join([f'*l{at - 1}' if at else 'ha'] * 9)}]\n" for at in range(12))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (MANIFEST + LAUGHS, "more than 400,000 values"),
        (MANIFEST + "author: a\nauthor: b\n", "author"),
        (MANIFEST + "author: !!python/object/apply:os.system [id]\n", "python"),
        (MANIFEST + "---\nname: q\n", "must hold one manifest"),
        ("[" * 5000, "nested"),
        (MANIFEST + "main: index.js\npermissions: [docker.access]\n", "no plugin gets the engine"),
    ],
)
def test_tricks_in_a_manifest_are_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "plugin.yaml").write_text(text)
    with pytest.raises(CliError, match=words):
        read_manifest(str(tmp_path))


def test_values_are_those_of_a_spec(tmp_path: Path) -> None:
    (tmp_path / "plugin.yaml").write_text(MANIFEST + "description: 2024-01-01\nauthor: yes\n")
    found = read_manifest(str(tmp_path))["spec"]
    assert (found["description"], found["author"]) == ("2024-01-01", "yes")
