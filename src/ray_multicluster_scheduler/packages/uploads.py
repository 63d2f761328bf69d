"""Packages that users have uploaded, under the names that Ray's clients choose.

Such a name says little about the content (that of a wheel only has its version), and two users may choose the
same name. So each user has a name space, in which a name refers to a content. Only a note for each name is
written, in the job store, where every server finds it. The content itself is in the `PackageStore`, once,
however many users have uploaded it.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from ray_multicluster_scheduler.errors import InvalidRequest, InvalidRuntimeEnv, QuotaExceeded
from ray_multicluster_scheduler.model.storage import Upload
from ray_multicluster_scheduler.packages.shared_packages import NOTED_EVERY_S, is_name
from ray_multicluster_scheduler.packages.store import PackageStore

if TYPE_CHECKING:
    from ray_multicluster_scheduler.store.packages import Uploads as UploadNotes

#: Names that Ray's clients derive from the content of a directory or an archive.
ARCHIVE_NAME = re.compile(r"_ray_pkg_[0-9a-f]{16,40}\.(zip|tar\.gz|tar\.xz)", re.ASCII)
LONGEST_NAME = 200
#: With the hash of its content, the name of a wheel is a little longer.
LONGEST_FILE_NAME = 250
#: Limits for one user. The least recently used packages are removed to make room for new ones.
MOST_PACKAGES = 1000
MOST_BYTES = 20 * 2**30
#: A package that was used so recently may belong to a job that is being submitted.
FRESH_S = 3600.0

_GCS = "gcs://"


class Uploads:
    """The uploads of all users on one store. Several processes, on several machines, may share them."""

    def __init__(
        self,
        notes: UploadNotes,
        packages: PackageStore,
        *,
        needed: Callable[[], Collection[str]],
        most: int = MOST_PACKAGES,
        most_bytes: int = MOST_BYTES,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`needed` returns the contents that open jobs refer to."""
        self._notes = notes
        self._packages = packages
        self._needed = needed
        self._most = most
        self._most_bytes = most_bytes
        self._now = now

    def content(self, user: str, name: str) -> str | None:
        """Return the content that a name of this user refers to, if it is kept, and keep it for a while.

        A content that the user has uploaded under another name can also be named directly.
        """
        if len(name) > LONGEST_FILE_NAME or not is_name(name):
            return None
        note = self._notes.find(user, name)
        if note is None or not self._packages.ask_for(note.content):
            return None
        now = self._now()
        if note.used_at <= now - NOTED_EVERY_S:
            self._notes.touch(user, note.name, now=now)
        return note.content

    def keep(self, user: str, name: str, file: IO[bytes]) -> str:
        """Keep an uploaded file (of `PackageStore.receive`); return the name of its content."""
        check_name(name)
        file.seek(0, os.SEEK_END)
        self._make_room(user, name, file.tell())
        packed = self._packages.keep(file, name)
        now = self._now()
        notes = [Upload(user=user, name=name, content=packed.name, size=packed.size, used_at=now)]
        former = self._notes.find(user, name)
        if former is not None and former.name == name and former.content != packed.name:
            # The former content still counts until it is removed.
            notes.append(replace(former, name=former.content, used_at=now))
        self._notes.save(notes)
        return packed.name

    def localised(self, user: str, runtime_env: Any) -> Any:
        """Return an environment that names its packages by content; refuse those that were not uploaded."""
        if not isinstance(runtime_env, Mapping):
            return runtime_env  # refused where environments are read
        env = dict(runtime_env)
        if isinstance(env.get("working_dir"), str):
            env["working_dir"] = self._located(user, env["working_dir"])
        if isinstance(env.get("py_modules"), (list, tuple)):
            env["py_modules"] = [
                self._located(user, at) if isinstance(at, str) else at for at in env["py_modules"]
            ]
        return env

    def _located(self, user: str, location: str) -> str:
        if not location.startswith(_GCS):
            return location
        content = self.content(user, location.removeprefix(_GCS))
        if content is None:
            raise InvalidRuntimeEnv(
                f"runtime_env: the package {location} was not uploaded by {user!r}, or is gone since; "
                "submit from the directory that it is made of, which uploads it"
            )
        return _GCS + content

    def _make_room(self, user: str, name: str, size: int) -> None:
        """Remove the least recently used uploads of a user until there is room, or refuse."""
        notes = [note for note in self._notes.of_user(user) if note.name != name]
        if len(notes) < self._most and sum(note.size for note in notes) + size <= self._most_bytes:
            return
        needed = self._needed()
        for note in list(notes):
            fresh = note.used_at > self._now() - FRESH_S
            if not fresh and note.content not in needed:
                notes.remove(note)
                self._forget(note)
            if len(notes) < self._most and sum(note.size for note in notes) + size <= self._most_bytes:
                return
        raise QuotaExceeded(
            f"{user!r} has {len(notes)} packages here that were used lately or that open jobs need; a user "
            f"may have {self._most} with {self._most_bytes / 2**30:.0f} GiB in all: wait for jobs to end"
        )

    def _forget(self, note: Upload) -> None:
        if self._notes.forget(note):
            self._packages.remove(note.content, unused_for_s=FRESH_S)


def check_name(name: str) -> None:
    """Refuse names that no Ray client makes."""
    if len(name) <= LONGEST_NAME and (ARCHIVE_NAME.fullmatch(name) or _is_wheel(name)):
        return
    raise InvalidRequest(
        "a package is called _ray_pkg_<16 to 40 hexadecimal digits>.zip, .tar.gz or .tar.xz, "
        "or as a wheel is called"
    )


def _is_wheel(name: str) -> bool:
    if not (is_name(name) and name.endswith(".whl")):
        return False
    try:
        parse_wheel_filename(name)
    except InvalidWheelFilename:
        return False
    return True
