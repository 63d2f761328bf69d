"""Stops or retries many jobs at once, after somebody has confirmed how many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ray_multicluster_scheduler.dashboard.page import Page
from ray_multicluster_scheduler.dashboard.parts.confirm import confirmed
from ray_multicluster_scheduler.dashboard.parts.job_rows import RETRIED, title_of
from ray_multicluster_scheduler.model.states import FINAL, JobState
from ray_multicluster_scheduler.service.api import Service
from ray_multicluster_scheduler.service.caller import Role
from ray_multicluster_scheduler.service.query import MOST_PAGE_JOBS, JobQuery
from ray_multicluster_scheduler.service.views import JobView

#: For each action the states of the jobs that it changes.
ACTIONS = {"stop": frozenset(JobState) - FINAL, "retry": RETRIED}
#: How many of the jobs are named in the question.
NAMED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Picked:
    """What is selected: single jobs, and jobs that stand for all that are listed under them."""

    action: str
    jobs: tuple[str, ...]
    heads: tuple[str, ...]

    @classmethod
    def sent(cls, args: Any) -> Picked | None:
        """Return what a browser has sent; None: no browser of ours sends that."""
        if not isinstance(args, dict) or args.get("action") not in [*ACTIONS]:
            return None
        return cls(action=args["action"], jobs=_texts(args.get("jobs")), heads=_texts(args.get("heads")))


def _texts(given: Any) -> tuple[str, ...]:
    return tuple(each for each in given if isinstance(each, str)) if isinstance(given, list) else ()


def meant(picked: Picked, service: Service) -> tuple[JobView, ...]:
    """Return the selected jobs that the action still changes, each once."""
    states = ACTIONS[picked.action]
    found = service.get_many(picked.jobs)
    for head in picked.heads:
        found |= _listed_under(head, service, tuple(sorted(states)))
    return tuple(job for job in found.values() if job.state in states and (job.final or not job.stopping))


def _listed_under(head: str, service: Service, states: tuple[JobState, ...]) -> dict[str, JobView]:
    query = JobQuery(head=head, states=states, limit=MOST_PAGE_JOBS)
    found: dict[str, JobView] = {}
    while True:
        page = service.list_jobs(query)
        found |= {job.submission_id: job for job in page.jobs}
        if page.next_cursor is None:
            return found
        query = replace(query, cursor=page.next_cursor)


async def act_on(page: Page, picked: Picked) -> bool:
    """Ask whether that is really meant, and do it. False: nothing was done."""
    action = picked.action
    jobs = await page.ask(partial(meant, picked), role=Role.SUBMIT)
    if not jobs:
        page.say(page.t(f"jobs.{action}_none"))
        return False
    if not await _confirmed(page, action, jobs):
        return False
    ids = [job.submission_id for job in jobs]

    def change(service: Service) -> tuple[JobView, ...]:
        return service.stop(ids) if action == "stop" else service.retry(ids)

    done = page.t(f"jobs.{action}_done", n=len(ids))
    return await page.act(Role.SUBMIT, change, done=done) is not None


async def _confirmed(page: Page, action: str, jobs: Sequence[JobView]) -> bool:
    number = len(jobs)
    question = page.t(f"jobs.{action}_one" if number == 1 else f"jobs.{action}_many", n=number)
    names = [title_of(job) for job in jobs[:NAMED]]
    if number > NAMED:
        names.append(page.t("jobs.and_more", n=number - NAMED))
    do, colour = page.t(f"jobs.{action}", n=number), "negative" if action == "stop" else "primary"
    return await confirmed(page, question, about="\n".join(names), do=do, colour=colour)
