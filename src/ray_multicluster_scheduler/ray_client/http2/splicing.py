"""Let two streams flow into each other."""

from __future__ import annotations

from ray_multicluster_scheduler.ray_client.http2.frames import CANCEL
from ray_multicluster_scheduler.ray_client.http2.http2_errors import StreamReset
from ray_multicluster_scheduler.ray_client.http2.http2_stream import Stream
from ray_multicluster_scheduler.ray_client.http2.stream_flow import PLAIN_END, UNAVAILABLE


def splice(downstream: Stream, upstream: Stream) -> None:
    """Pass everything on between a client's call here and a call to a server; no task wakes up for it.

    What was received and not read goes first, a message that was read in part included. A reset of one is a
    reset of the other. When the connection of `upstream` is lost, the client gets the status UNAVAILABLE with
    the reason; when that of `downstream` is lost, the other call is cancelled.
    """
    assert (downstream.is_server, upstream.is_server) == (True, False), "first the client's call, then ours"
    assert not downstream.is_spliced, "a stream is spliced once"
    assert not upstream.is_spliced, "a stream is spliced once"
    downstream.is_spliced = upstream.is_spliced = True
    error = upstream._error
    if downstream.is_over:
        upstream.reset(CANCEL)
    elif isinstance(error, StreamReset):
        downstream.reset(error.code)
    elif error is not None:
        downstream.finish(UNAVAILABLE, str(error))
    else:
        if not upstream.is_over:
            downstream._other, upstream._other = upstream, downstream
            _hand_over(downstream, upstream)
            if downstream.remote_ended and upstream._end is None:
                upstream._end = PLAIN_END
            if upstream._queue.size or (upstream._end is not None and not upstream._local_ended):
                upstream._send_queue()
        _hand_over_answer(downstream, upstream)


def _hand_over_answer(downstream: Stream, upstream: Stream) -> None:
    if upstream.response is not None and upstream.response is not upstream.trailers:
        downstream.relay_headers(upstream.response, ends=False)
    _hand_over(upstream, downstream)
    if upstream.trailers is not None:
        downstream.relay_headers(upstream.trailers, ends=True)
    elif upstream.remote_ended:
        downstream.relay(b"", ends=True)
    elif downstream._queue.size:
        downstream._send_queue()


def _hand_over(source: Stream, target: Stream) -> None:
    """Queue what `source` has received. Credit was given for what was read, and for all if it is over."""
    target._free = target._queue.size
    half_read, source._half_read = source._half_read, bytearray()
    if half_read:
        target._queue.push(bytes(half_read))
        target._free += len(half_read)
    if source.is_over:
        target._free += source._unread.size
    while source._unread.size:
        target._queue.push(source._unread.take(source._unread.size))
