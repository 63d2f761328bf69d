from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_multicluster_scheduler.dashboard.job_list_address import (
    ROWS,
    address,
    changed,
    is_filtered,
    parse,
)
from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.service.query import JobQuery

words = st.none() | st.text(st.characters(codec="utf-8"), min_size=1, max_size=20).map(str.strip).filter(bool)
queries = st.builds(
    JobQuery,
    states=st.none() | st.lists(st.sampled_from(JobState), min_size=1, unique=True).map(tuple),
    cluster=words,
    user=words,
    tag=words,
    group=words,
    text=words,
    head=words,
    cursor=words,
    limit=st.just(ROWS),
)


def test_a_span_of_time_is_in_the_address_in_seconds() -> None:
    query = parse([("state", "FAILED"), ("since", "1700000000"), ("until", "1700003600")])
    assert (query.changed_since, query.changed_until) == (1_700_000_000, 1_700_003_600)
    assert address(query) == "/jobs?state=FAILED&since=1700000000&until=1700003600"
    assert is_filtered(query)
    assert not query.heads_only


@pytest.mark.parametrize("word", ["never", "-5", "nan", "inf", "1e300"])
def test_what_is_no_time_is_refused_by_its_name(word: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^since: "):
        parse([("since", word)])


def read(link: str) -> JobQuery:
    return parse(parse_qsl(urlsplit(link).query))


@given(query=queries)
def test_an_address_brings_back_the_list_that_it_was_made_from(query: JobQuery) -> None:
    asked = changed(query)
    assert read(address(asked)) == asked


def test_only_a_list_of_all_jobs_or_of_a_user_has_one_row_for_several_jobs() -> None:
    assert all(read(link).heads_only for link in ("/jobs", "/jobs?user=ann", "/jobs?cursor=7", "/jobs?text="))
    assert not any(read(link).heads_only for link in ("/jobs?state=FAILED", "/jobs?head=a", "/jobs?text=x"))


def test_other_filters_begin_at_the_first_page() -> None:
    assert (
        address(changed(read("/jobs?state=FAILED&cursor=7"), cluster="mac"))
        == "/jobs?state=FAILED&cluster=mac"
    )


def test_without_its_last_filter_a_list_has_one_row_for_several_jobs_again() -> None:
    assert changed(read("/jobs?head=a"), head=None) == read("/jobs")


def test_a_state_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(InvalidRequest, match="'NOPE'; the states are QUEUED, PLACED"):
        read("/jobs?state=NOPE")


def test_a_later_page_counts_as_filtered_because_it_leaves_jobs_out() -> None:
    assert not is_filtered(read("/jobs"))
    assert all(is_filtered(read(link)) for link in ("/jobs?cursor=7", "/jobs?user=ann", "/jobs?tag=gpu"))
