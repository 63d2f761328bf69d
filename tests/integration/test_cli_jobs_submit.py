"""`raymc submit`: the log on stdout, the story on stderr, and every option where it belongs."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.job_commands import Commands, commands, two
from tests.support.job_commands import raymc_both_ways as raymc
from tests.support.system import fake

from ray_multicluster_scheduler.model.job import Target
from ray_multicluster_scheduler.model.resources import GIB
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.service.service import LocalService
from ray_multicluster_scheduler.testing import ShellRunner

__all__ = ["raymc", "two"]


def test_the_log_goes_to_stdout_and_the_story_to_stderr(raymc: Commands) -> None:
    done = raymc.run("submit", "--submission-id", "one", "--", "echo hello; echo bye")
    assert done.code == 0
    assert done.out.splitlines()[-2:] == ["hello", "bye"]
    assert "Ctrl-C stops it" in done.err
    assert "one SUCCEEDED on centos" in done.err


def test_a_failed_job_ends_the_command_with_1_and_says_why(raymc: Commands) -> None:
    done = raymc.run("submit", "--submission-id", "one", "--", "echo oops; exit 3")
    assert done.code == 1
    assert "oops" in done.out
    assert "one FAILED on centos: its program ended with exit code 3" in done.err


def test_one_word_is_a_command_line_and_several_words_are_quoted(raymc: Commands) -> None:
    assert raymc.run("submit", "--submission-id", "line", "--", "echo a && echo b").code == 0
    assert raymc.run("submit", "--submission-id", "words", "--", "echo", "a  b", "--cpus").code == 0
    assert raymc.job("line").spec.entrypoint == "echo a && echo b"
    assert raymc.job("words").spec.entrypoint == "echo 'a  b' --cpus"


def test_the_options_of_ray_reach_ray(raymc: Commands) -> None:
    (raymc.folder / "env.yaml").write_text("env_vars: {FROM: file}\n")
    options = {
        "--submission-id": "mine",
        "--runtime-env": "env.yaml",
        "--entrypoint-num-cpus": "1.5",
        "--entrypoint-memory": "1000",
        "--metadata-json": '{"project": "ml"}',
    }
    done = raymc.run("submit", *(word for pair in options.items() for word in pair), "--", "echo")
    assert done.code == 0, done.err
    sent = raymc.fakes["centos"].jobs["mine"].submission
    assert sent.demand == {"CPU": 1.5, "memory": 1000.0}
    assert sent.runtime_env is not None
    assert sent.runtime_env["env_vars"]["FROM"] == "file"
    assert sent.metadata is not None
    assert sent.metadata["project"] == "ml"


def test_gpus_and_custom_resources_of_the_driver_reach_ray(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with commands(tmp_path, monkeypatch, fake("gpu", gpus=2, resources={"disk": 5})) as raymc:
        options = ("--entrypoint-num-gpus", "1", "--entrypoint-resources", '{"disk": 2}')
        assert raymc.run("submit", "--submission-id", "g", *options, "--", "echo").code == 0
        assert raymc.fakes["gpu"].jobs["g"].submission.demand == {"GPU": 1.0, "disk": 2.0}


def test_our_own_options_are_kept_with_the_job(two: Commands) -> None:
    assert two.run("submit", "--submission-id", "first", "--", "echo").code == 0
    options = {
        "--submission-id": "second",
        "--cluster": "mac",
        "--cpus": "2",
        "--memory": "0.5",
        "--tag": "linux",
        "--priority": "7",
        "--after": "first",
        "--retries": "2",
        "--timeout": "60",
        "--queue-timeout": "50",
        "--on-unreachable": "30",
        "--name": "train",
    }
    done = two.run("submit", *(word for pair in options.items() for word in pair), "--", "echo")
    assert done.code == 0, done.err
    job = two.job("second")
    assert job.spec.preferred_cluster == "mac"
    assert job.spec.requirements == {"CPU": 2.0, "memory": 0.5 * GIB}
    assert (job.spec.tags, job.spec.priority, job.spec.depends_on) == (("linux",), 7, ("first",))
    assert (job.spec.max_retries, job.spec.timeout_s, job.spec.queue_timeout_s) == (2, 60.0, 50.0)
    assert (job.spec.on_unreachable, job.spec.name, job.spec.user) == (30.0, "train", "ann")


def test_retries_are_made_and_a_job_after_a_failed_one_fails(raymc: Commands) -> None:
    done = raymc.run("submit", "--submission-id", "bad", "--retries", "1", "--", "echo try; exit 1")
    assert done.code == 1
    assert raymc.job("bad").attempt == 2
    assert "attempt 2" in done.out
    after = raymc.run("submit", "--submission-id", "next", "--after", "bad", "--", "echo")
    assert after.code == 1
    assert "bad" in after.err


def test_a_working_directory_travels_and_an_array_packs_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "work.sh").write_text("echo part $1 of the code")
    with commands(tmp_path, monkeypatch, fake("a", runner=ShellRunner())) as raymc:
        done = raymc.run("submit", "--working-dir", "code", "--", "sh work.sh 7")
        assert (done.code, done.out.splitlines()[-1]) == (0, "part 7 of the code")
        many = raymc.run("submit", "--array", "0-4", "--working-dir", "./code", "--", "sh work.sh {i}")
        assert many.code == 0, many.err
        # That of the jobs, and this package itself, which goes along.
        assert len(raymc.fakes["a"].cluster.packages) == 2


@pytest.fixture
def with_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Commands]:
    """A cluster that really runs commands, and a script in the current directory."""
    (tmp_path / "work.sh").write_text("echo part $1 of the code")
    with commands(tmp_path, monkeypatch, fake("a", runner=ShellRunner())) as ready:
        yield ready


def test_a_script_that_lies_here_is_refused_with_the_command_that_sends_it(with_script: Commands) -> None:
    told = with_script.refused("submit", "--", "sh", "work.sh", "a b")
    assert told.endswith("raymc submit --working-dir . -- sh work.sh 'a b'")
    assert "raymc submit --working-dir . -- 'sh work.sh'" in with_script.refused(
        "submit", "--dry-run", "--", "sh work.sh"
    )
    assert "is a relative path" in with_script.refused("submit", "--", "sh", "elsewhere.sh")
    assert "is a relative path" in with_script.refused("submit", "--", "sh", "../work.sh")
    assert with_script.json("jobs") == []


def test_a_script_that_lies_here_takes_its_directory_along_by_a_setting(
    with_script: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_MULTICLUSTER_WORKING_DIR", "auto")
    done = with_script.run("submit", "--", "sh", "work.sh", "7")
    assert (done.code, done.out.splitlines()[-1]) == (0, "part 7 of the code")
    assert "work.sh lies here: this directory goes along" in done.err
    many = with_script.run("submit", "--no-wait", "--array", "0-2", "--", "sh work.sh {i}")
    assert many.code == 0, many.err
    assert with_script.run("submit", "--dry-run", "--", "sh", "work.sh").code == 0
    monkeypatch.setenv("RAY_MULTICLUSTER_WORKING_DIR", "yes")
    told = with_script.refused("submit", "--", "sh", "work.sh")
    assert "RAY_MULTICLUSTER_WORKING_DIR may be 'auto' or unset, not 'yes'" in told


def test_variables_of_the_command_line_and_the_index_reach_the_job(
    with_script: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FROM_HERE", "there")
    (with_script.folder / "work.sh").write_text("echo $A $B $FROM_HERE $RAY_MULTICLUSTER_ARRAY_INDEX")
    given = ("--runtime-env-json", '{"env_vars": {"A": "0", "B": "b"}}', "-e", "A=x=1", "--env", "FROM_HERE")
    assert with_script.run("submit", *given, "--working-dir", ".", "--", "sh work.sh").out.endswith(
        "\nx=1 b there\n"
    )
    ids = ("--array", "3,5", "--submission-id", "arr")
    assert with_script.run("submit", *ids, *given, "--working-dir", ".", "--", "sh work.sh").code == 0
    written = [with_script.run("logs", f"arr-{index}").out.splitlines()[-1] for index in (3, 5)]
    assert written == ["x=1 b there 3", "x=1 b there 5"]


def test_json_environment_and_working_dir_go_together(two: Commands) -> None:
    (two.folder / "here").mkdir()
    env = json.dumps({"env_vars": {"A": "1"}, "working_dir": "/nowhere"})
    plan = two.json("submit", "--dry-run", "--runtime-env-json", env, "--working-dir", "here", "--", "echo")
    for sent in plan["environments"].values():
        assert sent["runtime_env"]["env_vars"]["A"] == "1"
        assert sent["runtime_env"]["working_dir"].startswith("gcs://")


@pytest.mark.parametrize(
    "asked",
    [
        ["--cpus", "99"],
        ["--gpus", "1"],
        ["--memory", "900000"],
        ["--submission-id", "there"],
        ["--submission-id", "there--r2"],
        ["--submission-id", "new", "--runtime-env-json", '{"env_vars": {"TOKEN": "<redacted>"}}'],
    ],
    ids=" ".join,
)
def test_a_dry_run_refuses_what_submit_refuses(raymc: Commands, asked: list[str]) -> None:
    raymc.no_wait("--submission-id", "there", "--", "echo")
    raymc.run("wait", "there")  # a refusal tells its state
    submitted = raymc.refused("submit", *asked, "--", "echo")
    assert raymc.refused("submit", "--dry-run", *asked, "--", "echo") == submitted


def test_a_waiting_job_says_for_what_it_waits(two: Commands) -> None:
    for cluster in two.fakes:
        two.use(cluster, 2.0)
    done = two.run("submit", "--cpus", "3", "--queue-timeout", "5", "--", "echo")
    assert done.code == 1
    assert "QUEUED: centos: needs 3 CPU; free: 2 CPU of 4 CPU; mac: needs 3 CPU" in done.err
    why = "queue_timeout_s of 5 s. Last reason: centos: needs 3 CPU; free: 2 CPU of 4 CPU; mac: needs 3 CPU"
    (job,) = two.json("jobs")
    assert why in job["message"]
    for command in ("explain", "info", "events"):
        assert why in two.run(command, job["submission_id"]).out


def test_a_dry_run_shows_scores_refusals_and_environments_and_submits_nothing(two: Commands) -> None:
    two.configure(
        {
            "centos": {"runtime_env": {"env_vars": {"home_dir": "/home/z", "API_TOKEN": "hush-hush"}}},
            "mac": {"runtime_env": {"env_vars": {"home_dir": "/Users/z"}}},
        }
    )
    done = two.run("submit", "--dry-run", "--cpus", "3", "--", "python", "/home/z/x.py")
    assert done.code == 0
    assert "It would go to centos: only candidate." in done.out
    assert (
        done.out.index("It would go to") < done.out.index("score") < done.out.index("The highest score wins")
    )
    assert "mac: needs 3 CPU; the whole cluster has 2 CPU" in done.out
    for words in (
        "cluster  fit   weight",
        "python /home/z/x.py",
        "python /Users/z/x.py",
        "API_TOKEN: <redacted>",
    ):
        assert words in done.out
    assert "hush" not in done.out
    assert two.json("jobs") == []
    assert not two.fakes["centos"].jobs


def test_a_dry_run_of_a_job_that_would_wait_says_what_would_help(two: Commands) -> None:
    two.use("centos", 3.0)
    done = two.run("submit", "--dry-run", "--array", "3-5", "--cpus", "4", "--", "echo {i}")
    assert "An array of 3 jobs; shown is its first" in done.out
    assert "It would wait, at place 1 of the queue. What would let it start now:" in done.out
    assert "ask for 2 CPU instead of 4 CPU: 'mac' has that free" in done.out
    assert "echo 3" in done.out


def test_a_job_that_somebody_else_stops_is_no_success(raymc: Commands) -> None:
    submission_id = raymc.no_wait("--", "sleep 60")
    assert raymc.run("stop", submission_id).code == 0
    assert raymc.run("wait", submission_id).code == 1
    assert raymc.job(submission_id).state is JobState.STOPPED


def test_ctrl_c_before_the_job_is_accepted_leaves_an_older_one_of_that_id_alone(
    raymc: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    raymc.no_wait("--submission-id", "one", "--", "sleep 600")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(LocalService, "submit", interrupted)
        done = raymc.run("submit", "--submission-id", "one", "--", "echo")
    assert done.code == 130
    assert "stopping" not in done.err
    assert raymc.job("one").target is Target.FINISHED
