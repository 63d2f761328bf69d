"""A prepared statement does what SQLAlchemy does with the same rows, however the driver takes them."""

from collections.abc import Iterator

import pytest
from sqlalchemy import (
    JSON,
    Column,
    Connection,
    Integer,
    MetaData,
    Table,
    Text,
    bindparam,
    create_engine,
    delete,
    insert,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import psycopg

from ray_multicluster_scheduler.store.schema.prepared import ForIds, Prepared

things = Table(
    "things",
    MetaData(),
    Column("id", Text, primary_key=True),
    Column("size", Integer),
    Column("data", JSON),
)
ADD = Prepared(insert(things))
CHANGE = Prepared(update(things).where(things.c.id == bindparam("of_thing")))
FIND = ForIds(lambda ids: select(things.c.id).where(things.c.id.in_(ids)))
DROP = ForIds(lambda ids: delete(things).where(things.c.id.in_(ids)))


@pytest.fixture
def tx() -> Iterator[Connection]:
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        things.create(connection)
        yield connection
    engine.dispose()


def test_rows_are_read_back_as_they_were_written(tx: Connection) -> None:
    rows = [{"id": "a", "size": 1, "data": {"x": [1, None]}}, {"id": "b", "size": None, "data": ["é"]}]
    assert ADD.run(tx, rows) == 2
    assert [dict(row) for row in tx.execute(select(things)).mappings()] == rows


def test_an_update_tells_how_many_rows_it_found(tx: Connection) -> None:
    ADD.run(tx, [{"id": name, "size": 0, "data": None} for name in "abc"])
    assert CHANGE.run(tx, [{"of_thing": name, "size": 7} for name in "abx"]) == 2
    assert CHANGE.run(tx, [{"of_thing": "c", "data": {"new": True}}]) == 1
    assert tx.execute(select(things.c.size, things.c.data)).all() == [
        (7, None),
        (7, None),
        (0, {"new": True}),
    ]


def test_without_rows_nothing_is_run(tx: Connection) -> None:
    assert ADD.run(tx, []) == 0
    assert FIND.rows(tx, []) == []


@pytest.mark.parametrize("count", [1, 2, 3, 5, 64, 1024, 1025, 3000])
def test_a_list_of_any_length_finds_each_of_its_ids_once(tx: Connection, count: int) -> None:
    ADD.run(tx, [{"id": f"{n:04}", "size": n, "data": None} for n in range(count + 2)])
    asked = [f"{n:04}" for n in range(count)]
    assert sorted(name for (name,) in FIND.rows(tx, [*asked, "nobody"])) == asked
    DROP.run(tx, asked)
    assert tx.scalars(select(things.c.size)).all() == [count, count + 1]


def test_a_driver_that_takes_values_by_name_gets_them_by_name() -> None:
    text, values = ADD._compile(psycopg.dialect(), ("id", "data"))
    assert text == "INSERT INTO things (id, data) VALUES (%(id)s::VARCHAR, %(data)s::JSON)"
    assert values({"id": "a", "data": {"x": 1}}) == {"id": "a", "data": '{"x":1}'}
    text, names = FIND._compile(psycopg.dialect(), 2)
    assert names == ["id_0", "id_1"]
    assert text.endswith("WHERE things.id IN (%(id_0)s, %(id_1)s)")
