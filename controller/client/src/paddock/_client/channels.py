"""Channels of a command's WebSocket (v5.channel.k8s.io): the first byte of a frame is its channel."""

from typing import Any

from paddock._client.errors import refusal

PROTOCOL = "v5.channel.k8s.io"
STDIN, STDOUT, STDERR, STATUS, RESIZE, SIGNAL = 0, 1, 2, 3, 4, 5
CLOSE_STDIN = b"\xff\x00"
STREAMS = {STDOUT: "stdout", STDERR: "stderr"}
PIECE_BYTES = 1 << 15  # of input, in one frame


def exit_code_of(status: Any) -> int:
    """Return the exit code in a final Status. Raises Refused if the command did not run."""
    if isinstance(status, dict) and status.get("status") == "Success":
        return 0
    code = causes_of(status).get("ExitCode")
    if code is None:
        raise refusal(status, int((status or {}).get("code", 500)))
    return int(code)


def causes_of(status: Any) -> dict[str, str]:
    """Return the messages by reason."""
    causes = (status or {}).get("details", {}).get("causes", [])
    return {str(cause.get("reason")): str(cause.get("message")) for cause in causes}
