"""A TCP connection that a test can cut: clients connect to it, and it to the real address."""

import asyncio
import contextlib
import threading


class Cable:
    """Passes bytes to and fro until it is cut; while it is cut, new connections are closed at once."""

    def __init__(self, address: str) -> None:
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._open: set[asyncio.StreamWriter] = set()
        self._cut = False
        self._to_lose = 0
        #: How many answers were lost.
        self.lost = 0
        self.address = ""

    def __enter__(self) -> "Cable":
        self._thread.start()
        self.listen()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        self._close_all()
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()}, return_exceptions=True)

    def listen(self) -> None:
        """Accept connections; after `close`, at the same address."""
        port = int(self.address.rpartition(":")[2] or 0)
        listening = asyncio.start_server(self._serve, "127.0.0.1", port)
        self._server = asyncio.run_coroutine_threadsafe(listening, self._loop).result()
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def close(self) -> None:
        """End as a tunnel does: from now on connections are refused."""
        self._loop.call_soon_threadsafe(self._server.close)
        self._loop.call_soon_threadsafe(self._close_all)

    def cut(self) -> None:
        self._cut = True
        self._loop.call_soon_threadsafe(self._close_all)

    def mend(self) -> None:
        self._cut = False

    def lose_answers(self, count: int) -> None:
        """Pass the next requests on, and break their connections when the answers come."""
        self._to_lose, self.lost = count, 0

    def _close_all(self) -> None:
        for writer in self._open:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._cut:
            writer.transport.abort()
            return
        far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
        self._open |= {writer, far_writer}
        await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer, answers=True))
        self._open -= {writer, far_writer}

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, answers: bool = False
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(2**16):
                if answers and self._to_lose:
                    self._to_lose, self.lost = self._to_lose - 1, self.lost + 1
                    sink.transport.abort()
                    return
                sink.write(data)
                await sink.drain()
        sink.close()
