"""The notebook of examples/ in a real kernel, on real clusters: what it shows while it waits, and then."""

import os
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from tests.e2e.test_examples import EXAMPLES, environment_of

from ray_multicluster_scheduler.local import Sandbox

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(600)]


class WatchedClient(NotebookClient):
    """Runs a notebook and keeps all that was displayed, also what was replaced later."""

    shown: list[str]

    def process_message(self, msg: dict[str, Any], cell: Any, cell_index: int) -> Any:
        if msg["header"]["msg_type"] in {"display_data", "update_display_data"}:
            self.shown.append(msg["content"]["data"]["text/plain"])
        return super().process_message(msg, cell, cell_index)


def test_the_notebook_shows_a_table_while_it_waits(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment_of(sandbox, tmp_path).items():
        monkeypatch.setenv(name, value)
    notebook = nbformat.read(EXAMPLES / "live_notebook.ipynb", as_version=4)
    client = WatchedClient(notebook, timeout=300, kernel_name="python3")
    client.shown = []
    client.execute()
    if kept := os.environ.get("RAYMC_TEST_NOTEBOOK"):  # to look at, with the results of all cells
        nbformat.write(notebook, kept)

    first, *_, last = client.shown
    assert re.match("8 jobs: .*(QUEUED|PLACED|SUBMITTED|RUNNING)", first)
    assert last.startswith("8 jobs: 8 SUCCEEDED\n")
    assert len({text.splitlines()[0] for text in client.shown}) > 2  # it has changed meanwhile

    waited, line, info, explained, mistake = (
        cell.outputs for cell in notebook.cells if cell.cell_type == "code"
    )
    assert len([each for each in waited if each.output_type == "display_data"]) == 1
    told = line[0].data["text/html"]
    assert re.search(r"sub_\w+.*SUCCEEDED.* on (centos|mac) after \d+ s", told, re.DOTALL)
    assert "trial 3" in info[0].data["text/html"]
    assert "Placed on" in explained[0].data["text/html"]
    told = re.sub(r"\x1b\[[\d;]*m", "", "\n".join(mistake[0].traceback))
    assert "unknown state 'done'; use one of" in told
    assert "client/" not in told
