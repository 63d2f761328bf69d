"""Values cross unchanged; refs and handles in them are replaced by what stands for them there."""

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_multicluster_scheduler.tasks.wire.serialization import (
    buffers_as_bytes,
    deserialize,
    serialize,
    size_of,
)


class Ref:
    """Stands for an ObjectRef."""

    def __init__(self, name: str) -> None:
        self.name = name


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
)


@given(VALUES)
def test_any_value_comes_out_as_it_went_in(value: Any) -> None:
    assert deserialize(serialize(value, {})) == value


@given(st.lists(st.integers(0, 5)))
def test_refs_are_replaced_in_place_however_deep_they_are(names: list[int]) -> None:
    found: list[Ref] = []

    def number(ref: Ref) -> int:
        found.append(ref)
        return len(found) - 1

    refs = [Ref(str(name)) for name in names]
    payload = serialize({"deep": [[ref] for ref in refs]}, {Ref: number})
    there = [f"far {ref.name}" for ref in found]
    assert deserialize(payload, there) == {"deep": [[f"far {name}"] for name in names]}


def test_a_large_array_is_not_copied_into_the_stream() -> None:
    array = np.ones(1_000_000, dtype=np.uint8)
    stream, buffers = payload = serialize([array, "text"], {})
    assert len(stream) < 1000
    assert len(buffers) == 1
    assert size_of(payload) > array.nbytes
    assert (deserialize(buffers_as_bytes(payload))[0] == array).all()


def test_a_payload_can_be_pickled_on_once_its_buffers_are_bytes() -> None:
    payload = buffers_as_bytes(serialize({"a": np.arange(10)}, {}))
    assert list(deserialize(pickle.loads(pickle.dumps(payload)))["a"]) == list(range(10))


def test_what_is_refused_while_packing_is_said_to_the_caller() -> None:
    def refuse(_: Ref) -> int:
        raise TypeError("a handle cannot travel")

    with pytest.raises(TypeError, match="cannot travel"):
        serialize([Ref("x")], {Ref: refuse})
