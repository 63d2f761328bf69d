"""Fields of a form as texts."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_multicluster_scheduler.dashboard.job_form import (
    MOST_YAML_CHARS,
    TextProblem,
    read_amounts,
    read_line,
    read_mapping,
    read_number,
    read_pairs,
    read_words,
    write_amounts,
    write_number,
    write_pairs,
    write_words,
)
from ray_multicluster_scheduler.errors import InvalidRuntimeEnv

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ["a,b", "x=y", "two\nlines", " padded ", "{", "[", "", "\r", "\x1c"]
)


@given(st.lists(TEXT))
def test_words_are_read_as_they_were_written(words: list[str]) -> None:
    assert read_words(write_words(words)) == words


@given(st.dictionaries(TEXT, TEXT))
def test_pairs_are_read_as_they_were_written(pairs: dict[str, str]) -> None:
    assert read_pairs(write_pairs(pairs)) == pairs


@given(st.dictionaries(TEXT, st.floats(0, 1e15)))
def test_amounts_are_read_as_they_were_written(amounts: dict[str, float]) -> None:
    assert read_amounts(write_amounts(amounts)) == amounts


@given(st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_are_read_as_they_were_written(number: float) -> None:
    assert read_number(write_number(number)) == number


def test_a_whole_number_is_written_without_a_point() -> None:
    assert write_number(2.0) == "2"
    assert write_number(None) == ""


def test_a_blank_field_says_nothing() -> None:
    assert read_line("  ") is None
    assert read_number(" ") is None
    assert read_words(" , \n") == []
    assert read_pairs("\n \n") == {}
    assert read_mapping(" ") == {}


@pytest.mark.parametrize(
    ("read", "text", "key"),
    [
        (read_number, "two", "submit.not_a_number"),
        (read_words, "[1,", "submit.not_json"),
        (read_pairs, "A=1\nhunter2", "submit.not_a_pair"),
        (read_pairs, "=1", "submit.not_a_pair"),
        (read_pairs, "A=1\nA=2", "submit.name_twice"),
        (read_pairs, '{"A": ', "submit.not_json"),
        (read_amounts, "tpu=many", "submit.amount_not_a_number"),
        (read_mapping, "- a\n- b", "submit.not_a_mapping"),
        (read_mapping, "a: " + "b" * MOST_YAML_CHARS, "submit.yaml_too_long"),
    ],
)
def test_what_cannot_be_read_is_told_by_a_text_of_the_catalogue(read, text: str, key: str) -> None:
    with pytest.raises(TextProblem) as refused:
        read(text)
    assert refused.value.key == key
    assert "hunter2" not in str(refused.value.values)


def test_an_environment_is_yaml_or_json() -> None:
    assert read_mapping("pip:\n  - requests\n") == {"pip": ["requests"]}
    assert read_mapping('{"pip": ["requests"]}') == {"pip": ["requests"]}
    assert read_mapping("{pip: [requests]}") == {"pip": ["requests"]}


def test_json_may_be_longer_than_yaml() -> None:
    long = {"env_vars": {"A": "b" * MOST_YAML_CHARS}}
    assert read_mapping(json.dumps(long)) == long


def test_yaml_is_read_as_carefully_as_the_configuration() -> None:
    with pytest.raises(InvalidRuntimeEnv, match="line 2"):
        read_mapping("conda: a\nconda: b\n")
    with pytest.raises(InvalidRuntimeEnv, match="tag"):
        read_mapping("conda: !!python/object:os.system {}")
