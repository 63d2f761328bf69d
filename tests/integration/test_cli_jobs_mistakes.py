"""A user's mistake: one clear message, exit code 2, no traceback, nothing submitted."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.job_commands import Commands, commands
from tests.support.job_commands import raymc_both_ways as raymc
from tests.support.system import fake

from ray_multicluster_scheduler.cli.registry import NEVER_GUESSED

__all__ = ["raymc"]

SUBMIT = {
    "no command": (["submit"], "the command is missing; it comes last, after `--`"),
    "nothing after the dashes": (["submit", "--no-wait", "--"], "the command is missing"),
    "no dashes": (["submit", "python", "/x.py", "--epochs", "3"], "`--` is missing before the command"),
    "words before the dashes": (["submit", "foo", "--", "ls"], "'foo' stands before `--`"),
    "unknown option": (["submit", "--cpu", "1", "--", "ls"], "--cpu"),
    "empty command": (["submit", "--", ""], "the entrypoint is empty"),
    "not UTF-8": (["submit", "--", "cat", "\udcff"], "it must be valid Unicode text"),
    "relative script": (["submit", "--", "python", "x.py"], "'x.py' in the entrypoint is a relative path"),
    "unknown cluster": (["submit", "--cluster", "macc", "--", "ls"], "did you mean 'mac'?"),
    "unknown only cluster": (
        ["submit", "--only-cluster", "macc", "--", "ls"],
        "only_cluster: no cluster is named 'macc'; did you mean 'mac'?",
    ),
    "unknown only tag": (
        ["submit", "--only-tag", "gpu", "--", "ls"],
        "only_tags: no cluster has the tag 'gpu'",
    ),
    "too large for its only cluster": (
        ["submit", "--only-cluster", "mac", "--cpus", "3", "--", "ls"],
        "no cluster that it may run on could ever hold this job: it needs 3 CPU; the largest",
    ),
    "unknown dependency": (["submit", "--after", "nobody", "--", "ls"], "no job has the id 'nobody'"),
    "too large": (["submit", "--cpus", "64", "--", "ls"], "the largest cluster is 'centos' with 4 CPU"),
    "negative": (["submit", "--cpus", "-1", "--", "ls"], "must not be negative"),
    "not a number": (["submit", "--cpus", "two", "--", "ls"], "--cpus"),
    "bad id": (["submit", "--submission-id", "a/b", "--", "ls"], "submission_id 'a/b' must be"),
    "bad on_unreachable": (["submit", "--on-unreachable", "flee", "--", "ls"], "--on-unreachable wants wait"),
    "bad timeout": (["submit", "--timeout", "0", "--", "ls"], "timeout_s must be more than 0 seconds"),
    "a timeout in words": (
        ["submit", "--timeout", "soon", "--", "ls"],
        "'soon' is no span of time; write 90s",
    ),
    "a size in words": (["submit", "--memory", "much", "--", "ls"], "'much' is no size; write 512MiB"),
    "a plain number is in GiB": (
        ["submit", "--memory", "1e9", "--", "ls"],
        "it needs 1000000000 GiB memory",
    ),
    "bad JSON": (
        ["submit", "--runtime-env-json", '{"pip": [1,}', "--", "ls"],
        "--runtime-env-json is not valid JSON: Expecting value, at line 1, column 12",
    ),
    "JSON of another kind": (["submit", "--metadata-json", "[1]", "--", "ls"], "must be a JSON object"),
    "bad resources": (["submit", "--entrypoint-resources", '{"a": "b"}', "--", "ls"], "must be a number"),
    "no such file": (["submit", "--runtime-env", "none.yaml", "--", "ls"], "none.yaml cannot be read"),
    "a directory": (["submit", "--runtime-env", ".", "--", "ls"], "cannot be read: Is a directory"),
    "two environments": (
        ["submit", "--runtime-env", "x", "--runtime-env-json", "{}", "--", "ls"],
        "give the environment once",
    ),
    "unknown key": (["submit", "--runtime-env-json", '{"pipp": []}', "--", "ls"], "pipp"),
    "no such directory": (["submit", "--working-dir", "nowhere", "--", "ls"], "nowhere"),
    "array of nothing": (["submit", "--array", "5-1", "--", "echo {i}"], "'5-1' holds no index"),
    "array of words": (["submit", "--array", "a-b", "--", "echo {i}"], "an array wants indices such as"),
    "array too large": (["submit", "--array", "0-99999", "--", "echo {i}"], "would be 100000 jobs"),
    "a variable without a value": (["submit", "-e", "hunter2", "--", "ls"], "--env number 1 is not of"),
    "a variable that the scheduler sets": (
        ["submit", "-e", "RAY_MULTICLUSTER_ATTEMPT=2", "--", "ls"],
        "RAY_MULTICLUSTER_ATTEMPT is set by the scheduler for every job",
    ),
    "an unknown command that is close to another": (["jbos"], "Did you mean 'jobs'?"),
    "a port that cannot be": (["serve", "--port", "99999"], "it must be 65535 or less"),
    "JSON while waiting": (["submit", "--json", "--", "ls"], "--json goes with --no-wait or --dry-run"),
}


@pytest.mark.parametrize(
    "words", ["run", "prun", "delet", "stpo", "cancl", "drian", "local dwn", "token revok", "db restor"]
)
def test_a_word_that_is_no_command_is_never_taken_for_one_that_destroys(empty: Commands, words: str) -> None:
    told = empty.refused(*words.split())
    assert "No such command" in told or "There is no command" in told
    assert not any(f"'{name}'?" in told for name in NEVER_GUESSED)


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    """Two clusters that never get a job."""
    with (
        pytest.MonkeyPatch.context() as patch,
        commands(tmp_path_factory.mktemp("empty"), patch, fake("centos", 4), fake("mac", 2)) as ready,
    ):
        yield ready


@pytest.mark.parametrize(("arguments", "said"), SUBMIT.values(), ids=SUBMIT.keys())
def test_a_wrong_submit_is_refused_before_anything_is_sent(
    empty: Commands, arguments: list[str], said: str
) -> None:
    assert said in empty.refused(*arguments)
    assert empty.json("jobs") == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["-e", "hunter2", "--", "ls"],
        ["-e", "MY_TOKEN=hunter2", "ls"],
        ["-eMY_TOKEN=hunter2", "ls"],
        ["--env=MY_TOKEN=hunter2", "--cpus", "1", "ls"],
        ["--runtime-env-json", '{"env_vars": {"MY_TOKEN": "hunter2"}}', "ls"],
        ["-e", "MY_TOKEN=hunter2", "--runtime-env-json", '{"env_vars": [1]}', "--", "ls"],
    ],
)
def test_no_refusal_repeats_the_value_of_a_variable(empty: Commands, arguments: list[str]) -> None:
    assert "hunter2" not in empty.refused("submit", *arguments)


def test_an_unknown_id_gets_the_nearest_one(raymc: Commands) -> None:
    raymc.run("submit", "--submission-id", "train-model", "--", "echo")
    for command in ("status", "info", "events", "explain", "logs", "stop", "wait"):
        said = raymc.refused(command, "train-modle")
        assert "no job has the id 'train-modle'; did you mean 'train-model'?" in said
        assert "did you mean 'train-model'?" in raymc.refused(command, "tra")


@pytest.mark.parametrize("arguments", [("status", "a\udcff"), ("drain", "mac", "--reason", "a\udcff")])
def test_words_that_are_not_utf_8_are_refused(empty: Commands, arguments: tuple[str, ...]) -> None:
    said = empty.refused(*arguments)
    assert "valid Unicode text" in said
    assert "'a\\udcff'" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["stop"], "name the jobs in one way"),
        (["wait"], "name the jobs in one way"),
        (["stop", "a", "--all-mine"], "name the jobs in one way"),
        (["wait", "a", "--group", "g"], "name the jobs in one way"),
        (["wait", "--group", "g"], "no job belongs to a group 'g'"),
        (["drain", "macc"], "did you mean 'mac'?"),
        (["undrain", "windows"], "no cluster is named 'windows'"),
        (["jobs", "--state", "running,sleeping"], "'sleeping' is not one of queued,"),
        (["jobs", "--cluster", "macc"], "did you mean 'mac'?"),
        (["jobs", "--config", "nowhere.yaml"], "nowhere.yaml"),
        (["top"], "needs a terminal"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_other_mistakes_get_a_message_too(empty: Commands, arguments: list[str], said: str) -> None:
    assert said in empty.refused(*arguments)


def test_a_misspelt_group_gets_the_nearest_one(raymc: Commands) -> None:
    raymc.run("submit", "--array", "0-1", "--submission-id", "nightly", "--", "echo {i}")
    assert "did you mean 'nightly'?" in raymc.refused("wait", "--group", "nigthly")


def test_a_taken_id_is_refused(raymc: Commands) -> None:
    assert raymc.run("submit", "--submission-id", "one", "--", "echo").code == 0
    assert "submission id 'one' already exists" in raymc.refused(
        "submit", "--submission-id", "one", "--", "ls"
    )


def test_a_secret_in_bad_json_or_yaml_is_not_repeated(raymc: Commands) -> None:
    (raymc.folder / "env.yaml").write_text("env_vars:\n  TOKEN: hunter2\n :\n- x\n")
    assert "hunter2" not in raymc.refused("submit", "--runtime-env", "env.yaml", "--", "ls")
    text = '{"env_vars": {"TOKEN": "hunter2",}}'
    assert "hunter2" not in raymc.refused("submit", "--runtime-env-json", text, "--", "ls")


@pytest.mark.parametrize("command", [["jobs"], ["status", "one"], ["submit", "--", "echo"]])
def test_a_store_that_cannot_be_read_is_named(raymc: Commands, command: list[str]) -> None:
    raymc.run("jobs")
    raymc.stop_leading()
    (store,) = (Path(raymc.folder) / "home").glob("*/jobs.db")
    store.write_bytes(b"this is no database at all" * 100)
    said = raymc.refused(*command)
    assert "jobs.db" in said
    assert "damaged" in said


def test_a_refused_working_directory_leaves_no_job_behind(raymc: Commands) -> None:
    (raymc.folder / "file.txt").write_text("x")
    assert "give its directory" in raymc.refused("submit", "--working-dir", "file.txt", "--", "ls")
    assert raymc.json("jobs") == []
