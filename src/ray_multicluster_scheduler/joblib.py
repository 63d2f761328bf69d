"""joblib on all clusters: import this module, then `with joblib.parallel_config("raymc")`.

Batches, nesting and `n_jobs` are joblib's own: `n_jobs=-1` is as many workers as fit on all clusters.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from ray_multicluster_scheduler.client.map import MultiClusterExecutor, claim, new_workers
from ray_multicluster_scheduler.errors import InvalidRequest

if TYPE_CHECKING:

    class _Backend:
        """joblib has no types."""

        parallel: Any
        nesting_level: int | None
        backend_kwargs: dict[str, Any]

        def __init__(self, **options: Any) -> None: ...

        def reset_batch_stats(self) -> None: ...

    class FallbackToBackend(Exception):
        """See there."""

    SequentialBackend: Any
    register_parallel_backend: Any
else:
    from joblib import register_parallel_backend
    from joblib._parallel_backends import (
        AutoBatchingMixin,
        FallbackToBackend,
        ParallelBackendBase,
        SequentialBackend,
    )

    class _Backend(AutoBatchingMixin, ParallelBackendBase):
        """Batches that adapt to their duration."""


#: What `parallel_config` may say beside `n_jobs`, as for `MultiClusterExecutor`.
OPTIONS = ("cpus", "gpus", "retries", "preferred_cluster", "tags")


class MultiClusterBackend(_Backend):
    """Runs batches of calls on a `MultiClusterExecutor` with `n_jobs` workers."""

    supports_retrieve_callback = True
    default_n_jobs = -1
    _executor: MultiClusterExecutor | None = None

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """Return how many workers are meant; a negative number leaves some of them out, as in joblib."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is None:
            return 1
        if n_jobs > 0:
            return n_jobs
        options = self._options()
        workers = new_workers()
        fit = workers.capacity(claim(options.get("cpus", 1), options.get("gpus", 0)))
        workers.close(at_once=True)
        return max(fit + 1 + n_jobs, 1)

    def configure(self, n_jobs: int = 1, parallel: Any = None, **_joblib: Any) -> int:
        """Open an executor, and return the number of its workers."""
        count = self.effective_n_jobs(n_jobs)
        if count == 1:
            raise FallbackToBackend(SequentialBackend(nesting_level=self.nesting_level))
        self.parallel = parallel
        self._executor = MultiClusterExecutor(count, chunk=1, **self._options())
        return count

    def _options(self) -> dict[str, Any]:
        if unknown := self.backend_kwargs.keys() - OPTIONS:
            raise InvalidRequest(
                f"the joblib backend raymc has no {', '.join(sorted(unknown))}; it takes {', '.join(OPTIONS)}"
            )
        return self.backend_kwargs

    def submit(self, func: Callable[[], Any], callback: Callable[[Any], None] | None = None) -> Future[Any]:
        """Run a batch."""
        assert self._executor is not None
        future = self._executor.submit(func)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, future: Future[Any]) -> Any:
        """Return what a batch has returned, or raise what it has raised."""
        return future.result()

    def terminate(self) -> None:
        """End the workers."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown()
        self.reset_batch_stats()

    def abort_everything(self, ensure_ready: bool = True) -> None:  # noqa: FBT001, FBT002
        """End what is under way; with `ensure_ready`, be as after `configure`."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.stop()
        if ensure_ready:
            self.configure(n_jobs=self.parallel.n_jobs, parallel=self.parallel)


register_parallel_backend("raymc", MultiClusterBackend)
