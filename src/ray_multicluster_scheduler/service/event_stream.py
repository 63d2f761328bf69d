"""All events in order, from any of them on: first from the store, then live from the hub."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from ray_multicluster_scheduler.service.event_hub import EventHub, EventWithJob


async def event_stream(hub: EventHub, after: int | None) -> AsyncGenerator[tuple[EventWithJob, ...], None]:
    """Yield the events after this one (None: the newest there is), each once, without an end.

    Nothing is buffered for a slow reader: it continues from the store where it was.
    """
    with hub.subscribe_async(None) as subscription:
        newest = await asyncio.to_thread(hub.last_event)
        # An id beyond the newest one comes from another store.
        position = newest if after is None else min(after, newest)
        while True:
            told = hub.kept_after(position)
            if told is not None:
                position = told[-1].event.id if told else position
            else:
                told, position = await asyncio.to_thread(hub.read_after, position)
            if told:
                yield told
            else:
                await subscription.wait()
