"""A job that failed or was stopped is repeated under a free name, with all that was asked for."""

from collections.abc import Sequence, Set

import pytest
from tests.support.builders import a_job, a_spec

from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.executors.registry import RAY_SESSION, Registry
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.service.jobs import RETRY_OF, repeats, to_repeat


def failed(name: str, state: JobState = JobState.FAILED, **spec: object) -> Job:
    return a_job(submission_id=name, state=state, spec=a_spec(**spec))


def test_the_new_job_asks_for_the_same_and_says_what_it_repeats() -> None:
    old = failed("train", entrypoint="run", priority=3, idempotency_key="k", metadata={"a": "b"}, group="g")
    ((name, spec),) = repeats([old], user="bob", taken=lambda _: frozenset())
    assert name == "train.2"
    assert (spec.entrypoint, spec.priority, spec.user) == ("run", 3, "bob")
    assert spec.metadata == {"a": "b", RETRY_OF: "train"}
    assert (spec.idempotency_key, spec.group) == (None, None)


def test_names_count_on_and_are_free() -> None:
    taken = {"train.2", "train.3"}
    ((name, _),) = repeats([failed("train.2")], user="bob", taken=taken.intersection)
    assert name == "train.4"


def test_names_are_chosen_against_each_other_too() -> None:
    old = [failed("train"), failed("train.2"), failed("train.3")]
    taken = {job.submission_id for job in old}
    names = [name for name, _ in repeats(old, user="bob", taken=taken.intersection)]
    assert len({*names, *taken}) == 6


def test_the_names_of_an_array_are_asked_for_at_once() -> None:
    asked = []

    def taken(names: Sequence[str]) -> Set[str]:
        asked.append(names)
        return frozenset()

    repeats([failed(f"a-{n}", group="a") for n in range(1000)], user="bob", taken=taken)
    assert [len(names) for names in asked] == [1001]


def test_a_job_that_was_repeated_often_needs_few_questions() -> None:
    asked = []

    def taken(names: Sequence[str]) -> Set[str]:
        asked.append(names)
        return {f"train.{n}" for n in range(2, 500)}

    ((name, _),) = repeats([failed("train")], user="bob", taken=taken)
    assert name == "train.500"
    assert len(asked) < 10


def test_several_of_a_group_are_a_new_group_and_depend_on_each_other() -> None:
    old = [failed("g-1", group="g"), failed("g-2", group="g", depends_on=("g-1", "other"))]
    (_, first), (_, second) = repeats(old, user="bob", taken=lambda _: frozenset())
    assert first.group == second.group == "g.2"
    assert second.depends_on == ("g-1.2", "other")


def test_only_what_failed_or_was_stopped_is_repeated() -> None:
    good, bad = failed("a", JobState.SUCCEEDED), failed("b", JobState.STOPPED)
    assert to_repeat([good, bad], Registry().can) == [bad]
    with pytest.raises(InvalidRequest, match="a has succeeded"):
        to_repeat([good], Registry().can)
    with pytest.raises(InvalidRequest, match="a has not ended: it is RUNNING"):
        to_repeat([failed("a", JobState.RUNNING)], Registry().can)
    with pytest.raises(InvalidRequest, match="none of these 2 jobs"):
        to_repeat([good, good], Registry().can)


@pytest.mark.parametrize("executor", [RAY_SESSION.name, "of-a-newer-version"])
def test_what_only_its_program_can_begin_again_is_not_repeated(executor: str) -> None:
    with pytest.raises(InvalidRequest, match=f"by its program only .executor '{executor}'"):
        to_repeat([failed("a", executor=executor)], Registry().can)


def test_a_name_that_grows_too_long_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="too long"):
        repeats([failed("x" * 128)], user="bob", taken=lambda _: frozenset())


def test_to_repeat_none_is_a_slip_that_is_told() -> None:
    with pytest.raises(InvalidRequest, match="no job was named"):
        to_repeat([], Registry().can)
