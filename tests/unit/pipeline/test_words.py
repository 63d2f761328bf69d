"""Operators on categories and text."""

from collections import Counter

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.pipeline.frames import columns_of, on_pandas

from ray_multicluster_scheduler.errors import InvalidRequest

WORDS = st.sampled_from(["red", "green", "blue", "Red", ""])
FRAMES = columns_of(WORDS)
TEXTS = columns_of(st.lists(st.sampled_from("xyz"), min_size=1, max_size=6).map(" ".join))


@pytest.mark.parametrize("name", ["OrdinalEncoder", "OneHotEncoder"])
@given(frame=FRAMES)
def test_codes_are_the_places_of_the_sorted_categories(frame: pd.DataFrame, name: str) -> None:
    encoded = on_pandas(name, frame)
    for column in frame:
        places = {word: place for place, word in enumerate(sorted(set(frame[column])))}
        for word, code in zip(frame[column], encoded[column], strict=True):
            one_hot = [int(place == places[word]) for place in places.values()]
            assert code == (places[word] if name == "OrdinalEncoder" else one_hot)


def test_labels_are_numbered_in_their_order() -> None:
    assert on_pandas("LabelEncoder", pd.DataFrame({"a": ["b", "c", "a", "b"]}))["a"].tolist() == [1, 2, 0, 1]


def test_labels_are_one_column_only() -> None:
    with pytest.raises(InvalidRequest, match="LabelEncoder takes one column, not a, b"):
        on_pandas("LabelEncoder", pd.DataFrame({"a": ["x"], "b": ["y"]}))


def test_a_category_that_is_not_kept_is_all_zeros() -> None:
    frame = pd.DataFrame({"a": ["x", "x", "y"]})
    encoded = on_pandas("OneHotEncoder", frame, max_categories={"a": 1})
    assert encoded["a"].tolist() == [[1], [1], [0]]


@pytest.mark.parametrize("name", ["OrdinalEncoder", "LabelEncoder", "OneHotEncoder"])
def test_a_missing_category_is_refused_with_the_way_out(name: str) -> None:
    with pytest.raises(InvalidRequest, match=f"{name}: the column 'a' has missing values; put SimpleImputer"):
        on_pandas(name, pd.DataFrame({"a": ["x", None]}))


@given(TEXTS)
def test_words_counted_by_any_operator_are_the_words_of_the_text(frame: pd.DataFrame) -> None:
    tokens = on_pandas("Tokenizer", frame)
    counted = on_pandas("CountVectorizer", frame)
    hashed = on_pandas("HashingVectorizer", frame, num_features=5)
    many = on_pandas("MultiHotEncoder", tokens)
    for column in frame:
        total = Counter(word for words in tokens[column] for word in words)
        order = [word for word, _ in total.most_common()]
        for row, text in enumerate(frame[column]):
            words = Counter(text.split(" "))
            assert " ".join(tokens[column][row]) == text
            assert counted[column][row] == [words[word] for word in order]
            assert many[column][row] == [words[word] for word in sorted(total)]
            assert sum(hashed[column][row]) == words.total()


def test_a_missing_text_stays_missing() -> None:
    frame = pd.DataFrame({"a": ["x y", None]})
    assert on_pandas("Tokenizer", frame)["a"].tolist()[0] == ["x", "y"]
    for name, params in [
        ("Tokenizer", {}),
        ("CountVectorizer", {}),
        ("HashingVectorizer", {"num_features": 2}),
    ]:
        assert on_pandas(name, frame, **params)["a"][1] is None
