"""What the pages about access and processes show, and in which order."""

from typing import Any

from ray_multicluster_scheduler.dashboard.pages.access_page import JOBS, Use, in_order, state_of, uses
from ray_multicluster_scheduler.dashboard.pages.processes_page import matching
from ray_multicluster_scheduler.model.access import Token
from ray_multicluster_scheduler.service.administration import UserView
from ray_multicluster_scheduler.service.views import ProcessView

NOW = 1000.0


def a_token(name: str, **changes: Any) -> Token:
    fields = {"user": "ann", "role": "submit", "created_at": 1.0}
    times = {"expires_at": None, "revoked_at": None, "used_at": None}
    return Token(id=name, **{**fields, **times, **changes})


def a_process(**changes: Any) -> ProcessView:
    return ProcessView(
        **{"cluster": "a", "kind": "job", "state": "RUNNING", "what": "", "why": "", **changes}
    )


def test_a_token_is_valid_until_it_is_revoked_or_expires() -> None:
    assert state_of(a_token("a", expires_at=NOW + 1), now=NOW) == "valid"
    assert state_of(a_token("a", expires_at=NOW), now=NOW) == "expired"
    assert state_of(a_token("a", revoked_at=5.0, expires_at=NOW), now=NOW) == "revoked"


def test_valid_tokens_come_first_and_the_newest_of_them_before_others() -> None:
    old, new = a_token("old"), a_token("new", created_at=2.0)
    gone = a_token("gone", created_at=3.0, revoked_at=4.0)
    assert in_order([old, gone, new], now=NOW, all_of_them=True) == [new, old, gone]
    assert in_order([old, gone, new], now=NOW, all_of_them=False) == [new, old]


def test_what_a_user_has_is_compared_with_what_is_allowed() -> None:
    user = UserView(
        user="ann",
        roles=(),
        tokens=0,
        open_jobs=3,
        claimed={"CPU": 4.0, "GPU": 0.0},
        quota_jobs=10,
        quota_resources={"memory": 64.0},
    )
    assert uses(user) == (
        Use(name=JOBS, used=3, most=10),
        Use(name="CPU", used=4.0, most=None),
        Use(name="memory", used=0.0, most=64.0),
    )


def test_processes_are_filtered_by_cluster_and_kind() -> None:
    job, task, other = a_process(), a_process(kind="task"), a_process(cluster="b")
    every = [job, task, other]
    assert matching(every, cluster="", kind="") == every
    assert matching(every, cluster="a", kind="") == [job, task]
    assert matching(every, cluster="", kind="job") == [job, other]
