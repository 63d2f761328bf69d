"""`raymc serve` in a process of its own, for tests without a loop."""

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.support.raymc import COMMAND
from tests.support.waiting import PATIENCE_S, until


class ServeProcess:
    """A server with a log, which can be killed, and started again on its ports."""

    def __init__(
        self,
        folder: Path,
        config: Path,
        environ: Mapping[str, str],
        *options: str | Path,
        clients: bool = False,
        is_kept_up: bool = False,
    ) -> None:
        """`clients`: with a port for `ray://`; `is_kept_up`: one that ends by itself is started again."""
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / "server.log"
        self.config = config
        self.environ = dict(environ)
        self.process: subprocess.Popen[bytes]
        self.address = self.client_address = ""
        self._options, self._clients, self._is_kept_up = options, clients, is_kept_up
        self.start()

    def start(self) -> None:
        """Start it, on the same ports as before if there were any."""
        begin = self.log.stat().st_size if self.log.exists() else 0
        self._begin()

        def listens() -> str:
            said = self.log.read_bytes()[begin:].decode()
            if self.process.poll() is not None:
                assert self._is_kept_up, said
                self._begin()
            return said if "SIGTERM or Ctrl-C" in said else ""

        said = until(listens, told=self.log.read_text)
        self.address = re.findall(r"stock Ray clients +(http\S+)", said)[-1]
        if self._clients:
            self.client_address = re.findall(r"ray\.init +(ray://\S+)", said)[-1]

    def _begin(self) -> None:
        command = [*COMMAND, "serve", "--config", self.config, "--port", _port(self.address)]
        if self._clients:
            command += ["--client-port", _port(self.client_address)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, *self._options], env=self.environ, stdout=log, stderr=log
            )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def stop(self, *, code: int | None = 0) -> None:
        """Stop it as a service manager does; None: whatever its exit code is."""
        if self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            ended = self.process.wait(PATIENCE_S)
        finally:
            self.process.kill()
        assert code is None or ended == code, self.log.read_text()[-4000:]


def _port(address: str) -> str:
    return address.rpartition(":")[2] or "0"
