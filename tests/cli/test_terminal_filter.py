"""Escape sequences in a sandbox's output: those that reach a terminal, for any chunking."""

import io
import itertools
import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.cli.text.terminal_filter import Output, TerminalFilter

ESC = b"\x1b"
# What each way of turning a terminal against its owner begins with, or is.
HOSTILE = {
    "title": b"\x1b]0;mine\x07",
    "title, ended by ST": b"\x1b]2;mine\x1b\\",
    "title of screen": b"\x1bkmine\x1b\\",
    "title, in C1": "\u009d0;mine\u009c".encode(),
    "writes the clipboard": b"\x1b]52;c;cm0gLXJm\x07",
    "reads the clipboard": b"\x1b]52;c;?\x07",
    "asks for a colour": b"\x1b]11;?\x07",
    "palette of Linux": b"\x1b]P0ff0000\n",
    "link": b"\x1b]8;;https://example.org\x1b\\",
    "DCS asks for a setting": b'\x1bP$q"p\x1b\\',
    "sixel": b"\x1bPq#0;2;0;0;0~-\x1b\\",
    "APC of kitty": b"\x1b_Gf=32,s=1;AAAA\x1b\\",
    "PM": b"\x1b^x\x1b\\",
    "SOS": b"\x1bXx\x1b\\",
    "device attributes": b"\x1b[c",
    "secondary attributes": b"\x1b[>0c",
    "tertiary attributes": b"\x1b[=c",
    "cursor position": b"\x1b[6n",
    "private status": b"\x1b[?6n",
    "asks for a mode": b"\x1b[?2004$p",
    "asks for the version": b"\x1b[>0q",
    "asks for the keyboard": b"\x1b[?u",
    "sets the keyboard": b"\x1b[>1u",
    "asks for a checksum of the screen": b"\x1b[1;1;1;1;24;80*y",
    "asks for the terminal's parameters": b"\x1b[x",
    "asks what it is": b"\x1bZ",
    "asks for its title": b"\x1b[21t",
    "makes it an icon": b"\x1b[2t",
    "resizes it": b"\x1b[8;1;1t",
    "prints": b"\x1b[5i",
    "lights": b"\x1b[1q",
    "locks the keyboard": b"\x1b[2h",
    "132 columns": b"\x1b[?3h",
    "VT52": b"\x1b[?2l",
    "mouse tracking that waits": b"\x1b[1;2;3;4;5T",
    "mouse mode that waits": b"\x1b[?1001h",
    "not UTF-8": b"\x1b%@",
    "8-bit answers": b"\x1b G",
    "answerback": b"\x05",
    "CSI in C1": "\u009b6n".encode(),
    "CSI in one byte": b"\x9b6n",
}
# And what changes a terminal's state or other lines, which a program with a terminal of its own may do.
SCREEN = [
    *(
        b"\x1b[2J",
        b"\x1b[H",
        b"\x1b[5;7H",
        b"\x1b[A",
        b"\x1b[2B",
        b"\x1b[3;20r",
        b"\x1b[4h",
        b"\x1b[?1049h",
        b"\x1b[?25l",
    ),
    *(b"\x1b[?1000;1006h", b"\x1b[?2004h", b"\x1b[2 q", b"\x1b[!p", b"\x1b[L", b"\x1b[10b", b"\x1b[>4;2m", b"\x1b[s"),
    *(b"\x1b7", b"\x1b8", b"\x1b=", b"\x1b>", b"\x1bM", b"\x1bc", b"\x1b(0", b"\x1b)B", b"\x0e", b"\x0f"),
]
TEXT = [b"\x1b[m", b"\x1b[1;31m", b"\x1b[38:2::1:2:3m", b"\x1b[K", b"\x1b[2K", b"\x1b[5G", b"\x1b[C", b"\x1b[3D"]
PIECES = st.one_of(
    st.sampled_from([*HOSTILE.values(), *SCREEN, *TEXT]),
    st.sampled_from(
        [ESC, b"[", b"]", b"P", b"\\", b"?", b";", b"0", b"m", b"\n", b"\x07", b"\xc2", b"\x9b", b"\x18", b" "]
    ),
    st.binary(max_size=8),
    st.text(max_size=8).map(lambda text: text.encode("utf-8", "ignore")),
    st.integers(0, 200).map(lambda count: b"\x1b[" + b"1" * count),
)
STREAMS = st.lists(PIECES, max_size=30).map(b"".join)
PLAIN = "[^\x00-\x06\x0e-\x1f\x7f-\x9f]"
MAY_BE_TEXT = re.compile(rf"(?:{PLAIN}|\x1b\[[0-9:;]*[mCDGK])*")
MAY_BE_SCREEN = re.compile(
    rf"(?:{PLAIN}|[\x0e\x0f]|\x1b[78=>DEHMc]|\x1b[()*+].|\x1b\[[0-9:;]*[@A-HIJKLMPSTXZ`abdefgmrsu]"
    r"|\x1b\[(?:4|34)(?:;(?:4|34))*[hl]|\x1b\[\?[0-9;]+[hl]|\x1b\[\?[0-9;:]*[JK]|\x1b\[>4[0-9:;]*m|\x1b\[!p"
    r"|\x1b\[[0-9:;]* q)*"
)


def filtered(data: bytes, *, screen: bool = False) -> bytes:
    """Return the filtered text without the resets at its end."""
    return TerminalFilter(screen=screen).feed(data)


