"""Paths in an entrypoint: moved to the home of the target, and refused when no cluster could find them."""

import re
import shlex

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ray_multicluster_scheduler.environment.paths import map_paths, relative_script

#: A busy machine is no finding.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
LINUX = "/home/zorro/"
MAC = "/Users/zorro/"
HOMES = (LINUX, MAC)


def on_mac(entrypoint: str) -> str:
    return map_paths(entrypoint, HOMES, MAC)


@pytest.mark.parametrize(
    ("entrypoint", "expected"),
    [
        ("cd /tmp\n/home/zorro/run.sh", "cd /tmp\n/Users/zorro/run.sh"),
        ("python /home/zorro//project/predict.py", "python /Users/zorro//project/predict.py"),
        ("python /home//zorro/project/predict.py", "python /Users/zorro/project/predict.py"),
        ("python /home/zorro/a.py --data=/home/zorro/x", "python /Users/zorro/a.py --data=/Users/zorro/x"),
        (
            "PYTHONPATH=/home/zorro/a:/home/zorro/b python x",
            "PYTHONPATH=/Users/zorro/a:/Users/zorro/b python x",
        ),
        ("PYTHONPATH=${PYTHONPATH}:/home/zorro/b x", "PYTHONPATH=${PYTHONPATH}:/Users/zorro/b x"),
        ('PYTHONPATH="$PYTHONPATH":/home/zorro/b x', 'PYTHONPATH="$PYTHONPATH":/Users/zorro/b x'),
        ("python '/home/zorro/my dir/a.py'", "python '/Users/zorro/my dir/a.py'"),
        ('python a --x="/home/zorro/y z"', 'python a --x="/Users/zorro/y z"'),
        ("bash -c 'cd /home/zorro && ls'", "bash -c 'cd /Users/zorro && ls'"),
        ("run \"python '/home/zorro/a'\"", "run \"python '/Users/zorro/a'\""),
        ('run \'{"in":"s3://b/x","d":"/home/zorro/x"}\'', 'run \'{"in":"s3://b/x","d":"/Users/zorro/x"}\''),
        ("run dirs=[/home/zorro/a,/home/zorro/b]", "run dirs=[/Users/zorro/a,/Users/zorro/b]"),
        ("cd /home/zorro;ls>/home/zorro/log", "cd /Users/zorro;ls>/Users/zorro/log"),
        ("echo $(cat /home/zorro/x)", "echo $(cat /Users/zorro/x)"),
        ("/home/zorro/run.sh", "/Users/zorro/run.sh"),
        ("ls /home/zorro", "ls /Users/zorro"),
    ],
)
def test_a_path_below_a_home_moves_to_the_targets(entrypoint: str, expected: str) -> None:
    assert on_mac(entrypoint) == expected


@pytest.mark.parametrize(
    "entrypoint",
    [
        "python /home/zorro2/a.py",
        "python /home/zorro-old/a.py /home/zorro.bak /home/zorro*",
        "python /mnt/home/zorro/a.py",
        "run --data=s3://bucket/home/zorro/x https://host/home/zorro",
        "run file:///home/zorro/x hdfs://home/zorro/x https://host/?p=/home/zorro/x",
        "rsync user@host:/home/zorro/x .",
        "run ${ROOT}/home/zorro/x $(pwd)/home/zorro/x $ROOT/home/zorro",
        'run "$ROOT"/home/zorro/x',
        "run home/zorro/x ./home/zorro/x",
    ],
)
def test_what_only_looks_like_a_home_stays(entrypoint: str) -> None:
    assert on_mac(entrypoint) == entrypoint


def test_the_longest_home_wins() -> None:
    homes = ("/data", "/data/zorro", "/data/zorro/deep")
    assert map_paths("ls /data/zorro/x /data/y /data/zorro/deeper", homes, "/t") == "ls /t/x /t/y /t/deeper"


@pytest.mark.parametrize("target", [None, "", "/", "relative", "/home/with space"])
def test_a_target_without_a_usable_home_changes_nothing(target: str | None) -> None:
    assert map_paths("python /home/zorro/a.py", HOMES, target) == "python /home/zorro/a.py"


def test_homes_that_cannot_be_homes_are_no_pattern_for_anything() -> None:
    assert map_paths("python /etc/a.py", ("/", "", "x"), MAC) == "python /etc/a.py"


def test_homes_in_any_script_are_mapped() -> None:
    assert map_paths("python /home/张三/a.py", ("/home/张三",), "/Users/zhang") == "python /Users/zhang/a.py"


