"""To which names a server answers, and from which pages a browser may call it."""

import pytest

from ray_multicluster_scheduler.server.door import AllowList

HERE = AllowList(bind="127.0.0.1", hosts=(), origins=(), own_name="box.lan")
WIDE = AllowList(
    bind="0.0.0.0",
    hosts=("Gate.example.org", "*.corp.example"),
    origins=("https://ui.example.org/",),
    own_name="box",
)


def refusal(allow_list: AllowList, *headers: tuple[str, str], method: str = "GET") -> int | None:
    scope = {
        "method": method,
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers],
    }
    found = allow_list.refusal(scope)
    return None if found is None else found[0]


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:8700", "127.0.0.1", "localhost:8700", "LOCALHOST", "localhost.", "[::1]:8700",
        "a.localhost:1", "box.lan:8700", "box", "10.1.2.3:80", "[fe80::1]",
    ],
)  # fmt: skip
def test_own_names_and_addresses_are_answered(host: str) -> None:
    assert refusal(HERE, ("host", host)) is None


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "127.0.0.1:80@evil", "evil:8700",
        "", "127.0.0.1:99999999", "notlocalhost", "0x7f.1", "[::1", "box.lan.evil", "a b", "localhost/..",
    ],
)  # fmt: skip
def test_other_names_are_refused_by_every_request(host: str) -> None:
    assert refusal(HERE, ("host", host)) == 421
    assert refusal(HERE, ("host", "localhost"), ("host", host)) == 421


def test_a_request_without_a_name_comes_from_no_browser() -> None:
    assert refusal(HERE) is None


@pytest.mark.parametrize(
    ("host", "wanted"),
    [
        ("gate.example.org:8700", None),
        ("GATE.example.org", None),
        ("a.corp.example", None),
        ("a.b.corp.example:1", None),
        ("corp.example", 421),
        ("evilcorp.example", 421),
        ("example.org", 421),
    ],
)
def test_more_names_can_be_allowed(host: str, wanted: int | None) -> None:
    assert refusal(WIDE, ("host", host)) == wanted


@pytest.mark.parametrize(
    ("origin", "wanted"),
    [
        ("http://127.0.0.1:8700", None),
        ("https://127.0.0.1:8700", None),  # a proxy in front may have the TLS
        ("http://127.0.0.1:9999", 403),
        ("http://localhost:8700", 403),
        ("http://evil.example", 403),
        ("null", 403),
        ("", 403),
        ("file://", 403),
        ("http://127.0.0.1:8700.evil.example", 403),
    ],
)
def test_a_page_may_call_only_the_server_that_it_came_from(origin: str, wanted: int | None) -> None:
    assert refusal(HERE, ("host", "127.0.0.1:8700"), ("origin", origin)) == wanted


def test_a_page_elsewhere_can_be_allowed() -> None:
    host = ("host", "gate.example.org")

    assert refusal(WIDE, host, ("origin", "https://ui.example.org")) is None
    assert refusal(WIDE, host, ("origin", "https://UI.example.org")) is None
    assert refusal(WIDE, host, ("origin", "http://ui.example.org")) == 403
    assert refusal(WIDE, host, ("origin", "https://ui.example.org:444")) == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site", "Cross-Site"])
def test_a_page_of_another_site_changes_nothing_even_if_it_does_not_say_which_one_it_is(site: str) -> None:
    ours = ("host", "gate.example.org")
    assert refusal(WIDE, ours, ("sec-fetch-site", site), method="POST") == 403
    assert refusal(WIDE, ours, ("sec-fetch-site", site), method="DELETE") == 403
    assert refusal(WIDE, ours, ("sec-fetch-site", site)) is None  # a link
    allowed = ("origin", "https://ui.example.org")
    assert refusal(WIDE, ours, allowed, ("sec-fetch-site", site), method="POST") is None
    for own in ("same-origin", "none"):
        assert refusal(WIDE, ours, ("sec-fetch-site", own), method="POST") is None