@pytest.mark.parametrize("screen", [False, True], ids=["text", "screen"])
@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_sequences_are_removed(what: str, screen: bool) -> None:
    printed = filtered(b"before " + HOSTILE[what] + b"\nafter", screen=screen)
    assert printed.startswith(b"before ")
    assert printed.endswith(b"\nafter")
    assert not set(printed.decode()) & {*map(chr, range(7)), *map(chr, range(0x0E, 0x20)), *map(chr, range(0x7F, 0xA0))}
    if HOSTILE[what].startswith(ESC):  # the words of a string go with it
        assert b"mine" not in printed
        assert b"AAAA" not in printed


def test_text_keeps_colours_and_line_moves() -> None:
    for entry in TEXT:
        assert filtered(entry) == entry
        assert filtered(entry, screen=True) == entry
    for content in SCREEN:
        assert filtered(b"a" + content + b"b") == b"ab"


def test_a_screen_keeps_full_screen_sequences() -> None:
    for entry in SCREEN:
        assert filtered(entry, screen=True) == entry
    assert filtered(b"\x1b[?3;25;1049h", screen=True) == b"\x1b[?25;1049h", "what is fine of it"


CAPABILITIES = (
    "smcup rmcup cup clear el el1 ed ich ich1 ech dch dch1 il il1 dl dl1 ind indn ri rin csr sc rc civis cnorm cvvis"
    " smkx rmkx smacs rmacs enacs setaf setab op sgr0 bold dim sitm ritm smul rmul smso rmso rev blink hpa vpa home cuu"
    " cud cuf cub cuu1 cud1 cuf1 cub1 cr bel smir rmir smam rmam hts tbc cbt ht rep nel"
)
# xterm's titles, and the shape of the Linux console's cursor (elsewhere a query): no program needs them to draw.
NOT_NEEDED = re.compile(rb"\x1b\[2[23];0;0t|\x1b\[\?[0-9]c")


@pytest.mark.parametrize("terminal", ["xterm", "xterm-256color", "screen", "linux", "vt100", "ansi"])
def test_a_screen_keeps_terminfo_sequences(terminal: str) -> None:
    """Run in a separate process: curses keeps one terminal per process."""
    code = f"""
import curses
curses.setupterm({terminal!r}, 1)
for name in {CAPABILITIES!r}.split():
    found = curses.tigetstr(name)
    if found:
        print(curses.tparm(found, 97, 3, 4, 5, 6, 7, 8, 9, 1).hex())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    expected = [re.sub(rb"\$<[^>]*>", b"", bytes.fromhex(line)) for line in done.stdout.split()]
    assert len(expected) > 30
    for entry in expected:
        assert filtered(entry, screen=True) == NOT_NEEDED.sub(b"", entry)


@given(data=STREAMS, sizes=st.lists(st.integers(1, 5), min_size=1), screen=st.booleans())
def test_chunking_changes_nothing(data: bytes, sizes: list[int], screen: bool) -> None:
    terminal_filter, parts, printed, at = TerminalFilter(screen=screen), TerminalFilter(screen=screen), b"", 0
    for size in itertools.cycle(sizes):
        if at >= len(data):
            break
        printed += parts.feed(data[at : at + size])
        at += size
    assert printed + parts.end() == terminal_filter.feed(data) + terminal_filter.end()


@given(data=STREAMS, screen=st.booleans())
def test_only_allowed_sequences_pass(data: bytes, screen: bool) -> None:
    terminal_filter = TerminalFilter(screen=screen)
    feed = terminal_filter.feed(data)
    assert (MAY_BE_SCREEN if screen else MAY_BE_TEXT).fullmatch(feed.decode())
    assert filtered(feed, screen=screen) == feed, "nothing new comes of what is put together"


@given(text=st.text(st.characters(exclude_categories=["Cs", "Cc"])), screen=st.booleans())
def test_plain_text_is_unchanged(text: str, screen: bool) -> None:
    data = f"{text}\r\n\t{text}\b\a".encode()
    assert filtered(data, screen=screen) == data


def test_a_string_without_an_end_hides_one_line() -> None:
    assert filtered(b"\x1b]0;no end\nthe next line") == b"\nthe next line"


def test_a_long_sequence_is_not_held() -> None:
    terminal_filter = TerminalFilter()
    text = b"".join(terminal_filter.feed(b"\x1b[" + b"1" * 1000) for _ in range(100))
    assert len(text) > 90_000
    assert len(terminal_filter._held) < 100


@pytest.mark.parametrize(
    ("left", "undone"),
    [
        (b"\x1b[31m", b"\x1b[m"),
        (b"\x1b[31m\x1b[0m", b""),
        (b"\x1b[?1049h\x1b[?25l", b"\x1b[?1049l\x1b[?25h"),
        (b"\x1b[?1049h\x1b[?25l\x1b[?25h\x1b[?1049l", b""),
        (b"\x1b[?1000;1006h\x1b[?1006l", b"\x1b[?1000l"),
        (b"\x1b[?7l\x1b[4h", b"\x1b[?7h\x1b[4l"),
        (b"\x1b=\x1b(0\x0e", b"\x1b>\x1b(B\x0f"),
        (b"\x1b[2;5r\x1b[4 q", b"\x1b7\x1b[r\x1b8\x1b[0 q"),
        (b"\x1b[>4;2m", b"\x1b[>4m"),
        (b"\x1b[>1;2m\x1b[?3h", b""),
    ],
)
def test_the_end_puts_the_terminal_back(left: bytes, undone: bytes) -> None:
    terminal_filter = TerminalFilter(screen=True)
    terminal_filter.feed(left + b"\x1b[?2")
    assert terminal_filter.end() == undone
    assert terminal_filter.end() == b""


def test_a_pipe_gets_every_byte_unfiltered() -> None:
    stream, data = io.BytesIO(), b"".join(HOSTILE.values()) + bytes(range(256))
    with Output(stream) as out:  # type: ignore[arg-type]
        out.write(data)
    assert stream.getvalue() == data
