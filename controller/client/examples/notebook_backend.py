"""A notebook backend: run a notebook's cells in a sandbox, save what they show, and branch off to try another way.

    python notebook_backend.py NOTEBOOK.ipynb [CODE]

The results go into the notebook's file, as Jupyter saves them: texts, tables, pictures, errors. CODE runs in a copy of
the interpreter with all variables; the notebook's own state stays as it is. Charts need image="paddock/data:1".
"""

import json
import sys
from pathlib import Path
from typing import Any

from paddock import Context, Execution, Paddock


def outputs(execution: Execution) -> list[dict[str, Any]]:
    """Return what a cell showed, in the notebook's format."""
    entries: list[dict[str, Any]] = []
    for name, text in (("stdout", execution.logs.stdout), ("stderr", execution.logs.stderr)):
        if text:
            entries.append({"output_type": "stream", "name": name, "text": text})
    for result in execution.results:
        entry: dict[str, Any] = {
            "output_type": "display_data",
            "data": dict(result.data),
            "metadata": dict(result.metadata),
        }
        if result.main:  # the value of the last expression
            entry |= {"output_type": "execute_result", "execution_count": execution.count}
        entries.append(entry)
    if (error := execution.error) is not None:
        lines = error.traceback.splitlines()
        entries.append({"output_type": "error", "ename": error.name, "evalue": error.value, "traceback": lines})
    return entries


def run_all(context: Context, notebook: dict[str, Any]) -> bool:
    """Run the cells in order, until one fails; return True if none did."""
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            # A notebook's text is one string, or a list of lines.
            execution = context.run("".join(cell["source"]), timeout=120)
            cell |= {"outputs": outputs(execution), "execution_count": execution.count}
            if not execution.ok:
                return False
    return True


def main(path: Path, code: str) -> int:
    """Run the notebook, then the code in a branch; return the exit code."""
    notebook = json.loads(path.read_text())
    with Paddock() as paddock, paddock.sandboxes.create(image="paddock/python:1", lifetime=3600) as sandbox:
        context = sandbox.contexts.create("python")
        passed = run_all(context, notebook)
        path.write_text(json.dumps(notebook, indent=1) + "\n")
        print(f"{path.name}: {'passed' if passed else 'failed'}")
        if passed and code:
            branch = context.fork()
            print(f"branch: {branch.run(code, timeout=120, check=True).text}")
            branch.delete()
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), "\n".join(sys.argv[2:])))
