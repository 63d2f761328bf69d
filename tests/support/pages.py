"""The documents as tests see them: pages, blocks of code, commands."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])

_BLOCK = re.compile(r"^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.M | re.S)


@dataclass(frozen=True, kw_only=True)
class Block:
    """One block of code on a page."""

    page: Path
    line: int
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(*kinds: str, pages: list[Path] = PAGES) -> list[Block]:
    """Return every block of these kinds, in order."""
    return [
        Block(page=page, line=text.count("\n", 0, found.start()) + 1, kind=found["kind"], text=found["text"])
        for page in pages
        for text in [page.read_text()]
        for found in _BLOCK.finditer(text)
        if found["kind"] in kinds
    ]


def commands(block: Block) -> Iterator[str]:
    """Yield the commands of a shell block: every line, or those behind a prompt where output is shown."""
    for line in block.text.splitlines():
        if block.kind == "console":
            if line.startswith("$ "):
                yield line.removeprefix("$ ")
        elif line and not line.startswith("#"):
            yield line


def table(page: Path, *header: str) -> list[dict[str, str]]:
    """Return the rows of the table with this header, by column."""
    lines = page.read_text().splitlines()
    start = lines.index(f"| {' | '.join(header)} |")
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        rows.append(dict(zip(header, cells, strict=True)))
    return rows
