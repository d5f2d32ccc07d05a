"""What starts next after a start without an answer, from what every host has left; a real play."""

from __future__ import annotations

from typing import Any

from tests.unit.plan.test_first_start import ENGINES, FAULT, SILENT, decided
from tests.unit.plan.test_processes import HOSTS


def test_the_next_start_is_chosen_from_the_heads_ladder_and_the_logs_of_all_hosts(
    play: Any,
) -> None:
    hosts = {
        "n1": {"looks": {"ladder": {}}, "logs": {"tails": {"a-serve": "well"}, "of_engine": {}}},
        "n2": {
            "looks": {"ladder": {}},
            "logs": {"tails": {"a-ray": FAULT}, "of_engine": {"a": ["a-ray"]}},
        },
    }

    def choose(name: str, **more: Any) -> dict[str, Any]:
        given = {"verdicts": SILENT, "decision": decided(), "engines": ENGINES, "head": "n1"}
        given |= {"hosts": list(HOSTS.values()), "most": 3, "looks": "looks", "logs_of": "logs"}
        return {"name": name, "engine_rung": {**given, **more}, "run_once": True}

    before = "{'engines': {'a': {'helped': false}, 'b': {'helped': false}}}"
    helped = f"{{{{ {before} | ladder_helped({{'a': 1}}) }}}}"
    played = play(
        [
            choose("silent"),
            choose("ended", verdicts={**SILENT, "silent": []}),
            choose("off", most=0),
            choose("no looks", looks="others"),
            {"name": "helped", "ansible.builtin.debug": {"msg": helped}, "run_once": True},
        ],
        hosts,
    )
    found = played["silent"]
    assert found["engines"] == ["a"] and not found["changed"]
    entry = found["ladder"]["engines"]["a"]
    assert (entry["rung"], entry["why"], entry["helped"]) == ("graphs", "unanswered", False)
    assert [len(found["steps"][host]) for host in ("n1", "n2")] == [1, 0]
    (warning,) = found["warnings"]
    assert warning.startswith("a has not answered and is started again with --compilation-config")
    assert played["ended"]["ladder"]["engines"]["a"]["why"] == "illegal-access"
    assert played["off"]["engines"] == [] and "warnings" not in played["off"]
    assert "n1, n2 lack the fact others" in played["no looks"]["msg"]
    assert played["helped"]["msg"]["engines"] == {"a": {"helped": True}, "b": {"helped": False}}
