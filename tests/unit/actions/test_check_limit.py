"""A limit is judged against what runs: the kept plan, else the estimate; real plays."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from vllm_ansible.plan.engines import parse_engines
from vllm_ansible.plan.layout import Capacity
from vllm_ansible.plan.plan import make_plan

HOSTS: dict[str, dict[str, Any]] = {name: {"accelerator": "cpu"} for name in ("n1", "n2", "n3")}
TWO = {"name": "a", "model": "o/m", "layout": {"pipeline": 2}}


def kept(*hosts: str) -> dict[str, Any]:
    engines = parse_engines([{**TWO, "hosts": list(hosts)}])
    return make_plan("r1", engines, [Capacity.whole(host, "cpu", 1) for host in hosts]).to_dict()


def judged(
    play: Any, limit: str, plan: dict[str, Any], *flags: str, engine: dict[str, Any] = TWO
) -> dict[str, Any]:
    task = {"name": "judge", "check_limit": {"kept": plan, "cluster": "r1", "engines": [engine]}}
    played = play([{**task, "run_once": True}], HOSTS, flags=("--limit", limit, *flags))
    answer: dict[str, Any] = played["judge"]
    return answer


@pytest.mark.parametrize(
    ("limit", "plan", "absent"),
    [
        ("n1", {}, "n2"),
        ("n3", {}, ""),
        # The estimate would put it on n1 and n2, but it runs on n2 and n3.
        ("n1", kept("n2", "n3"), ""),
        ("n1,n2", kept("n2", "n3"), "n3"),
        ("n2,n3", kept("n2", "n3"), ""),
    ],
)
def test_an_engine_is_left_in_or_out_as_a_whole(
    play: Any, limit: str, plan: dict[str, Any], absent: str
) -> None:
    answer = judged(play, limit, plan)
    if not absent:
        assert not answer.get("failed")
        return
    assert answer["failed"]
    assert answer["msg"].startswith("--limit would split engine a, which spans n")
    assert f"it leaves out {absent} (--limit): add {absent} to --limit" in answer["msg"]


def test_a_kept_plan_that_cannot_be_read_is_told(play: Any) -> None:
    answer = judged(play, "n1", {"version": 0})
    assert answer["failed"] and "the kept plan has version 0" in answer["msg"]


def of_site(play: Any, limit: str, plan: dict[str, Any], *flags: str, **engine: Any) -> Any:
    """Judge as a part of site.yml, which goes on to serve."""
    flags = ("--limit", limit, *flags, "site.yml")
    task = {"check_limit": {"kept": plan, "cluster": "r1", "engines": [{**TWO, **engine}]}}
    page = [{"hosts": "gpu", "gather_facts": False, "tags": ["always"], "tasks": [task]}]
    (play.directory / "site.yml").write_text(yaml.safe_dump(page))
    with play.start([], HOSTS, flags=flags, whole=True) as process:
        output = process.communicate()[0]
    # The play of no tasks follows.
    plays = json.JSONDecoder().raw_decode(output[output.index("{\n") :])[0]["plays"]
    return next(iter(plays[0]["tasks"][0]["hosts"].values()))


@pytest.mark.parametrize(
    ("limit", "known", "flags", "engine", "says"),
    [
        ("n3", False, (), {}, "no plan is kept yet, and a plan needs all hosts"),
        ("n3", True, (), {}, "--limit leaves no host of any engine"),
        ("n1,n2", True, (), {"port": 8123}, "a changed since the kept plan"),
        ("n1,n2", True, (), {}, ""),
        # A host is made ready before an engine runs there.
        ("n3", True, ("--tags", "prepare,install"), {}, ""),
    ],
)
def test_a_run_that_could_serve_nothing_ends_before_its_stages(
    play: Any, limit: str, known: bool, flags: tuple[str, ...], engine: dict[str, Any], says: str
) -> None:
    plan = kept("n1", "n2") if known else {}
    answer = of_site(play, limit, plan, *flags, hosts=["n1", "n2"], **engine)
    assert bool(answer.get("failed")) is bool(says), answer
    assert says in answer.get("msg", "")
