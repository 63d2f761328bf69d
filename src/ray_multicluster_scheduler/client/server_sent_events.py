"""Server-sent events, as far as our own server sends them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event of a stream."""

    name: str
    data: str
    #: Where a stream that breaks off after this event is taken up again.
    id: str | None


class EventReader:
    """Puts events together from the lines of a stream; comments are signs of life and nothing else."""

    def __init__(self) -> None:
        self._name = ""
        self._data: list[str] = []
        self._id: str | None = None

    def feed(self, line: bytes) -> Event | None:
        """Take in one line, and return the event that it ends."""
        text = line.decode(errors="replace").rstrip("\r\n")
        if not text:
            return self._end()
        name, _, value = text.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._name = value
        elif name == "id":
            self._id = value
        return None

    def _end(self) -> Event | None:
        event = Event(name=self._name or "message", data="\n".join(self._data), id=self._id)
        told, self._name, self._data = bool(self._data), "", []
        return event if told else None
