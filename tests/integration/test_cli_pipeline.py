"""`raymc pipeline` as a person types it, with the engine that needs no cluster."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import raymc_pipeline
from ray_multicluster_scheduler.cli.registry import app
from ray_multicluster_scheduler.errors import InvalidRequest
from raymc_pipeline import run


def pipeline(*words: str) -> str:
    """Run the command and return what it wrote; our own errors come out as they are."""
    done = CliRunner().invoke(app, ["pipeline", *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture
def sample(tmp_path: Path) -> str:
    path = tmp_path / "sample.csv"
    path.write_text("age,city\n1,Oslo\n3,Rome\n")
    return str(path)


def test_several_operators_and_columns_follow_one_option(sample: str, tmp_path: Path) -> None:
    target = tmp_path / "out.csv"
    words = ["--engine", "pandas", "--operators", "MinMaxScaler", "LabelEncoder", "--columns", "age", "city"]
    shown = pipeline(*words, "--input", sample, "--output", str(target))
    assert target.read_text() == '"age","city"\n0,0\n1,1\n'
    assert "MinMaxScaler" in shown
    assert "LabelEncoder" in shown


def test_runs_are_compared_and_kept(sample: str, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    words = ["--engine", "pandas", "--operators", "MinMaxScaler", "--input", sample]
    assert "run 2" in pipeline(*words, "--repeats", "2", "--report", str(report))
    assert len(json.loads(report.read_text())["runs"]) == 2


def test_parameters_come_from_the_command_or_from_a_file(sample: str, tmp_path: Path) -> None:
    params = tmp_path / "params.json"
    params.write_text('{"PowerTransformer": {"power": 2}}')
    words = ["--engine", "pandas", "--operators", "PowerTransformer", "--input", sample, "--params"]
    assert pipeline(*words, f"@{params}").count("PowerTransformer") == 1
    assert pipeline(*words, params.read_text()).count("PowerTransformer") == 1


def test_the_list_names_operators_and_parameters() -> None:
    shown = pipeline("list")
    assert "StandardScaler" in shown
    assert "quantile_range" in shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "--input is missing"),
        (["--operators", "StandardScale"], "did you mean 'StandardScaler'"),
        (["--operators", "MinMaxScaler", "--params", "{"], "--params is not valid JSON"),
        (["--operators", "MinMaxScaler", "--params", "@none.json"], "none.json cannot be read"),
        (["--operators", "MinMaxScaler", "--report", "r.txt"], r"must end in \.json or \.png"),
        (["--operators", "MinMaxScaler", "--ray-address", "auto"], "--ray-address would do nothing"),
        (["--operators", "MinMaxScaler", "--cluster", "auto"], "--cluster would do nothing"),
    ],
)
def test_a_mistake_is_told(words: list[str], said: str, sample: str) -> None:
    source = ["--input", sample] if words else []
    with pytest.raises(InvalidRequest, match=said):
        pipeline("--engine", "pandas", *source, *words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--input", "/no/such.csv"], "there is no input /no/such.csv"),
        (["--columns", "agee"], "--columns: no column is called 'agee'; did you mean 'age'?"),
        (["--params", '{"MinMaxScaler": {"columns": ["town"]}}'], "MinMaxScaler: no column is called 'town'"),
        (["--output", "SAMPLE/out.parquet"], "--output: there is no directory"),
        (["--output", "out.txt"], "must end in .parquet or .csv"),
        (["--report", "no/such/dir/r.json"], "--report: there is no directory no/such/dir"),
        (["--ray-address", "http://127.0.0.1:8265"], "must be host:port"),
        (["--ray-address", "127.0.0.1:99999"], "must be host:port"),
        (["--ray-address", "somewhere"], "must be host:port"),
        (["--ray-runtime-env-json", '{"pip": ["pandas=1.5"]}'], "pandas=1.5"),
        (
            ["--ray-runtime-env-json", '{"working_dir": "/no/such"}'],
            "'/no/such' does not exist on this machine",
        ),
        (["--ray-runtime-env-json", "{"], "--ray-runtime-env-json is not valid JSON"),
    ],
)
def test_every_argument_is_checked_before_ray_is_even_imported(
    words: list[str], said: str, sample: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> None:
        pytest.fail("the pipeline was started")

    monkeypatch.setattr(run, "run_pipeline", never)
    source = [] if "--input" in words else ["--input", sample]
    with pytest.raises(InvalidRequest, match=re.escape(said)):
        pipeline("--operators", "MinMaxScaler", *source, *(word.replace("SAMPLE", sample) for word in words))


def test_a_result_that_is_written_nowhere_is_shown(sample: str, tmp_path: Path) -> None:
    words = ["--engine", "pandas", "--operators", "MinMaxScaler", "--input", sample]
    shown = pipeline(*words)
    assert "The first rows; --output keeps them all:" in shown
    assert shown.splitlines()[-2:] == ["0    Oslo", "1    Rome"]
    assert "first rows" not in pipeline(*words, "--output", str(tmp_path / "out.csv"))


def test_a_hint_ends_its_sentence(sample: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        pipeline("--engine", "pandas", "--operators", "StandardScale", "--input", sample)
    assert str(caught.value).endswith("did you mean 'StandardScaler'? (`raymc pipeline list` shows all)")


def test_without_the_extra_the_command_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raymc_pipeline, "LIBRARIES", ("pandas", "no_such_library"))
    with pytest.raises(InvalidRequest, match=r"no_such_library; .*pip install .*\[pipeline\]"):
        pipeline("list")


def test_the_command_line_starts_without_the_heavy_libraries() -> None:
    code = (
        "import sys, ray_multicluster_scheduler.cli.commands.pipeline as _; "
        "print(sorted({'pandas', 'ray', 'sklearn', 'pyarrow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
