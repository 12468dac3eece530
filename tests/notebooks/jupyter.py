"""Run groups of cells (JSON on stdin) in ipykernel, and write what Jupyter would show. Run by the lane's own Python."""

import json
import sys
from typing import Any

from jupyter_client.manager import KernelManager


def shown(client: Any, code: str) -> dict[str, Any]:
    document: dict[str, Any] = {"stdout": "", "stderr": "", "results": [], "error": ""}

    def take(message: dict[str, Any]) -> None:
        kind, content = message["msg_type"], message["content"]
        if kind == "stream":
            document[content["name"]] += content["text"]
        elif kind in ("execute_result", "display_data"):
            document["results"].append(content["data"])
        elif kind == "error":
            document["error"] = content["ename"]

    client.execute_interactive(code, output_hook=take, timeout=60, allow_stdin=False)
    return document


def main() -> None:
    answers: dict[str, list[dict[str, Any]]] = {}
    for name, cells in json.load(sys.stdin).items():
        manager = KernelManager(kernel_cmd=[sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"])
        manager.start_kernel()
        client = manager.client()
        client.start_channels()
        client.wait_for_ready(timeout=60)
        answers[name] = [shown(client, code) for code in cells]
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
