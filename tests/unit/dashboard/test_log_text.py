"""The text of a log in the browser, as `dashboard/pages/log_text` makes it; needs Node.js."""

import json
import shutil
import subprocess
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from tests.support.waiting import PATIENCE_S

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="Node.js is not installed")


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    """The modules as Node.js takes them."""
    source = resources.files("ray_multicluster_scheduler.dashboard") / "pages" / "log_text"
    for file in source.iterdir():
        (tmp_path / file.name).write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    return tmp_path


def ran(modules: Path, program: str) -> Any:
    assert NODE is not None
    names = (
        'import { parsed, plain } from "./ansi.js"; import { LogBuffer } from "./buffer.js"; '
        'import { count, finder, split } from "./search.js"; import { events } from "./stream.js";'
    )
    (modules / "main.js").write_text(f"{names}\nconsole.log(JSON.stringify({program}));", encoding="utf-8")
    done = subprocess.run(
        [NODE, "main.js"], cwd=modules, capture_output=True, text=True, check=True, timeout=PATIENCE_S
    )
    return json.loads(done.stdout)


def lines(modules: Path, *pieces: str, limits: str = "{}") -> Any:
    """Return the lines that are kept of these pieces, the open one, and how many were dropped."""
    fed = "".join(f"b.feed({json.dumps(piece)});" for piece in pieces)
    return ran(
        modules,
        f"(() => {{ const b = new LogBuffer({limits}); {fed}"
        "return [b.blocks.flatMap((block) => block.lines.map((line) => line.raw)), b.open, b.dropped]; })()",
    )


COLOURS = {
    "plain": [["plain", ""]],
    "\x1b[31mred\x1b[0m not": [["red", "ansi-fg-1"], [" not", ""]],
    "\x1b[1;92mok\x1b[22m.": [["ok", "ansi-bold ansi-fg-10"], [".", "ansi-fg-10"]],
    "\x1b[44mon\x1b[49m": [["on", "ansi-bg-4"]],
    "\x1b[38;5;196mr\x1b[38;2;0;0;255mb": [["r", "ansi-fg-9"], ["b", "ansi-fg-12"]],
    "\x1b[mreset": [["reset", ""]],
}
SIGNS = {
    "\x1b[2Jclear\x1b[1;1H": "clear",
    "\x1b]0;title\x07shown": "shown",
    "\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\": "link",
    "bell\x07 back\x08 null\x00": "bell\u2407 back\u2408 null\u2400",
    "\x9b31m \u202eevil": "\ufffd31m \ufffdevil",
    "cut off \x1b[3": "cut off 3",
    "a\tb": "a\tb",
    "<script>alert(1)</script>": "<script>alert(1)</script>",
}


def test_colours_become_classes(modules: Path) -> None:
    pieces = "parsed(line).pieces.map((each) => [each.text, each.classes])"
    assert ran(modules, f"{json.dumps(list(COLOURS))}.map((line) => {pieces})") == list(COLOURS.values())


def test_what_would_steer_a_terminal_is_left_out_or_shown_as_a_sign(modules: Path) -> None:
    found = ran(modules, f"{json.dumps(list(SIGNS))}.map((line) => plain(line))")
    assert found == list(SIGNS.values())


def test_a_progress_bar_is_one_line_wherever_its_pieces_are_cut(modules: Path) -> None:
    text = "start\n\r 10%\r 50%\r100%\r\nnext\r\nlast"
    assert lines(modules, text) == [["start", "100%", "next"], "last", 0]
    assert lines(modules, *text) == [["start", "100%", "next"], "last", 0]


def test_a_progress_bar_without_an_end_does_not_grow(modules: Path) -> None:
    assert lines(modules, *(f"\r{done}%" for done in range(50))) == [[], "49%", 0]


def test_a_colour_lasts_over_the_ends_of_lines(modules: Path) -> None:
    program = (
        "(() => { const b = new LogBuffer(); b.feed('\\x1b[31mred\\nstill\\x1b[0m\\nplain\\n');"
        "return b.blocks[0].lines.map((line) => line.style); })()"
    )
    assert ran(modules, program) == [{}, {"fg": 1}, {}]


def test_the_oldest_lines_are_dropped_and_counted(modules: Path) -> None:
    text = "".join(f"{number}\n" for number in range(1000))
    kept, _, dropped = lines(modules, text, limits="{lines: 500}")
    assert len(kept) + dropped == 1000
    assert len(kept) <= 500
    assert kept[-1] == "999"


def test_a_line_without_end_is_broken(modules: Path) -> None:
    kept, rest, _ = lines(modules, "x" * 25_000)
    assert [len(each) for each in (*kept, rest)] == [10_000, 10_000, 5_000]


def test_a_search_takes_the_text_as_it_is_in_capitals_or_not(modules: Path) -> None:
    assert ran(modules, "count(finder('A.b('), 'a.B( aXb( \\x1b[1mA.\\x1b[0mb(')") == 2
    assert ran(modules, "finder('')") is None


def test_a_hit_may_go_over_several_colours(modules: Path) -> None:
    assert ran(modules, "split(4, 10, [[2, 6], [8, 12]])") == [[4, 6, 0], [6, 8, None], [8, 10, 1]]


def test_events_are_read_wherever_they_are_cut(modules: Path) -> None:
    text = 'id: 5\ndata: {"text":"hällo"}\n\n: still here\n\nevent: end\nid: 5\ndata: {}\n\n'
    program = (
        "await (async () => { const found = []; const body = new ReadableStream({ start(to) {"
        f"const bytes = new TextEncoder().encode({json.dumps(text)});"
        "for (const byte of bytes) to.enqueue(new Uint8Array([byte]));"
        "to.close(); } }); for await (const each of events(body)) found.push(each); return found; })()"
    )
    assert ran(modules, program) == [
        {"name": "message", "id": "5", "data": {"text": "hällo"}},
        {"name": "message", "id": None, "data": None},
        {"name": "end", "id": "5", "data": {}},
    ]
