"""The caller of the service and its role. Each call to the service is made for one caller."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from ray_multicluster_scheduler.errors import Forbidden
from ray_multicluster_scheduler.model.access import AuditEntry


class Role(Enum):
    """What a caller may do. Its value is the name that people write and read."""

    READ = "read"  # look at one's own jobs and at the clusters
    READ_ALL = "read-all"  # look at everybody's jobs, at what runs in the clusters, and at the configuration
    SUBMIT = "submit"  # submit, stop and retry one's own jobs
    OPERATE = "operate"  # the same with everybody's jobs; drain clusters
    ADMIN = "admin"  # users and tokens, reading the configuration again, retention

    @classmethod
    def named(cls, word: str) -> Role:
        """Return the role of this name; raises KeyError."""
        return {role.word: role for role in cls}[word.lower()]

    @property
    def word(self) -> str:
        """The name that people write and read."""
        return self.value

    def includes(self, role: Role) -> bool:
        """Tell whether whoever has this role may do what the other one allows."""
        return role in _INCLUDED[self]


_INCLUDED = {
    Role.READ: {Role.READ},
    Role.READ_ALL: {Role.READ, Role.READ_ALL},
    Role.SUBMIT: {Role.READ, Role.SUBMIT},
    Role.OPERATE: {Role.READ, Role.READ_ALL, Role.SUBMIT, Role.OPERATE},
    Role.ADMIN: set(Role),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Somebody who uses the service."""

    user: str
    role: Role = Role.ADMIN
    #: The token that identified the caller, for the audit trail; None: a call within this process.
    token_id: str | None = None
    #: The job whose program is calling, if any. Jobs that it submits become children of that job.
    job: str | None = None
    #: Where the request came from, for the audit trail; None: this machine, without a server.
    address: str | None = None

    @property
    def only(self) -> str | None:
        """Whose jobs exist for this caller; None: everybody's."""
        return None if self.may(Role.READ_ALL) else self.user

    def may(self, role: Role) -> bool:
        """Tell whether this caller has a role, or one that includes it."""
        return self.role.includes(role)

    def check(self, role: Role) -> None:
        """Refuse a caller that does not have this role."""
        if not self.may(role):
            raise Forbidden(
                f"this needs the role {role.word!r}; the token of {self.user!r} has {self.role.word!r}. "
                "Ask whoever runs this server: raymc token create"
            )

    def sees(self, user: str) -> bool:
        """Tell whether the jobs of this user exist for this caller."""
        return self.user == user or self.may(Role.READ_ALL)


def check_may_act_for(caller: Caller, users: Collection[str]) -> None:
    """Refuse to act for another user: quotas, fair shares and visibility depend on the user."""
    for user in sorted(users):
        if user != caller.user and not caller.may(Role.OPERATE):
            raise Forbidden(
                f"this job names the user {user!r}, and you are {caller.user!r}; leave the user out, or use "
                "a token with the role 'operate'"
            )


def audit_entry(by: Caller, action: str, target: str = "", *, now: float) -> AuditEntry:
    """Return the line of the audit trail that says what a caller does."""
    return AuditEntry(
        at=now, user=by.user, token_id=by.token_id, action=action, target=target, address=by.address
    )
