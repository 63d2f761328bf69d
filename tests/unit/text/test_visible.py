"""What steers a terminal is shown as a sign, whatever it is and wherever it stands."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from ray_multicluster_scheduler.text import one_line, visible

_BIDI = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


@given(st.text(alphabet=st.characters(blacklist_categories=["Cs"])))
def test_nothing_that_is_left_controls_anything_and_no_character_is_lost(text: str) -> None:
    shown = visible(text)
    assert len(shown) == len(text)
    for sign in shown:
        assert unicodedata.category(sign) != "Cc" or sign in "\n\t"
        assert unicodedata.bidirectional(sign) not in _BIDI
    assert visible(shown) == shown


def test_ordinary_text_of_any_language_stays_as_it_is() -> None:
    text = "naïve 机房 שלום مرحبا 🎉\n\tline"
    assert visible(text) == text


def test_a_cell_is_one_line() -> None:
    assert one_line(" a\nb\r\n\tc\x1b[31m ") == "a b c␛[31m"
