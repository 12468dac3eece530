"""The README's table is the registry's. Run this module to write it."""

from pathlib import Path

from controller.mcp.tools.registry import TOOLS

README = Path(__file__).resolve().parents[2] / "controller/mcp/README.md"
MARK = "<!-- tools -->\n"


def table() -> str:
    rows = []
    for each in TOOLS.values():
        changes = "" if each.read_only else "yes"
        rows.append(
            f"| `{each.name}` | {each.role} | {changes} | {each.description.partition('. ')[0].rstrip('.')} |\n"
        )
    return "".join(rows)


def test_the_readme_has_every_tool() -> None:
    head, mark, tail = README.read_text().partition(MARK)
    assert mark, "the place of the table is marked"
    assert head.endswith(table()), "run `python -m tests.mcpserver.test_documentation` to write it"
    assert tail


if __name__ == "__main__":
    text = README.read_text()
    before, _, after = text.partition(MARK)
    begin = before.index("|---|---|---|---|\n") + len("|---|---|---|---|\n")
    README.write_text(before[:begin] + table() + MARK + after)
