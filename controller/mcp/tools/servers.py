"""mcp.server.list: other people's MCP servers, with their state and how they are confined."""

from controller.kinds.mcpserver import KIND, is_sandboxed, ready_condition, state_word
from controller.mcp.arguments import Arguments, Result
from controller.mcp.sandboxes import Namespace
from controller.mcp.text import plain
from controller.mcp.tool import Call, Tool

_MOST_LISTED = 200


class ListArguments(Arguments):
    namespace: Namespace = ""


class ServerItem(Result):
    """One server. `isSandboxed` is false while a session of it runs as a user's own process."""

    name: str
    namespace: str
    state: str
    message: str
    trust: str
    tools: int | None
    isSandboxed: bool


class ServerList(Result):
    """Servers by name. `isDockerAvailable`: their sandboxes can be started. `more` are not listed."""

    items: list[ServerItem]
    isDockerAvailable: bool
    more: int = 0


async def list_(call: Call, arguments: ListArguments) -> ServerList:
    namespace = arguments.namespace or call.namespace
    call.require("list", KIND, namespace)
    servers = call.services.mcp_servers
    stored_servers = await call.thread(servers.list, namespace)
    items = [
        ServerItem(
            name=server.obj.name,
            namespace=server.obj.namespace,
            state=state_word(server.obj),
            message=plain(str(ready_condition(server.obj).get("message", ""))),
            trust=server.spec.trust,
            tools=server.obj.status.get("tools", {}).get("count"),
            isSandboxed=is_sandboxed(server.obj),
        )
        for server in stored_servers[:_MOST_LISTED]
    ]
    return ServerList(items=items, isDockerAvailable=not servers.unavailable(), more=len(stored_servers) - len(items))


TOOLS = (
    Tool(
        name="mcp.server.list",
        title="List MCP servers",
        description="Return other people's MCP servers of a namespace: their state, how many tools they have, and if"
        " they run in sandboxes. Their tools are at addresses of their own.",
        arguments=ListArguments,
        result=ServerList,
        run=list_,
        role="viewer",
        read_only=True,
    ),
)
