"""A log keeps its colours in a terminal and loses what could steer it; a pipe gets it as it came."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_multicluster_scheduler.cli.follow_jobs import LogWriter

TRICKS = [
    "\x1b]0;title\x07",
    "\x1b]52;c;aGk=\x1b\\",
    "\x1b[2J",
    "\x1b[1;1H",
    "\x1bc",
    "\x1b(0",
    "\x1bP1$r0m\x1b\\",
    "\x9b2J",
    "\u202e",
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def written(pieces: list[str], stream: io.StringIO) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout", stream)
        writer = LogWriter()
        for piece in pieces:
            writer.write(piece)
        writer.close()
    return stream.getvalue()


def test_colours_and_progress_bars_stay_and_end_with_the_log() -> None:
    log = "\x1b[1;32mok\x1b[0m 10%\r20%\x1b[K\nred \x1b[38;5;9m!"
    assert written([log], Terminal()) == log + "\x1b[0m"


@pytest.mark.parametrize("trick", TRICKS)
@pytest.mark.parametrize("cut", [0, 1, 2, 3])
def test_nothing_else_reaches_a_terminal_however_it_is_cut(trick: str, cut: int) -> None:
    log = f"before {trick}after"
    middle = len("before ") + cut
    shown = written([log[:middle], log[middle:]], Terminal())
    assert shown.startswith("before ")
    assert shown.endswith("after")
    for bad in ("\x1b", "\x07", "\x9b", "\u202e", "title", "aGk="):
        assert bad not in shown


@given(st.lists(st.text(alphabet="\x1b[]0;7mHJ\\a\x07\x9c\n\x9b\u202eP", max_size=12)))
def test_only_colours_are_left_of_any_sequence(pieces: list[str]) -> None:
    shown = written(pieces, Terminal())
    for start in shown.split("\x1b")[1:]:
        assert start.startswith("[")
        assert start.lstrip("[0123456789;:")[:1] == "m"
    assert not set(shown) & set("\x07\x9b\x9c\u202e")


def test_a_sequence_without_an_end_is_shown_in_the_end() -> None:
    shown = written(["\x1b]0;", "x" * 5000, "more"], Terminal())
    assert shown == "␛]0;" + "x" * 5000 + "more"


def test_a_pipe_gets_the_log_as_it_came() -> None:
    assert written(TRICKS, io.StringIO()) == "".join(TRICKS)
