"""A stored MCPServer with its spec parsed."""

from dataclasses import dataclass

from controller.kinds.mcpserver import MCPServerSpec
from controller.kinds.meta import StoredObject


@dataclass(frozen=True, slots=True)
class Server:
    """A stored server with its spec parsed: with the image and command of its package, once that is installed."""

    obj: StoredObject
    spec: MCPServerSpec

    @property
    def key(self) -> tuple[str, int]:
        """The server at its generation: a changed spec is another key."""
        return self.obj.uid, self.obj.generation

    def __str__(self) -> str:
        return f"mcpserver `{self.obj.name}`"
