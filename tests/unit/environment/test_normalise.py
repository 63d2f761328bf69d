"""What people write in a runtime_env: every form is understood, and what Ray would refuse is refused here."""

from typing import Any

import pytest

from ray_multicluster_scheduler.environment.compose import normalise
from ray_multicluster_scheduler.errors import InvalidRuntimeEnv


def norm(runtime_env: Any, **arguments: Any) -> dict[str, Any]:
    return normalise(runtime_env, where="runtime_env", **arguments)


class TestEveryFormThatPeopleWrite:
    def test_nothing_given_is_an_empty_environment(self) -> None:
        assert norm(None) == norm({}) == {}

    @pytest.mark.parametrize(
        "empty",
        [{"pip": None}, {"pip": []}, {"env_vars": {}}, {"conda": {}}, {"excludes": []}, {"config": {}}],
    )
    def test_an_empty_option_is_left_out(self, empty: dict[str, Any]) -> None:
        assert norm(empty) == {}

    def test_env_vars_may_be_a_list_of_assignments(self) -> None:
        assert norm({"env_vars": ["A=1", "B=x=y", "C="]}) == {"env_vars": {"A": "1", "B": "x=y", "C": ""}}

    def test_numbers_in_env_vars_become_text(self) -> None:
        assert norm({"env_vars": {"OMP_NUM_THREADS": 4, "RATE": 0.5}})["env_vars"] == {
            "OMP_NUM_THREADS": "4",
            "RATE": "0.5",
        }

    @pytest.mark.parametrize(
        "written", ["/home/user/code:$PYTHONPATH", "/home/user/code:\n ${PYTHONPATH}\n\n"]
    )
    def test_a_search_path_is_one_line_with_the_reference_that_ray_resolves(self, written: str) -> None:
        env = norm({"env_vars": {"PYTHONPATH": written}})
        assert env["env_vars"]["PYTHONPATH"] == "/home/user/code:${PYTHONPATH}"

    def test_other_variables_keep_their_text_exactly(self) -> None:
        variables = {"NOTE": " a:\n:b $PYTHONPATH "}
        assert norm({"env_vars": variables}) == {"env_vars": variables}

    @pytest.mark.parametrize(
        "conda", ["my_env", {"conda_env_name": "my_env", "conda_env_file": "environment.yml"}]
    )
    def test_a_named_conda_environment_wins_over_the_file_it_was_made_from(self, conda: Any) -> None:
        assert norm({"conda": conda}) == {"conda": "my_env"}

    @pytest.mark.parametrize("conda", ["environment.yml", {"conda_env_file": "environment.yml"}])
    def test_a_conda_file_is_read_by_the_caller(self, conda: Any) -> None:
        files = {"environment.yml": {"dependencies": ["python=3.10"]}}
        assert norm({"conda": conda}, read=files.__getitem__) == {"conda": files["environment.yml"]}

    def test_a_requirements_file_is_read_by_the_caller(self) -> None:
        text = "# ours\npandas==1.5.3  # pinned\n\nrequests==2.31 \\\n  --hash=sha256:00\n-r more.txt\n"
        assert norm({"pip": "requirements.txt"}, read=lambda _: text) == {
            "pip": ["pandas==1.5.3", "requests==2.31    --hash=sha256:00", "-r more.txt"]
        }

    @pytest.mark.parametrize("env", [{"pip": "requirements.txt"}, {"conda": "environment.yml"}])
    def test_without_a_reader_no_file_is_touched_and_the_message_says_what_to_write(
        self, env: dict[str, str]
    ) -> None:
        with pytest.raises(InvalidRuntimeEnv, match=r"cannot be read here; (write|name)"):
            norm(env)

    def test_pip_with_options_stays_a_mapping_and_without_them_becomes_a_list(self) -> None:
        assert norm({"pip": {"packages": ["a"]}}) == {"pip": ["a"]}
        assert norm({"pip": {"packages": ["a"], "pip_check": True}}) == {
            "pip": {"packages": ["a"], "pip_check": True}
        }

    @pytest.mark.parametrize(
        "item",
        [
            "pandas",
            "ray[data]==2.52.1",
            "x @ https://host/x.whl",
            "git+https://host/x.git",
            "-r ${RAY_RUNTIME_ENV_CREATE_WORKING_DIR}/requirements.txt",
            "--index-url https://host/simple",
            "/shared/wheels/x.whl",
            "requests==2.31 --hash=sha256:00",
            'numpy<2; python_version < "3.10"',
        ],
    )
    def test_whatever_pip_understands_is_a_requirement(self, item: str) -> None:
        assert norm({"pip": [item]}) == {"pip": [item]}
        assert norm({"uv": [item]}) == {"uv": [item]}

    @pytest.mark.parametrize(
        "env",
        [
            {"working_dir": "/path/to/your/code"},
            {"working_dir": "./", "excludes": ["*.pyc", "__pycache__", "*.log"]},
            {"working_dir": "s3://bucket/code.zip", "py_modules": ["https://host/x-1.0-py3-none-any.whl"]},
            {"working_dir": "local:///opt/app"},
            {
                "image_uri": "rayproject/ray:2.60.0",
                "env_vars": {"A": "1"},
                "config": {"eager_install": False},
            },
            {"container": {"image": "x", "run_options": ["--tls-verify=false"]}},
            {"worker_process_setup_hook": "my.module.setup", "py_executable": "python3.11"},
            {"config": {"setup_timeout_seconds": -1}},
            {"_ray_commit": "abc", "nsight": {"t": "cuda"}},
        ],
    )
    def test_what_ray_takes_as_it_is_stays_as_it_is(self, env: dict[str, Any]) -> None:
        assert norm(env) == env


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("env", "said"),
        [
            ({"pips": ["a"]}, r"unknown option 'pips'; did you mean 'pip'\?"),
            ({"xyz": 1}, "unknown option 'xyz'; known are conda, config"),
            ({"env_vars": {"A": None}}, "env_vars: A has no value; give text in quotes"),
            ({"env_vars": {"A": {"B": "1"}}}, "env_vars: A is a dict"),
            (
                {"env_vars": {"A": True}},
                "A is a boolean; write the text that the program should see, in quotes",
            ),
            ({"env_vars": {"A B": "1"}}, "a name is empty, or is not text without spaces"),
            ({"env_vars": ["A=1", "B"]}, "item 2 is not of the form KEY=VALUE"),
            ({"env_vars": ["A=1", "A=2"]}, "A is given twice"),
            ({"env_vars": "A=1"}, "must be a mapping or a list of KEY=VALUE items, not str"),
            (
                {"env_vars": {"RAY_MULTICLUSTER_ATTEMPT": "7"}},
                "RAY_MULTICLUSTER_ATTEMPT is set by the scheduler",
            ),
            ({"pip": ["pandas=1.5"]}, "'pandas=1.5' is not a requirement that pip understands"),
            ({"pip": [1]}, "pip: must be a list of text items"),
            ({"pip": {"pip_check": True}}, "pip: a mapping needs 'packages'"),
            ({"pip": {"packages": ["a"], "pip_chek": True}}, r"did you mean 'pip_check'\?"),
            ({"pip": {"packages": ["a"], "pip_check": "no"}}, "pip_check must be a bool"),
            ({"uv": {"packages": ["a"], "uv_version": 1}}, "uv_version must be a str"),
            ({"conda": 7}, "conda: must be text, not int"),
            ({"conda": {"dependencies": "a"}}, "'dependencies' must be a list"),
            ({"conda": {"dependencies": [{"uv": ["a"]}]}}, "each dependency is text, or one mapping"),
            ({"working_dir": ""}, "working_dir: the path is empty"),
            ({"working_dir": "hdfs://host/code.zip"}, "Ray cannot fetch hdfs:// URIs; it takes abfss"),
            ({"working_dir": "s3://bucket/code"}, "a URI must end in .zip"),
            ({"working_dir": "local://opt/app"}, "a local:// URI needs an absolute path"),
            ({"py_modules": "a.whl"}, "py_modules: must be a list"),
            ({"excludes": "*.pyc"}, "excludes: must be a list"),
            (
                {"config": {"setup_timeout_seconds": 0}},
                "setup_timeout_seconds must be a whole number above 0",
            ),
            ({"config": {"timeout": 3}}, "config: unknown key 'timeout'"),
            ({"worker_process_setup_hook": print}, "'module.function'"),
            ({"nsight": {"x": object()}}, "a object cannot be sent to a cluster"),
            ({"container": {"run_options": []}}, "container: must name its 'image'"),
            ({"pip": ["a"], "uv": ["b"]}, "two installers; put all packages under one"),
            (
                {"image_uri": "x", "pip": ["a"]},
                "only env_vars and config beside it, not pip. Build them into",
            ),
            ({"conda": "ml-env", "uv": ["a"]}, "uv cannot add packages to the conda environment 'ml-env'"),
            (
                {"conda": {"dependencies": ["a"]}, "pip": {"packages": ["b"], "pip_check": True}},
                "pip_check: with a conda mapping it is conda that installs",
            ),
        ],
    )
    def test_with_the_place_the_reason_and_the_way_out(self, env: dict[str, Any], said: str) -> None:
        with pytest.raises(InvalidRuntimeEnv, match=f"^runtime_env: .*{said}"):
            norm(env)

    def test_a_list_is_no_environment(self) -> None:
        with pytest.raises(InvalidRuntimeEnv, match="must be a mapping, not list"):
            norm(["pip"])

    def test_all_problems_of_an_environment_are_told_at_once(self) -> None:
        with pytest.raises(InvalidRuntimeEnv) as refusal:
            norm({"pips": ["a"], "excludes": "x", "env_vars": {"A": None}})
        assert len(str(refusal.value).splitlines()) == 3

    @pytest.mark.parametrize("wrong", ["s3cr3t\0", ["s3cr3t"], {"x": "s3cr3t"}, True])
    def test_no_message_shows_the_value_of_a_variable(self, wrong: Any) -> None:
        with pytest.raises(InvalidRuntimeEnv) as refusal:
            norm({"env_vars": {"TOKEN": wrong}})
        assert "s3cr3t" not in str(refusal.value)

    def test_uv_with_a_named_conda_environment_names_all_ways_out(self) -> None:
        with pytest.raises(InvalidRuntimeEnv) as refusal:
            norm({"uv": ["pandas==1.5.3"], "conda": "ml-env"})
        assert "write the packages under pip" in str(refusal.value)
        assert "install them into it on the cluster" in str(refusal.value)
        assert "{'dependencies': ['python=3.10', {'pip': ['pandas']}]}" in str(refusal.value)
