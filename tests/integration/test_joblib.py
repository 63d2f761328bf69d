"""joblib on clusters inside this process."""

import math
import threading
from collections.abc import Iterator

import joblib
import pytest
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC

import ray_multicluster_scheduler.joblib  # noqa: F401 - registers the backend
from ray_multicluster_scheduler.errors import InvalidRequest, ItemFailed
from ray_multicluster_scheduler.testing import InProcessClusters


@pytest.fixture(autouse=True)
def _clusters() -> Iterator[None]:
    with InProcessClusters({"a": {"CPU": 2}, "b": {"CPU": 4}}):
        yield


def inner(number: int) -> tuple[str, int]:
    backend, _ = joblib.parallel.get_active_backend()
    total = sum(joblib.Parallel(n_jobs=2)(joblib.delayed(pow)(number, 2) for _ in range(3)))
    return type(backend).__name__, total


def test_all_clusters_count_unless_somebody_says_otherwise() -> None:
    with joblib.parallel_config("raymc"):
        assert joblib.effective_n_jobs() == 6
        assert joblib.effective_n_jobs(-2) == 5
        assert joblib.effective_n_jobs(3) == 3
        roots = joblib.Parallel()(joblib.delayed(math.sqrt)(number) for number in range(100))
    assert roots == [math.sqrt(number) for number in range(100)]
    with joblib.parallel_config("raymc", cpus=2):
        assert joblib.effective_n_jobs() == 3


def test_one_worker_is_no_worker_as_joblib_has_it() -> None:
    with joblib.parallel_config("raymc", n_jobs=1):
        (name,) = joblib.Parallel()([joblib.delayed(threading.current_thread)()])
    assert name is threading.current_thread()


def test_parallel_inside_parallel_uses_threads_of_its_worker() -> None:
    with joblib.parallel_config("raymc"):
        found = joblib.Parallel()(joblib.delayed(inner)(number) for number in range(5))
    assert found == [("ThreadingBackend", 3 * number**2) for number in range(5)]


@pytest.mark.parametrize("batch_size", ["auto", 1, 7])
def test_batches_are_those_of_joblib(batch_size: int | str) -> None:
    with joblib.parallel_config("raymc"):
        parallel = joblib.Parallel(batch_size=batch_size, return_as="generator")
        found = list(parallel(joblib.delayed(abs)(-number) for number in range(50)))
    assert found == list(range(50))


def test_an_error_ends_the_call_and_the_next_one_works() -> None:
    with joblib.parallel_config("raymc"), joblib.Parallel(n_jobs=2) as parallel:
        with pytest.raises(ValueError, match="math domain error") as raised:
            parallel(joblib.delayed(math.sqrt)(number) for number in (1, -1, 4))
        assert isinstance(raised.value.__cause__, ItemFailed)
        assert parallel(joblib.delayed(math.sqrt)(number) for number in (1, 4)) == [1.0, 2.0]


def test_an_unknown_option_is_refused() -> None:
    with (
        joblib.parallel_config("raymc", cpu=2),
        pytest.raises(InvalidRequest, match="the joblib backend raymc has no cpu; it takes cpus, gpus"),
    ):
        joblib.Parallel()(joblib.delayed(abs)(1) for _ in range(2))


def test_a_grid_search_finds_what_it_finds_locally() -> None:
    search = GridSearchCV(SVC(), {"C": [0.1, 1, 10], "kernel": ["rbf", "linear"]}, n_jobs=-1)
    local = search.set_params(n_jobs=1).fit(*load_iris(return_X_y=True))
    scores, best = local.cv_results_["mean_test_score"].tolist(), local.best_params_
    with joblib.parallel_config("raymc"):
        search.set_params(n_jobs=-1).fit(*load_iris(return_X_y=True))
    assert (search.cv_results_["mean_test_score"].tolist(), search.best_params_) == (scores, best)
