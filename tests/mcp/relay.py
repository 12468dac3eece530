"""A TCP listener for clients that know only URLs. The first line of its output is its port.

relay.py PID PORT      to a port in the network of a process, entered with setns(2) as root
relay.py PATH          to a Unix socket
"""

import asyncio
import ctypes
import os
import socket
import sys
from collections.abc import Awaitable, Callable

Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]
_CLONE_NEWNET = 0x40000000


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()  # one side has gone: the other must hear of it, for that cancels calls


async def _serve(listener: socket.socket, connect: Connect) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            stream_reader, back = await connect()
        except OSError:
            writer.close()
            return
        await asyncio.gather(_copy(reader, back), _copy(stream_reader, writer))

    server = await asyncio.start_server(connected, sock=listener)
    print(listener.getsockname()[1], flush=True)
    await server.serve_forever()


def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0))  # of this host: a socket keeps its network
    where, *port = sys.argv[1:]
    if not port:
        asyncio.run(_serve(listener, lambda: asyncio.open_unix_connection(where)))
        return
    namespace = os.open(f"/proc/{where}/ns/net", os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(namespace, _CLONE_NEWNET) != 0:
        raise SystemExit(f"the network of process {where} can't be entered: {os.strerror(ctypes.get_errno())}")
    asyncio.run(_serve(listener, lambda: asyncio.open_connection("127.0.0.1", int(port[0]))))


if __name__ == "__main__":
    main()
