"""Decides which worker gets which items of a map. Pure: it is told what happened, and asked what to do.

Items are numbers here. They are sent in chunks, to workers that are started where a cluster has room. What a
lost worker had is sent again; an item that was lost too often is given up.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

#: A chunk should take this long: its way costs some milliseconds, and its results come together.
CHUNK_S = 0.2
MAX_CHUNK = 2_000
MAX_CHUNK_BYTES = 4 * 2**20
#: A chunk has at most this many times the items of the largest one so far: one quick item proves little.
GROWTH = 8
#: A worker has its next chunk already, unless a chunk takes so long that another worker may be free sooner.
DEPTH = 2
LONG_S = 2.0
#: Nor does it get one behind a chunk that takes this many times as long as expected, and this long.
OVERDUE, OVERDUE_S = 4, 0.1
#: How many chunks are read ahead for each one that workers may have.
AHEAD = 2
#: Items that are read at least, and before anything is known of their size.
FEW_ITEMS, FIRST_ITEMS = 64, 16
WINDOW_BYTES = 256 * 2**20
#: No further worker is started for less work than this, for each of those that there are.
WORTH_S = 0.5
#: When no cluster has room, it is asked again after this time.
ROOM_EVERY_S = 2.0
#: How much the newest chunk says about how long the next one takes.
NEWEST = 0.3


@dataclass(frozen=True, slots=True)
class Chunk:
    """Successive items that are sent together."""

    first: int
    size: int

    @property
    def items(self) -> range:
        """Return the numbers of its items."""
        return range(self.first, self.first + self.size)


@dataclass(frozen=True, slots=True)
class Start:
    """Start a worker where there is room; `wait`: there is no other, so it may wait for room."""

    worker: int
    wait: bool


@dataclass(frozen=True, slots=True)
class Run:
    """Send a chunk to a worker."""

    worker: int
    chunk: Chunk


@dataclass(slots=True)
class _Worker:
    ready: bool = False
    chunks: list[Chunk] = field(default_factory=list)
    #: When its first chunk became the first one, as far as is known.
    since: float = 0.0


class MapPlan:
    """The plan of one map, or of one executor, whose input ends when it is shut down."""

    def __init__(self, *, chunk: int | None = None, retries: int = 1, max_workers: int | None = None) -> None:
        self._fixed_chunk = chunk
        self._retries = retries
        self._max_workers = math.inf if max_workers is None else max_workers
        self._workers: dict[int, _Worker] = {}
        self._starting: int | None = None
        #: When the plan was asked last.
        self._now = -math.inf
        self._numbers = 0
        #: No cluster had room for a worker; it is asked again then.
        self._start_at = -math.inf
        #: Items that came, were sent, have ended, and whose results were taken.
        self._came = self._sent = self._ended = self._taken = 0
        self._input_ended = False
        self._repeats: deque[Chunk] = deque()
        self._losses: dict[int, int] = {}
        #: What an item takes and its size; None before the first one has ended.
        self._item_s: float | None = None
        self._item_bytes: float | None = None
        self._largest = 1

    # What happened.

    def items_came(self, count: int) -> None:
        """So many more items were read."""
        self._came += count

    def input_ended(self) -> None:
        """No more items will come."""
        self._input_ended = True

    def items_taken(self, count: int) -> None:
        """The results of so many items were taken, so as many more may be read."""
        self._taken += count

    def worker_started(self, worker: int) -> None:
        """A worker has its place; it takes chunks when it is ready."""
        self._starting = None
        self._workers[worker] = _Worker()

    def worker_ready(self, worker: int) -> None:
        """A worker takes chunks from now on; it may be lost already."""
        if worker in self._workers:
            self._workers[worker].ready = True

    def no_room(self, now: float) -> None:
        """No cluster has room for the worker that was to be started."""
        self._starting = None
        self._start_at = now + ROOM_EVERY_S

    def chunk_sized(self, chunk: Chunk, size_bytes: int) -> None:
        """So many bytes are sent for a chunk, or came back from it."""
        each = size_bytes / chunk.size
        self._item_bytes = each if self._item_bytes is None else max(each, 0.9 * self._item_bytes)

    def chunk_ended(self, worker: int, chunk: Chunk, seconds: float) -> bool:
        """Note that a chunk has its results; False: it is not under way, as its worker was lost before."""
        known = self._workers.get(worker)
        if known is None or chunk not in known.chunks:
            return False
        known.chunks.remove(chunk)
        known.since = self._now
        self._ended += chunk.size
        self._largest = max(self._largest, chunk.size)
        each = seconds / chunk.size
        self._item_s = each if self._item_s is None else (1 - NEWEST) * self._item_s + NEWEST * each
        for item in chunk.items if self._losses else ():
            self._losses.pop(item, None)
        return True

    def worker_lost(self, worker: int, *, begun: bool) -> tuple[list[int], list[int]]:
        """Return the items that are sent again, and those that are given up.

        A worker does one chunk after the other, so the loss counts against its first one, unless it had not
        begun. Its items are sent again one by one: if one of them ends the processes that it is run by, it
        does not take its neighbours along. With no retries at all, whatever was sent is given up.
        """
        if worker == self._starting:
            self._starting = None
        lost = self._workers.pop(worker, _Worker()).chunks
        again: list[int] = []
        given_up: list[int] = []
        for position, chunk in enumerate(lost):
            counts = begun and (position == 0 or self._retries == 0)
            if not counts:
                self._repeats.append(chunk)
                again += chunk.items
                continue
            for item in chunk.items:
                self._losses[item] = self._losses.get(item, 0) + 1
                if self._losses[item] > self._retries:
                    given_up.append(item)
                    del self._losses[item]
                else:
                    again.append(item)
                    self._repeats.append(Chunk(item, 1))
        self._ended += len(given_up)
        return again, given_up

    # What to do.

    @property
    def done(self) -> bool:
        """Tell whether every item has ended, and no more will come."""
        return self._input_ended and self._ended == self._came

    @property
    def may_read(self) -> int:
        """Return how many more items may be read: those whose results nobody has taken yet are bounded."""
        size = self._chunk_size()
        slots = max(1, len(self._workers)) * DEPTH
        few = FIRST_ITEMS if self._item_bytes is None else FEW_ITEMS
        window = max(few, AHEAD * slots * size)
        if self._item_bytes:
            window = max(slots * (self._fixed_chunk or 1), min(window, int(WINDOW_BYTES / self._item_bytes)))
        return max(0, window - (self._came - self._taken))

    def wake_at(self) -> float | None:
        """Return when to ask again though nothing has happened; None: never."""
        return self._start_at if self._lacks_workers() and self._start_at > -math.inf else None

    def instructions(self, now: float) -> Iterator[Start | Run]:
        """Yield what is to be done now; each is taken as done."""
        self._now = now
        for load in range(self._depth()):
            for number, worker in self._workers.items():
                if worker.ready and len(worker.chunks) == load and not self._is_overdue(worker):
                    chunk = self._next_chunk()
                    if chunk is None:
                        return
                    worker.since = worker.since if worker.chunks else now
                    worker.chunks.append(chunk)
                    yield Run(number, chunk)
        if self._lacks_workers() and now >= self._start_at:
            self._starting = self._numbers = self._numbers + 1
            yield Start(self._starting, wait=not self._workers)

    def _next_chunk(self) -> Chunk | None:
        if self._repeats:
            return self._repeats.popleft()
        unsent, size = self._came - self._sent, self._chunk_size()
        if self._fixed_chunk is None and self._input_ended:  # the last ones are shared out
            size = min(size, math.ceil(unsent / (len(self._workers) * self._depth())))
        if unsent == 0 or (self._fixed_chunk is not None and unsent < size and not self._input_ended):
            return None
        chunk = Chunk(self._sent, min(size, unsent))
        self._sent += chunk.size
        return chunk

    def _chunk_size(self) -> int:
        if self._fixed_chunk is not None:
            return self._fixed_chunk
        if self._item_s is None:
            return 1
        size = min(MAX_CHUNK, GROWTH * self._largest, CHUNK_S / max(self._item_s, 1e-9))
        if self._item_bytes:
            size = min(size, MAX_CHUNK_BYTES / self._item_bytes)
        return max(1, int(size))

    def _depth(self) -> int:
        if self._item_s is None:
            return 1
        return 1 if self._item_s * self._chunk_size() > LONG_S else DEPTH

    def _is_overdue(self, worker: _Worker) -> bool:
        expected_s = (self._item_s or 0.0) * self._chunk_size()
        return bool(worker.chunks) and self._now - worker.since > max(OVERDUE * expected_s, OVERDUE_S)

    def _lacks_workers(self) -> bool:
        """Tell whether there is more to do than for the workers that there are; one is started at a time."""
        if self._starting is not None or len(self._workers) >= self._max_workers:
            return False
        unsent = self._came - self._sent
        chunks = len(self._repeats) + math.ceil(unsent / self._chunk_size())
        if chunks <= sum(not worker.ready for worker in self._workers.values()):
            return False
        if self._item_s is None or not self._input_ended or not self._workers:
            return True
        left = len(self._repeats) + unsent
        return left * self._item_s > WORTH_S * len(self._workers)
