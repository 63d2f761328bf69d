"""An environment that cannot be set up: pip's or conda's own words, and whether to try it there again."""

import pytest

from ray_multicluster_scheduler.environment.setup_failure import MAX_CHARS, fails_again, setup_error

#: What Ray 2.60 writes around the words of the tool, shortened in the middle.
BEGINNING = """runtime_env setup failed: Failed to set up runtime environment.
Could not create the actor because its associated runtime env failed to be created.
[Node 10.0.0.5] Traceback (most recent call last):
  File "/opt/ray/_private/runtime_env/agent/runtime_env_agent.py", line 561, in _create_runtime_env_with_retry
    runtime_env_context = await asyncio.wait_for(
                          ^^^^^^^^^^^^^^^^^^^^^^^
"""
COMMAND = (
    BEGINNING
    + """  File "/opt/ray/_private/runtime_env/utils.py", line 105, in check_output_cmd
    raise SubprocessCalledProcessError(
ray._private.runtime_env.utils.SubprocessCalledProcessError: Run cmd[9] failed with the following details.
Command '['/tmp/ray/pip/4219/virtualenv/bin/python', '-m', 'pip', 'install', '--timeout', '2']' returned non-zero exit status 1.
Last 50 lines of stdout:
"""  # noqa: E501 - as Ray writes it
)
NO_PACKAGE = """    Looking in links: /opt/wheels
    ERROR: Could not find a version that satisfies the requirement nope==9.9 (from versions: none)
    ERROR: No matching distribution found for nope==9.9
"""
CONNECTION = """    WARNING: Retrying (Retry(0)) after connection broken by 'Error('Connection refused')'
"""
UV = """    Using Python 3.11.7 environment at: /tmp/ray/virtualenv
    error: No solution found when resolving dependencies
      cause: Because nope was not found in the package registry, your requirements are unsatisfiable.
"""
CONFLICT = """    Collecting pandas==1.5.3
    ERROR: Cannot install numpy==2.0.0 and pandas==1.5.3 because these package versions have conflicting dependencies.

    The conflict is caused by:
        The user requested numpy==2.0.0
        pandas 1.5.3 depends on numpy<2

    ERROR: ResolutionImpossible: for help visit https://pip.example/dependency-conflicts
"""  # noqa: E501 - as pip writes it
NO_CONDA_NAME = (
    BEGINNING
    + """    raise ValueError(
ValueError: The given conda environment 'ts' from the runtime env {'conda': 'ts', 'env_vars': {'A': '{x}'}} doesn't exist from the output of `conda info --json`. You can only specify an env that already exists. Please make sure to create an env ts """  # noqa: E501
)
NO_CONDA_PACKAGE = (
    BEGINNING
    + """    raise RuntimeError(
RuntimeError: Failed to install conda environment /tmp/ray/conda/ab12:
Output:
Collecting package metadata (repodata.json): ...working... done
Solving environment: ...working... failed

ResolvePackageNotFound:
  - nope=9.9
"""
)
CONDA_HTTP = NO_CONDA_PACKAGE.replace("ResolvePackageNotFound:", "CondaHTTPError: HTTP 000 CONNECTION FAILED")
NO_CONDA = (
    BEGINNING
    + """FileNotFoundError: [Errno 2] No such file or directory: 'conda'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/opt/ray/_private/runtime_env/conda_utils.py", line 195, in get_conda_info_json
    raise ValueError(f"Could not find Conda executable at {conda_path}.")
ValueError: Could not find Conda executable at conda.
"""
)
OTHER_RAY = (
    BEGINNING
    + """    raise RuntimeError(
RuntimeError: Changing the ray version is not allowed:
  current version: 2.52.1, current path: /tmp/ray/pip/virtualenv/lib/ray
  expect version: 2.60.0, expect path: /opt/ray
Please ensure the dependencies in the runtime_env pip field do not install a different version of Ray.
"""
)
TIMED_OUT = (
    BEGINNING.replace(
        "Traceback",
        "Failed to install runtime_env within the timeout of 600 seconds. Consider increasing it. Traceback",
    )
    + "asyncio.exceptions.TimeoutError\n"
)
NO_FILE = BEGINNING + "OSError: Failed to download runtime_env file package gcs://_ray_pkg_01.zip\n"


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (
            COMMAND + NO_PACKAGE,
            "ERROR: Could not find a version that satisfies the requirement nope==9.9 (from versions: none) "
            "ERROR: No matching distribution found for nope==9.9",
        ),
        (
            COMMAND + UV,
            "error: No solution found when resolving dependencies cause: Because nope was not found in the "
            "package registry, your requirements are unsatisfiable.",
        ),
        (NO_CONDA_PACKAGE, "ResolvePackageNotFound: - nope=9.9"),
        (NO_CONDA, "ValueError: Could not find Conda executable at conda."),
        (TIMED_OUT, "Failed to install runtime_env within the timeout of 600 seconds"),
        (NO_FILE, "OSError: Failed to download runtime_env file package gcs://_ray_pkg_01.zip"),
        (
            "runtime_env setup failed: no words that we know",
            "runtime_env setup failed: no words that we know",
        ),
    ],
)
def test_the_words_are_those_of_the_tool(message: str, words: str) -> None:
    assert setup_error(message) == words


