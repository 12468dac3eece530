"""A listener on this host whose connections end at a port in a container's network, entered with setns(2).

Run as root: relay.py PID PORT. The first line of its output is the listener's port.
"""

import asyncio
import ctypes
import os
import socket
import sys

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


async def _serve(listener: socket.socket, port: int) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_copy(reader, back), _copy(there, writer))

    server = await asyncio.start_server(connected, sock=listener)
    print(listener.getsockname()[1], flush=True)
    await server.serve_forever()


def main() -> None:
    pid, port = sys.argv[1:]
    listener = socket.create_server(("127.0.0.1", 0))  # of this host: a socket keeps its network
    namespace = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(namespace, _CLONE_NEWNET) != 0:
        raise SystemExit(f"the network of process {pid} can't be entered: {os.strerror(ctypes.get_errno())}")
    asyncio.run(_serve(listener, int(port)))


if __name__ == "__main__":
    main()