names = st.text("abz019_.-é三", min_size=1, max_size=4).filter(lambda name: set(name) - {"."})
homes = st.lists(names, min_size=2, max_size=3).map(lambda segments: "/" + "/".join(segments))
#: None of them lies below another, as homes of different machines.
home_pairs = st.tuples(homes, homes).filter(
    lambda pair: not (f"{pair[0]}/".startswith(f"{pair[1]}/") or f"{pair[1]}/".startswith(f"{pair[0]}/"))
)


@st.composite
def entrypoints(draw: st.DrawFn, home: str) -> str:
    """Commands that name paths below `home`, quoted and not, between words that are none."""
    path = st.lists(names, max_size=3).map(lambda rest: "/".join([home, *rest]))
    word = st.one_of(
        names,
        path,
        path.map(lambda p: f"--data={p}"),
        path.map(lambda p: f"'{p} and more'"),
        st.tuples(path, path).map(lambda p: f"X={p[0]}:{p[1]}"),
        path.map(lambda p: f"s3://bucket{p}"),
        path.map(lambda p: f"{p}//doubled"),
    )
    return " ".join(draw(st.lists(word, max_size=5)))


@patient
@given(st.data(), home_pairs)
def test_there_and_back_is_where_it_started(data: st.DataObject, pair: tuple[str, str]) -> None:
    here, there = pair
    entrypoint = data.draw(entrypoints(here))
    assert map_paths(map_paths(entrypoint, pair, there), pair, here) == entrypoint


@patient
@given(st.data(), home_pairs)
def test_mapping_twice_is_mapping_once(data: st.DataObject, pair: tuple[str, str]) -> None:
    once = map_paths(data.draw(entrypoints(pair[0])), pair, pair[1])
    assert map_paths(once, pair, pair[1]) == once


@patient
@given(st.data(), homes)
def test_mapping_a_home_to_itself_changes_nothing(data: st.DataObject, home: str) -> None:
    entrypoint = data.draw(entrypoints(home))
    assert map_paths(entrypoint, [home], f"{home}/") == entrypoint


@patient
@given(st.text("ab/ =:'", max_size=20), st.sampled_from([("/a/b", "/b/a"), ("/a", "/b"), ("/a/a", "/bb")]))
def test_text_without_a_home_is_never_touched(text: str, pair: tuple[str, str]) -> None:
    if not any(home in re.sub("/+", "/", text) for home in pair):
        assert map_paths(text, pair, pair[1]) == text


@patient
@given(st.data(), home_pairs)
def test_the_shell_sees_as_many_words_as_before(data: st.DataObject, pair: tuple[str, str]) -> None:
    entrypoint = data.draw(entrypoints(pair[0]))
    mapped = map_paths(entrypoint, pair, pair[1])
    assert len(shlex.split(mapped)) == len(shlex.split(entrypoint))


@pytest.mark.parametrize(
    ("entrypoint", "script"),
    [
        ("python script.py", "script.py"),
        ("python3.11 -u src/train.py --x 1", "src/train.py"),
        ("python -W ignore -Ximporttime -O a.py", "a.py"),
        ("./run.sh", "./run.sh"),
        ("../run.sh --fast", "../run.sh"),
        ("bin/train", "bin/train"),
        ("ENV=1 python a.py", "a.py"),
        ("env A=1 nohup python a.py &", "a.py"),
        ("cd x && python b.py", "b.py"),
        ("python /abs/a.py; python b.py", "b.py"),
        ("cat /x | python a.py", "a.py"),
        ("bash -euo pipefail run.sh", "run.sh"),
        ("/usr/bin/python3 'my script.py'", "my script.py"),
        ("python \\\n  a.py", "a.py"),
        ("echo one\npython a.py", "a.py"),
        ("python > log.txt a.py", "a.py"),
    ],
)
def test_a_relative_script_is_found(entrypoint: str, script: str) -> None:
    assert relative_script(entrypoint) == script


@pytest.mark.parametrize(
    "entrypoint",
    [
        "python /home/user/script.py --input data.csv",
        "python -m package.module",
        "python -um package.module train.py",
        "python -c 'import a; print(1)'",
        "python - < /x/script.py",
        "python $HOME/a.py",
        "python ~/a.py",
        'python "$(pwd)/a.py"',
        "echo hi",
        "ls data/x",
        "bash -lc 'python a.py'",
        "cd /home/user/project && python main.py",
        "cd /home/user && cd project && ./run.sh",
        "FOO=bar/baz /abs/run.sh",
        "/abs/run.sh 2>err.log >out/log.txt",
        "python",
        "python 'open quote",
        "",
    ],
)
def test_what_any_cluster_can_resolve_is_fine(entrypoint: str) -> None:
    assert relative_script(entrypoint) is None
