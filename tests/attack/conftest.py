"""One server for all attacks of a file: it has to bear them one after the other, too."""

from collections.abc import Iterator

import pytest
from tests.attack.victim import Victim, victim


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    """A server that wants tokens, with the dashboard and a port for Ray Client programs."""
    with victim(tmp_path_factory.mktemp("victim"), "--dashboard") as running:
        yield running
