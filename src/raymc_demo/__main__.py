"""`python -m raymc_demo`: run the demo, or record what it prints."""

from __future__ import annotations

import argparse
import sys
from datetime import datetime, timezone
from pathlib import Path

from rich.console import Console
from rich.text import Text

from ray_multicluster_scheduler.errors import SchedulerError
from raymc_demo.show import Narrator, Show, set_up

#: Wide enough for the paths, narrow enough for a page.
RECORDING_COLUMNS = 110


def main(arguments: list[str] | None = None) -> int:
    """Run the demo and return its exit code."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--record", type=Path, metavar="PAGE", help="also write a page with what was printed")
    page: Path | None = parser.parse_args(arguments).record
    console = Console(highlight=False, record=page is not None, width=RECORDING_COLUMNS if page else None)
    narrator = Narrator(console)
    try:
        with set_up() as stage:
            Show(stage, narrator).run()
    except KeyboardInterrupt:
        console.print("\nInterrupted. The clusters are stopped, and nothing is left behind.")
        return 130
    except SchedulerError as error:
        console.print(Text(f"\nThe demo cannot go on: {error}", style="red"), soft_wrap=True)
        return 1
    console.print(
        f"The clusters are stopped, and nothing is left behind. That took {narrator.elapsed_s:.0f} s."
    )
    if page is not None:
        page.write_text(_page(console.export_text()))
    return 0


def _page(text: str) -> str:
    """Return the page of the documentation that shows a recording."""
    day = datetime.now(timezone.utc).date()
    lines = "\n".join(line.rstrip() for line in text.strip().splitlines())
    return (
        "# A recording of the demo\n\n"
        f"What `make demo` printed on {day}. Times, directories and the share of each cluster vary.\n"
        "To record it anew:\n\n"
        "```bash\n.venv/bin/python -m raymc_demo --record docs/demo.md\n```\n\n"
        f"```text\n{lines}\n```\n"
    )


if __name__ == "__main__":
    sys.exit(main())
