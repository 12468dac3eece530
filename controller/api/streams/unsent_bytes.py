"""How many of the bytes that were sent on a socket its other side has not read yet, by the kernel's word.

Of a Unix socket to the byte, by sock_diag(7): what its peer's queue holds. Where that can't be told (a peer in another
network namespace, a kernel without unix_diag), and over TCP, by SIOCOUTQ, which falls in steps of some 36 KiB: what was
sent and is not freed, or not acknowledged, yet.
"""

import array
import contextlib
import fcntl
import os
import socket
import struct

_SIOCOUTQ = 0x5411
_NETLINK_SOCK_DIAG = 4
_BY_FAMILY, _REQUEST = 20, 1
_PEER, _LENGTHS = 2, 4  # attributes of an answer; 1 shifted by them asks for them
_HEAD, _ASK, _ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct("=BBHIIIII"), struct.Struct("=HH")
_ANSWER_BYTES = 16 + 16  # the header, and what all answers begin with
_ANY = 0xFFFFFFFF


def unread(sock: socket.socket) -> int:
    """So many bytes; 0 where nobody can tell. Never waits."""
    try:
        if sock.family == socket.AF_UNIX:
            with contextlib.suppress(OSError, KeyError, struct.error):
                return _of_the_peer(os.fstat(sock.fileno()).st_ino)
        count = array.array("i", [0])
        fcntl.ioctl(sock.fileno(), _SIOCOUTQ, count)
        return count[0]
    except (OSError, ValueError):  # it was closed meanwhile
        return 0


def _of_the_peer(inode: int) -> int:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK, _NETLINK_SOCK_DIAG) as kernel:
        kernel.connect((0, 0))
        (peer,) = struct.unpack("=I", _asked(kernel, inode, _PEER))
        count: int = struct.unpack("=II", _asked(kernel, peer, _LENGTHS))[0]
        return count


def _asked(kernel: socket.socket, inode: int, attribute: int) -> bytes:
    """One attribute of a Unix socket. Raises OSError, KeyError or struct.error where it is not told."""
    question = _ASK.pack(socket.AF_UNIX, 0, 0, _ANY, inode, 1 << attribute, _ANY, _ANY)
    kernel.send(_HEAD.pack(_HEAD.size + len(question), _BY_FAMILY, _REQUEST, 0, 0) + question)
    answer, at = kernel.recv(4096), _ANSWER_BYTES
    if _HEAD.unpack_from(answer)[1] != _BY_FAMILY:
        raise KeyError("the kernel knows no such socket")
    while True:
        size, kind = _ATTRIBUTE.unpack_from(answer, at)
        if kind == attribute:
            return answer[at + _ATTRIBUTE.size : at + size]
        at += max(_ATTRIBUTE.size, (size + 3) & ~3)
