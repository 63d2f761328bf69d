"""An actor pool's decisions: which call goes to which actor, and when the pool grows and shrinks."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ray_multicluster_scheduler.model.resources import Resources, shortfall

# Calls: told what happened, `PoolCalls` answers with steps for the driver.


@dataclass(frozen=True, slots=True)
class Send:
    """Make this call on this actor."""

    call: int
    actor: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """This call is not repeated (again): it ends with its last error."""

    call: int


@dataclass(frozen=True, slots=True)
class Release:
    """This actor was to leave and has no calls any more: end it."""

    actor: str


Step = Send | GiveUp | Release


@dataclass(slots=True)
class _Call:
    retries: int
    #: The actor that it is on.
    actor: str | None = None
    #: Made on this actor whatever else waits, and never repeated.
    bound: bool = False
    #: The cluster where its actor was lost. Others may be lost there with it, a moment later.
    avoid: str | None = None


@dataclass(slots=True)
class _Actor:
    cluster: str
    calls: set[int] = field(default_factory=set)
    leaving: bool = False


class PoolCalls:
    """The calls of a pool, and the actors that are ready for them."""

    def __init__(self, *, per_actor: int = 1) -> None:
        self._per_actor = per_actor
        self._actors: dict[str, _Actor] = {}
        self._calls: dict[int, _Call] = {}
        self._waiting: deque[int] = deque()
        #: Calls to repeat, before all that wait.
        self._again: deque[int] = deque()
        #: Actors that can take a call, the one that has waited longest first.
        self._free: dict[str, None] = {}
        #: How many calls were repeated because their actor was lost.
        self.repeated = 0

    @property
    def waiting(self) -> int:
        """Return how many calls wait for an actor."""
        return len(self._waiting) + len(self._again)

    @property
    def running(self) -> int:
        """Return how many calls are on an actor."""
        return len(self._calls) - self.waiting

    def on_cluster(self, cluster: str) -> tuple[str, ...]:
        """Return the actors of a cluster, those that leave included."""
        return tuple(name for name, actor in self._actors.items() if actor.cluster == cluster)

    def load(self, actor: str) -> int:
        """Return how many calls are on an actor; none on one that is not ready."""
        return len(self._actors[actor].calls) if actor in self._actors else 0

    def add(self, call: int, *, retries: int) -> list[Step]:
        """A call came."""
        self._calls[call] = _Call(retries)
        self._waiting.append(call)
        return self._assign()

    def add_for(self, call: int, actor: str) -> list[Step]:
        """A call for one actor came: it is sent at once, and not repeated."""
        self._calls[call] = _Call(0, actor, bound=True)
        self._actors[actor].calls.add(call)
        self._note_room(actor)
        return [Send(call, actor)]

    def join(self, actor: str, cluster: str) -> list[Step]:
        """An actor is ready."""
        self._actors[actor] = _Actor(cluster)
        self._note_room(actor)
        return self._assign()

    def leave(self, actor: str) -> list[Step]:
        """An actor gets no more calls, and is released after those that it has."""
        if actor not in self._actors:
            return []
        self._actors[actor].leaving = True
        self._note_room(actor)
        return [*self._released(actor), *self._assign()]

    def lose(self, actors: Collection[str]) -> list[Step]:
        """These actors died, together: their calls go again, or are given up."""
        steps: list[Step] = []
        for name in actors:
            actor = self._actors.pop(name, None)
            self._free.pop(name, None)
            for call in sorted(actor.calls) if actor is not None else ():
                self._calls[call].avoid = actor.cluster if actor is not None else None
                self.repeated += self._calls[call].retries > 0
                steps += self._again_or_never(call)
        return steps + self._assign()

    def end(self, call: int) -> list[Step]:
        """A call has its answer."""
        actor = self._calls.pop(call).actor
        return self._freed(call, actor) + self._assign()

    def fail(self, call: int) -> list[Step]:
        """A call raised an error after which it may be repeated."""
        freed = self._freed(call, self._calls[call].actor)
        return freed + self._again_or_never(call) + self._assign()

    def _again_or_never(self, call: int) -> list[Step]:
        known = self._calls[call]
        if known.retries == 0:
            del self._calls[call]
            return [GiveUp(call)]
        known.retries, known.actor = known.retries - 1, None
        self._again.append(call)
        return []

    def _freed(self, call: int, name: str | None) -> list[Step]:
        actor = self._actors.get(name or "")
        if name is None or actor is None:
            return []
        actor.calls.discard(call)
        self._note_room(name)
        return self._released(name)

    def _released(self, name: str) -> list[Step]:
        actor = self._actors[name]
        if not actor.leaving or actor.calls:
            return []
        del self._actors[name]
        return [Release(name)]

    def _note_room(self, name: str) -> None:
        actor = self._actors[name]
        if actor.leaving or len(actor.calls) >= self._per_actor:
            self._free.pop(name, None)
        else:
            self._free.setdefault(name)

    def _assign(self) -> list[Step]:
        steps: list[Step] = []
        for call in tuple(self._again) if self._free else ():
            if (actor := self._actor_for(self._calls[call])) is not None:
                self._again.remove(call)
                steps.append(self._send(call, actor))
        while self._waiting and self._free:
            steps.append(self._send(self._waiting.popleft(), next(iter(self._free))))
        return steps

    def _actor_for(self, call: _Call) -> str | None:
        """Return a free actor, on another cluster than the one that lost the call if there is any actor."""
        staying = Counter(actor.cluster for actor in self._actors.values() if not actor.leaving)
        only_there = staying.total() == staying[call.avoid or ""]
        return next((n for n in self._free if only_there or self._actors[n].cluster != call.avoid), None)

    def _send(self, call: int, actor: str) -> Send:
        self._calls[call].actor = actor
        self._actors[actor].calls.add(call)
        del self._free[actor]  # and back at the end, if it can take more
        self._note_room(actor)
        return Send(call, actor)


# Size: a pool that takes what is free gives it back when others wait for it, and not at the first sign.


#: Others must have waited for so long, without a break, before actors are released for them.
SHRINK_AFTER_S = 10.0
#: After a release nothing changes for this long: the job that the room is for has to start in it.
SETTLE_S = 30.0
#: Nobody must have waited for so long before the pool grows again.
GROW_AFTER_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Somebody else's work that waits for room, and the clusters that it may go to; None: to any."""

    claim: Resources
    clusters: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRoom:
    """One cluster: what is free there, and how many actors of the pool it has."""

    free: Resources
    actors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeMemory:
    """What the next decision has to know of the last ones."""

    others_since: float | None = None
    grows_from: float = -math.inf
    shrinks_from: float = -math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeStep:
    """What to do now: may the pool grow, and how many actors to release on which cluster."""

    memory: SizeMemory
    may_grow: bool
    release: Mapping[str, int] = field(default_factory=dict)


