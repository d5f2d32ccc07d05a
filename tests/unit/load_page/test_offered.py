"""Which engines the page offers, for whom its certificate is, and what must hold of it."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_ansible.load_page import offer as load_page
from vllm_ansible.load_page.offer import Backend
from vllm_ansible.problem import PlanError

HOSTS = [{"name": "gpu1", "address": "10.0.0.1"}, {"name": "gpu2", "address": "10.0.0.2"}]


def engine(name: str, *hosts: str, port: int = 8000) -> dict[str, Any]:
    return {"name": name, "served_name": f"org/{name}", "hosts": hosts, "ports": {"api": port}}


ENGINES = [engine("a", "gpu1", "gpu2"), engine("b", "gpu2", port=8001)]


def test_all_engines_are_offered_where_their_first_host_is() -> None:
    assert load_page.backends(ENGINES, HOSTS, []) == [
        Backend("a", "org/a", "10.0.0.1", 8000),
        Backend("b", "org/b", "10.0.0.2", 8001),
    ]


def test_engines_are_offered_by_name_and_in_that_order() -> None:
    assert [one.name for one in load_page.backends(ENGINES, HOSTS, ["b", "a"])] == ["b", "a"]


@pytest.mark.parametrize(
    ("engines", "hosts", "names", "words"),
    [
        (ENGINES, HOSTS, ["c"], "cannot offer c"),
        ([], HOSTS, [], "cannot offer any engine"),
        (ENGINES, HOSTS[:1], [], "offers b, and this run leaves its host out"),
    ],
)
def test_what_cannot_be_offered_is_refused(
    engines: list[dict[str, Any]], hosts: list[dict[str, Any]], names: list[str], words: str
) -> None:
    with pytest.raises(PlanError, match=words) as refused:
        load_page.backends(engines, hosts, names)
    (problem,) = refused.value.problems
    assert problem.expected and problem.found and problem.where and problem.fix


def test_the_page_is_told_no_address() -> None:
    offered = load_page.as_dicts(load_page.backends(ENGINES, HOSTS, ["a"]))
    assert load_page.listing(offered) == [{"name": "a", "model": "org/a"}]


def test_a_certificate_is_for_each_name_and_address_once() -> None:
    names = ["localhost", "127.0.0.1", "gpu1", "gpu1", "fd00::1"]
    assert load_page.subject_names(names) == "DNS:localhost,IP:127.0.0.1,DNS:gpu1,IP:fd00::1"


@pytest.mark.parametrize(
    ("status", "found"), [(401, None), (200, "status 200"), (-1, "Connection refused")]
)
def test_an_engine_that_answers_without_the_key_holds_the_page_up(
    status: int, found: str | None
) -> None:
    (_, _, asked) = load_page.questions([{"name": "a"}])
    answer = {"item": asked, "url": "https://x/", "status": status, "msg": "Connection refused"}
    (judged,) = load_page.measurements([answer], "gpu1", "/opt/c")
    assert judged["ok"] is (found is None)
    assert judged["found"] == (found or "status 401")


@pytest.mark.parametrize(
    ("who", "user", "ok"),
    [
        ([], "vllm", True),
        (["nginx (process 7 of vllm)"], "vllm", True),
        (["nginx (process 7 of www-data)"], "vllm", False),
        (["a process of another user"], "ada", False),
        (["python3 (process 8 of vllm)"], "vllm", False),
    ],
)
def test_a_stranger_on_the_port_is_named(who: list[str], user: str, ok: bool) -> None:
    held = [{"port": 8443, "pid": None, "who": one} for one in who]
    (one,) = load_page.port_measurements(held, 8443, "/usr/sbin/nginx", user, "gpu1")
    assert one["ok"] is ok
    assert ok or who[0] in one["found"]


def test_check_mode_asks_and_judges_nothing() -> None:
    assert load_page.measurements([{"skipped": True, "item": {}}], "gpu1", "/opt/c") == []
