"""Which user has uploaded which package."""

from dataclasses import replace

from tests.support.builders import NOW

from ray_multicluster_scheduler.model.storage import Upload
from ray_multicluster_scheduler.store import Store

ONE = Upload(user="ann", name="one.zip", content="content-1", size=10, used_at=NOW)


def test_an_upload_is_found_by_its_name_and_by_its_content(store: Store) -> None:
    store.uploads.save([ONE])
    assert store.uploads.find("ann", "one.zip") == ONE
    assert store.uploads.find("ann", "content-1") == ONE
    assert store.uploads.find("ann", "other.zip") is None
    assert store.uploads.find("bob", "one.zip") is None


def test_a_name_goes_before_a_content(store: Store) -> None:
    named = replace(ONE, name="content-1", content="content-2")
    store.uploads.save([ONE, named])
    assert store.uploads.find("ann", "content-1") == named


def test_a_name_has_one_content(store: Store) -> None:
    store.uploads.save([ONE])
    second = replace(ONE, content="content-2", size=20)
    store.uploads.save([second])
    assert store.uploads.of_user("ann") == (second,)


def test_the_uploads_of_a_user_come_in_the_order_of_use(store: Store) -> None:
    two, bobs = replace(ONE, name="two.zip", used_at=NOW + 1), replace(ONE, user="bob")
    store.uploads.save([ONE, two, bobs])
    store.uploads.touch("ann", "one.zip", now=NOW + 2)
    store.uploads.touch("ann", "unknown.zip", now=NOW + 2)
    assert store.uploads.of_user("ann") == (two, replace(ONE, used_at=NOW + 2))


def test_forgetting_tells_whether_the_content_is_still_named(store: Store) -> None:
    bobs = replace(ONE, user="bob")
    store.uploads.save([ONE, bobs])
    assert not store.uploads.forget(ONE)
    assert store.uploads.of_user("ann") == ()
    assert store.uploads.forget(bobs)