def test_a_missing_conda_environment_is_named_without_all_that_the_job_was_sent() -> None:
    words = setup_error(NO_CONDA_NAME)
    assert words.startswith("ValueError: The given conda environment 'ts' doesn't exist from the output of")
    assert "env_vars" not in words


def test_a_conflict_is_told_whole() -> None:
    words = setup_error(COMMAND + CONFLICT)
    assert (
        "The conflict is caused by: The user requested numpy==2.0.0 pandas 1.5.3 depends on numpy<2" in words
    )
    assert "Collecting" not in words


def test_of_many_versions_the_last_ones_are_shown() -> None:
    versions = ", ".join(f"1.{number}" for number in range(300))
    words = setup_error(COMMAND + NO_PACKAGE.replace("none", versions))
    assert "(from versions: …, 1.297, 1.298, 1.299)" in words


def test_a_connection_that_was_refused_is_told_beside_what_pip_makes_of_it() -> None:
    words = setup_error(COMMAND + CONNECTION + NO_PACKAGE)
    assert "No matching distribution found" in words
    assert "Connection refused" in words


def test_what_ray_says_after_the_tool_is_left_out() -> None:
    words = setup_error(
        f"{COMMAND}{NO_PACKAGE}\n\nTraceback (most recent call last):\n  File 'x'\nOSError: gone\n"
    )
    assert words.endswith("ERROR: No matching distribution found for nope==9.9")


def test_words_have_an_end() -> None:
    assert len(setup_error(COMMAND + "    ERROR: " + "x" * 10_000)) < MAX_CHARS + 10


@pytest.mark.parametrize(
    "message",
    [
        COMMAND + NO_PACKAGE, COMMAND + UV, COMMAND + CONFLICT, NO_CONDA_NAME, NO_CONDA_PACKAGE, NO_CONDA,
        OTHER_RAY,
    ],
)  # fmt: skip
def test_what_does_not_exist_fails_again(message: str) -> None:
    assert fails_again(message)


@pytest.mark.parametrize(
    "message",
    [
        COMMAND + CONNECTION + NO_PACKAGE, CONDA_HTTP, TIMED_OUT, NO_FILE, COMMAND + "ERROR: HTTP error 503",
        COMMAND + "    ERROR: Could not install packages: [Errno 28] No space left on device", "",
    ],
)  # fmt: skip
def test_networks_disks_and_what_nobody_knows_may_be_better_next_time(message: str) -> None:
    assert not fails_again(message)
