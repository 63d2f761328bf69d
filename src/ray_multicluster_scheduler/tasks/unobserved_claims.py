"""What this driver has placed on each cluster that the last look at the cluster cannot show yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ray_multicluster_scheduler.model.resources import Resources, plus

#: Tells which of these refs have their value.
Finished = Callable[[list[Any]], list[Any]]


@dataclass(slots=True, eq=False)
class Entry:
    """One task or actor."""

    claim: Resources
    #: When it was sent, by the wall clock; None: it waits for a bridge, and no look can show it.
    at: float | None = None
    #: The result of a task: it shows when the task is done. None for an actor, and until it is sent.
    ref: Any = None


class Ledger:
    """Claims per cluster that are too young to be seen.

    A task's ref is held here, which keeps its result alive: so only for seconds, until a look shows the use.
    """

    def __init__(self) -> None:
        self._entries: dict[str, list[Entry]] = {}
        self._sums: dict[str, dict[str, float]] = {}

    def add(self, cluster: str, entry: Entry) -> None:
        """Count a task or an actor that was just placed."""
        self._entries.setdefault(cluster, []).append(entry)
        self._sums[cluster] = plus(self._sums.get(cluster, {}), entry.claim)

    def drop(self, cluster: str, entry: Entry) -> None:
        """Take one back that was not sent after all."""
        self._keep(cluster, (each for each in self._entries.get(cluster, ()) if each is not entry))

    def unseen(self, cluster: str) -> Resources:
        """Return what is placed there and cannot be seen yet."""
        return self._sums.get(cluster, {})

    def forget(self, cluster: str, *, before: float) -> None:
        """Drop what was sent before a moment: a look since then shows it."""
        entries = self._entries.get(cluster, ())
        self._keep(cluster, (entry for entry in entries if entry.at is None or entry.at >= before))

    def settle(self, cluster: str, finished: Finished) -> None:
        """Drop the tasks that are done."""
        refs = [entry.ref for entry in self._entries.get(cluster, ()) if entry.ref is not None]
        if refs and (done := {id(ref) for ref in finished(refs)}):
            self._keep(cluster, (entry for entry in self._entries[cluster] if id(entry.ref) not in done))

    @property
    def empty(self) -> bool:
        """Tell whether nothing is held."""
        return not any(self._entries.values())

    @property
    def clusters(self) -> tuple[str, ...]:
        """Return the clusters on which something was placed."""
        return tuple(self._entries)

    def _keep(self, cluster: str, entries: Iterable[Entry]) -> None:
        kept = list(entries)
        total: dict[str, float] = {}
        for entry in kept:
            total = plus(total, entry.claim)
        self._entries[cluster], self._sums[cluster] = kept, total