def next_size(
    memory: SizeMemory,
    *,
    now: float,
    claim: Resources,
    rooms: Mapping[str, PoolRoom],
    demands: Sequence[Demand],
) -> SizeStep:
    """Decide about a pool of the size "fit"; each of its actors claims `claim`."""
    contended = [each for each in demands if _is_contended(each, claim, rooms)]
    if not contended:
        memory = SizeMemory(grows_from=memory.grows_from, shrinks_from=memory.shrinks_from)
        return SizeStep(memory=memory, may_grow=now >= memory.grows_from)
    since = now if memory.others_since is None else memory.others_since
    memory = SizeMemory(
        others_since=since,
        grows_from=max(memory.grows_from, now + GROW_AFTER_S),
        shrinks_from=memory.shrinks_from,
    )
    if now - since < SHRINK_AFTER_S or now < memory.shrinks_from:
        return SizeStep(memory=memory, may_grow=False)
    release = next((found for each in contended if (found := _relief(each, claim, rooms))), {})
    if release:
        memory = SizeMemory(grows_from=now + SETTLE_S, shrinks_from=now + SETTLE_S)
    return SizeStep(memory=memory, may_grow=False, release=release)


def _short(demand: Demand, rooms: Mapping[str, PoolRoom]) -> Iterable[tuple[str, Resources]]:
    """Return what the demand lacks, on each cluster that it may go to."""
    return [
        (name, shortfall(demand.claim, room.free))
        for name, room in rooms.items()
        if demand.clusters is None or name in demand.clusters
    ]


def _is_contended(demand: Demand, claim: Resources, rooms: Mapping[str, PoolRoom]) -> bool:
    """Tell whether it fits nowhere, and on some cluster for the lack of what our actors claim."""
    short = [lacks for _, lacks in _short(demand, rooms)]
    return all(short) and any(all(claim.get(name) for name in lacks) for lacks in short)


def _relief(demand: Demand, claim: Resources, rooms: Mapping[str, PoolRoom]) -> dict[str, int]:
    """Return the fewest actors whose end lets the demand start; nothing if none do. One actor stays."""
    most = sum(room.actors for room in rooms.values()) - 1
    ways = [
        (max(math.ceil(amount / claim[name] - 1e-9) for name, amount in lacks.items()), cluster)
        for cluster, lacks in _short(demand, rooms)
        if all(claim.get(name) for name in lacks)
    ]
    fitting = [(number, cluster) for number, cluster in ways if number <= min(rooms[cluster].actors, most)]
    return {cluster: number for number, cluster in sorted(fitting)[:1]}
