"""Where a pipeline reads and writes."""

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from ray_multicluster_scheduler.errors import InvalidRequest
from raymc_pipeline.files import find_input, find_output, locate, read_table, write_table
from raymc_pipeline.pandas_engine import run_on_pandas
from raymc_pipeline.plan import make_plan

FRAME = pd.DataFrame({"a": [1, 2, 3], "b": ["x", "y", "x"]})


def write(folder: Path, name: str) -> Path:
    path = folder / name
    if path.suffix == ".csv":
        FRAME.to_csv(path, index=False)
    elif path.suffix == ".parquet":
        FRAME.to_parquet(path)
    else:
        FRAME.to_json(path, orient="records", lines=True)
    return path


@pytest.mark.parametrize("name", ["x.csv", "x.parquet", "x.jsonl", "x.ndjson", "x.json"])
@pytest.mark.parametrize("as_uri", [False, True])
def test_every_format_is_read_from_a_path_and_from_a_uri(tmp_path: Path, name: str, as_uri: bool) -> None:
    path = write(tmp_path, name)
    source = find_input(path.as_uri() if as_uri else str(path))
    assert source.local
    assert read_table(source).to_pydict() == FRAME.to_dict("list")


def test_a_directory_is_read_by_the_format_of_its_files(tmp_path: Path) -> None:
    write(tmp_path, "1.csv")
    write(tmp_path, "2.csv")
    assert read_table(find_input(str(tmp_path))).num_rows == 6


def test_a_uri_of_another_filesystem_is_not_local() -> None:
    assert not locate("mock:///data/x.csv").local


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("none.csv", "there is no input"),
        ("x.xlsx", "the format of .* cannot be told by its name; CSV"),
        ("nope://host/x.csv", "nope://host/x.csv cannot be opened"),
    ],
)
def test_an_input_that_cannot_be_read_is_refused_at_once(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "x.xlsx").touch()
    with pytest.raises(InvalidRequest, match=words):
        find_input(name if "://" in name else str(tmp_path / name))


def test_only_parquet_and_csv_are_written(tmp_path: Path) -> None:
    table = pa.Table.from_pandas(FRAME)
    for name in ("o.csv", "o.parquet"):
        write_table(table, find_output(str(tmp_path / name)))
        assert read_table(find_input(str(tmp_path / name))).to_pydict() == FRAME.to_dict("list")
    with pytest.raises(InvalidRequest, match=r"must end in \.parquet or \.csv"):
        find_output("o.json")


def test_the_pandas_engine_reads_works_writes_and_reports(tmp_path: Path) -> None:
    source, target = write(tmp_path, "x.csv"), tmp_path / "o.parquet"
    run = run_on_pandas(make_plan(["MinMaxScaler", "OrdinalEncoder"], str(source), output=str(target)))
    assert pd.read_parquet(target).to_dict("list") == {"a": [0.0, 0.5, 1.0], "b": [0, 1, 0]}
    assert [(step.name, step.rows, step.columns) for step in run.steps] == [
        ("read", 3, ()),
        ("MinMaxScaler", 3, ("a",)),
        ("OrdinalEncoder", 3, ("b",)),
        ("write", 3, ()),
    ]
