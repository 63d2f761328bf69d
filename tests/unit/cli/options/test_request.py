"""From words on a command line to the fields of a request."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_multicluster_scheduler.cli.options.submit import (
    entrypoint_of,
    json_object,
    on_unreachable_of,
    resources_of,
    runtime_env_of,
)
from ray_multicluster_scheduler.errors import InvalidRequest


@given(st.lists(st.text(st.characters(exclude_characters="\0")), min_size=2))
def test_several_words_reach_the_shell_as_they_were(words: list[str]) -> None:
    assert shlex.split(entrypoint_of(words)) == words


@given(st.text())
def test_one_word_is_the_command_line_itself(word: str) -> None:
    assert entrypoint_of([word]) == word


def test_bad_json_is_located_and_not_repeated() -> None:
    with pytest.raises(InvalidRequest) as refused:
        json_object("--metadata-json", '{\n"password": hunter2}')
    assert "--metadata-json" in str(refused.value)
    assert "line 2, column 13" in str(refused.value)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("text", ["1", "[]", '"a"', "null", "true"])
def test_json_of_another_kind_is_named(text: str) -> None:
    with pytest.raises(InvalidRequest, match="must be a JSON object"):
        json_object("--metadata-json", text)


def test_what_was_not_said_is_not_claimed() -> None:
    assert resources_of(None, None, None) is None
    assert resources_of(2, None, 0.5) == {"CPU": 2, "memory": 0.5}
    assert resources_of(None, None, 2.0**21) == {"memory": 2.0**51}  # in bytes, which this is taken for


@pytest.mark.parametrize(
    ("word", "meaning"), [("wait", "wait"), ("fail", "fail"), ("90", 90.0), ("5m", 300.0)]
)
def test_on_unreachable_is_a_word_or_a_number(word: str, meaning: object) -> None:
    assert on_unreachable_of(word) == meaning


def test_the_working_dir_option_goes_before_the_environments_own() -> None:
    assert runtime_env_of(None, None, None) is None
    assert runtime_env_of(None, '{"working_dir": "a", "pip": ["x"]}', "b") == {
        "working_dir": "b",
        "pip": ["x"],
    }
