"""`--array`: which indices a text means, and what each job of an array gets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.service.request import MOST_JOBS, JobRequest, array_of, parse_array


@pytest.mark.parametrize(
    ("text", "indices"),
    [
        ("7", [7]),
        ("0-3", [0, 1, 2, 3]),
        ("0-1,20", [0, 1, 20]),
        ("0-100:50", [0, 50, 100]),
        ("0-10:4", [0, 4, 8]),
        ("3, 1 ,3,1-3", [3, 1, 2]),
    ],
)
def test_indices_are_those_that_are_written_each_once(text: str, indices: list[int]) -> None:
    assert parse_array(text) == indices


@pytest.mark.parametrize(
    "text", ["", ",", "1,", "a", "-1", "1-", "1-2-3", "1-2:", "1-2:0", "2-1", "1.5", "³"]
)
def test_what_is_no_list_of_indices_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="array"):
        parse_array(text)


@pytest.mark.parametrize("text", [f"0-{MOST_JOBS}", f"0-{MOST_JOBS - 1},{MOST_JOBS}", "0-99999999999999"])
def test_a_slip_of_the_finger_is_no_million_jobs(text: str) -> None:
    with pytest.raises(InvalidRequest, match="are the most"):
        parse_array(text)


@given(
    st.lists(st.tuples(st.integers(0, 500), st.integers(0, 20), st.integers(1, 5)), min_size=1, max_size=5)
)
def test_a_text_means_the_union_of_its_ranges(ranges: list[tuple[int, int, int]]) -> None:
    text = ",".join(f"{first}-{first + more}:{step}" for first, more, step in ranges)
    expected = {i for first, more, step in ranges for i in range(first, first + more + 1, step)}
    found = parse_array(text)
    assert set(found) == expected
    assert len(found) == len(expected)


def test_each_job_gets_its_index_its_id_and_the_group() -> None:
    request = JobRequest(entrypoint="run {i} of {i}", user="ann", job_id="part {i}", submission_id="g")
    jobs = array_of(request, [3, 5])
    assert [(job.entrypoint, job.job_id, job.submission_id, job.group) for job in jobs] == [
        ("run 3 of 3", "part 3", "g-3", "g"),
        ("run 5 of 5", "part 5", "g-5", "g"),
    ]


def test_each_job_finds_its_index_in_its_environment() -> None:
    variable = "RAY_MULTICLUSTER_ARRAY_INDEX"
    plain = array_of(JobRequest(entrypoint="run", user="ann"), [3, 5])
    assert [job.runtime_env for job in plain] == [{"env_vars": {variable: each}} for each in ("3", "5")]
    own = JobRequest(entrypoint="run", user="ann", runtime_env={"env_vars": ["A=1"], "pip": ["x"]})
    assert array_of(own, [7])[0].runtime_env == {"env_vars": ["A=1", f"{variable}=7"], "pip": ["x"]}
    taken = own.replaced(runtime_env={"env_vars": {variable: "0", "A": "1"}})
    assert array_of(taken, [7])[0].runtime_env == {"env_vars": {variable: "7", "A": "1"}}
    (unlike,) = array_of(own.replaced(runtime_env={"env_vars": "A=1"}), [7])
    assert unlike.runtime_env == {"env_vars": "A=1"}  # which is refused with its own words


def test_a_group_without_an_id_gets_one_of_its_own() -> None:
    first, second = (array_of(JobRequest(entrypoint="{i}", user="ann"), [0])[0].group for _ in range(2))
    assert first != second
