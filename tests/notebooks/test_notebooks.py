"""Cells of notebooks give what Jupyter gives: the same MIME types, values, output and errors as ipykernel.

Run by `make test-notebooks`, which has both kernels in an environment of its own (PADDOCK_NOTEBOOKS).
"""

import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.agent.conftest import ENVIRONMENT, Running, Start, start
from tests.notebooks.cells import GROUPS

__all__ = ["start"]
pytestmark = [pytest.mark.timeout(600)]
PLACE = os.environ.get("PADDOCK_NOTEBOOKS", "")
if not PLACE:
    pytest.skip("run `make test-notebooks`", allow_module_level=True)
_VOLATILE = re.compile(r"0x[0-9a-f]+|ipykernel_\d+|ipython-input-[^ >\"]*|kernel_\d+|In\s*\[\d+\]|id=\"[^\"]*\"|T_\w+")
_OWN = "application/vnd.paddock."
# Cells with a part that differs on purpose.
DIFFERENT = {"import sys; sys.exit(3)": "stderr"}  # Jupyter also advises how to leave the notebook


@pytest.fixture(scope="module")
def jupyter() -> Mapping[str, list[dict[str, Any]]]:
    script = Path(__file__).with_name("jupyter.py")
    done = subprocess.run(
        [f"{PLACE}/bin/python", str(script)], input=json.dumps(GROUPS), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def shown(agent: Running, code: str) -> dict[str, Any]:
    body = {"context": "python", "language": "python", "execution": "e", "code": code}
    agent.connection.request("POST", "/contexts/execute", json.dumps(body), {"content-type": "application/json"})
    events = [json.loads(line) for line in agent.connection.getresponse().read().splitlines()]
    found: dict[str, Any] = {"stdout": "", "stderr": "", "results": [], "error": ""}
    for event in events:
        if event["type"] in ("stdout", "stderr"):
            found[event["type"]] += event["text"]
        elif event["type"] == "result":
            found["results"].append({mime: value for mime, value in event["data"].items() if not mime.startswith(_OWN)})
        elif event["type"] == "error":
            found["error"] = event["name"]
    return found


def plain(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is compared: types and plain text of the results, output, the error's name."""
    results = [
        {mime: _VOLATILE.sub("?", value) if mime == "text/plain" else "" for mime, value in sorted(data.items())}
        for data in found["results"]
    ]
    texts = {name: _VOLATILE.sub("?", found[name]).replace("\r\n", "\n") for name in ("stdout", "stderr")}
    if texts["stderr"]:
        texts["stderr"] = "something"
    return {"results": results, "error": found["error"], **texts}


@pytest.mark.parametrize("group", GROUPS)
def test_cells_give_what_jupyter_gives(group: str, start: Start, jupyter: Mapping[str, list[dict[str, Any]]]) -> None:
    agent = start(environment={"PATH": f"{PLACE}/bin:{ENVIRONMENT['PATH']}", "HOME": os.environ["HOME"]})
    differing: list[str] = []
    for code, theirs in zip(GROUPS[group], jupyter[group], strict=True):
        ours, expected = plain(shown(agent, code)), plain(theirs)
        if part := DIFFERENT.get(code):
            ours.pop(part)
            expected.pop(part)
        if "plotly" in code:  # it finds no notebook around it, and adds HTML, which every viewer shows
            for bundle in ours["results"]:
                bundle.pop("text/html", None)
        if ours != expected:
            differing.append(f"{code!r}\n  ours:    {str(ours)[:600]}\n  jupyter: {str(expected)[:600]}")
    assert not differing, f"{len(differing)} of {len(GROUPS[group])} cells differ:\n" + "\n".join(differing)


def test_ipython_completes_live_names(start: Start) -> None:
    agent = start(environment={"PATH": f"{PLACE}/bin:{ENVIRONMENT['PATH']}", "HOME": os.environ["HOME"]})
    shown(agent, "import json, sys\nvalue_of_mine = 'a'")

    def complete(code: str) -> set[str]:
        status, answer = agent.request("POST", "/contexts/complete", {"context": "python", "code": code})
        assert status == 200, answer
        return {code[: len(code) - answer["replaced"]] + match for match in answer["matches"]}

    assert complete("1 + value_of") == {"1 + value_of_mine"}
    assert complete("value_of_mine.casef") == {"value_of_mine.casefold"}
    assert "%timeit" in complete("%timei")
    assert shown(agent, "{'jedi', 'ssl', '_hashlib'} & set(sys.modules)")["results"][0]["text/plain"] == "set()"
    assert shown(agent, "import ssl, hashlib, asyncio; asyncio.sslproto.SSLProtocol.__name__")["error"] == ""
