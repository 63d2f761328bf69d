"""`raymc` in a terminal of its own, where keys are typed and a screen is read, as a person does."""

import asyncio
import fcntl
import os
import pty
import re
import struct
import termios
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.raymc import COMMAND

#: What moves the cursor and sets colours.
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
CTRL_C = "\x03"


class Typist:
    """Types into a running `raymc` and reads what it shows."""

    def __init__(self, process: asyncio.subprocess.Process, screen: int) -> None:
        self._process = process
        self._screen = screen
        self._raw = ""

    @property
    def seen(self) -> str:
        """All that was written so far, without colours and movements."""
        return _CONTROL.sub("", self._raw)

    def type(self, keys: str) -> None:
        os.write(self._screen, keys.encode())

    async def until(self, words: str) -> None:
        """Read until these words were shown; the test's own time-out ends a wait in vain."""
        while words not in self.seen:
            assert await self._read(), f"{words!r} was never shown in:\n{self.seen}"

    async def end(self) -> int:
        """Read to the end and return the exit code."""
        while await self._read():
            pass
        return await self._process.wait()

    async def _read(self) -> bool:
        try:
            piece = await asyncio.to_thread(os.read, self._screen, 65536)
        except OSError:  # Linux says so when the other side has closed
            return False
        self._raw += piece.decode(errors="replace")
        return bool(piece)


@asynccontextmanager
async def typing_into(
    *arguments: str | Path, environ: Mapping[str, str], columns: int = 80
) -> AsyncIterator[Typist]:
    """Start `raymc` with a terminal that it owns, so that Ctrl-C reaches it as it does a person's."""
    screen, keyboard = pty.openpty()
    fcntl.ioctl(keyboard, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *arguments,
        env=environ,
        stdin=keyboard,
        stdout=keyboard,
        stderr=keyboard,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(keyboard)
    try:
        yield Typist(process, screen)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(screen)
