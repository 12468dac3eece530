"""Outputs of commands that were longer than their answers: kept in memory for a while, to be read as resources."""

import secrets
import threading
from collections import OrderedDict
from dataclasses import dataclass

_MOST_OUTPUTS = 64
_MOST_BYTES = 8 << 20  # of all together


@dataclass(frozen=True, slots=True)
class KeptOutput:
    """The output of one command in a sandbox."""

    namespace: str
    name: str
    text: str


class Outputs:
    """The latest outputs by id; older ones make room. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_id: OrderedDict[str, KeptOutput] = OrderedDict()
        self._bytes = 0

    def keep(self, namespace: str, name: str, text: str) -> str:
        """Keep an output; return the URI of its resource."""
        output_id = secrets.token_hex(8)
        with self._lock:
            self._by_id[output_id] = KeptOutput(namespace, name, text)
            self._bytes += len(text)
            while self._bytes > _MOST_BYTES or len(self._by_id) > _MOST_OUTPUTS:
                _, oldest = self._by_id.popitem(last=False)
                self._bytes -= len(oldest.text)
        return f"sandbox://{namespace}/{name}/output/{output_id}"

    def find(self, namespace: str, name: str, output_id: str) -> str | None:
        """Return the output of a command in that sandbox; None if it is not kept."""
        with self._lock:
            output = self._by_id.get(output_id)
        return output.text if output is not None and (output.namespace, output.name) == (namespace, name) else None
