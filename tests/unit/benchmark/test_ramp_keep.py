"""What is kept of a point: figures, failures, and what the engine's own counters grew by."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node.engine import ramp
from vllm_ansible.node.engine.benchmark import Served
from vllm_ansible.node.process.process import ProcessError

from .ramps import asked, vars_of

# As vllm 0.32.0 writes it; the percentiles are there for those that were asked for.
RESULT = json.loads(Path(__file__).with_name("data").joinpath("answered.json").read_text())
PERCENTILES = {
    f"p{number}_{name}_ms": 10.0 * place + number / 10
    for place, name in enumerate(ramp.LATENCIES, 1)
    for number in ramp.PERCENTILES
}
COUNTED = """
# HELP vllm:request_success_total Count of successfully processed requests.
vllm:request_success_total{{engine="0",finished_reason="stop"}} {stopped}
vllm:request_success_total{{engine="0",finished_reason="length"}} {finished}
vllm:num_preemptions_total{{engine="0"}} {preempted}
vllm:prefix_cache_queries_total{{engine="0"}} {queries}
vllm:prefix_cache_hits_total{{engine="0"}} {hits}
vllm:request_queue_time_seconds_sum{{engine="0"}} {queued}
vllm:request_queue_time_seconds_count{{engine="0"}} {finished}
vllm:request_queue_time_seconds_bucket{{engine="0",le="0.3"}} 99.0
"""
NOTHING = {
    "stopped": 0.0,
    "finished": 5.0,
    "preempted": 1.0,
    "queries": 100.0,
    "hits": 10.0,
    "queued": 0.5,
}


class Host:
    """A host on which one point was measured."""

    def __init__(self, directory: Path, metrics: tuple[str, ...] = ()) -> None:
        self.directory = directory
        self.engine = Served("chat", "m", "http://127.0.0.1:18999", "plan1", metrics=metrics)
        self.result = directory / "engines/chat/cache/ramp.json"
        self.result.parent.mkdir(parents=True)
        (directory / "evidence").mkdir()
        asked_for = json.loads(json.dumps(vars_of(asked(rounds=1))))
        self.document: dict[str, Any] = {
            "version": ramp.VERSION,
            "engine": "chat",
            "model": "m",
            "seed": 9999,
            "fingerprint": {"plan": "plan1", "instance": "i1", "ramp": asked_for},
            "points": [],
        }

    def keep(
        self, users: int, raw: dict[str, Any], counters: dict[str, float], logs: Any = ()
    ) -> dict[str, Any]:
        self.result.write_text(json.dumps({**RESULT, **PERCENTILES, **raw}))
        measured = {
            "point": {"kind": ramp.LOAD, "step": users, "round": 1},
            "seed": 10000,
            "argv": ["vllm", "bench", "serve"],
            "result": str(self.result),
            "counters": counters,
            "logs": dict(logs),
            "seats": 8,
            "watched": {"rows": str(self.directory / "rows")},
        }
        return ramp.keep(str(self.directory), self.engine, self.document, measured, "task.log")


def test_a_point_is_kept_with_the_percentiles_that_the_client_computed(tmp_path: Path) -> None:
    host = Host(tmp_path)
    kept = host.keep(1, {"request_goodput": 118.79}, {})
    assert json.loads((tmp_path / "evidence/ramp-chat.json").read_text()) == kept
    assert not host.result.exists()
    (point,) = kept["points"]
    figures = point["figures"]
    assert (kept["seed"], point["kind"], point["step"]) == (10000, "load", 1)
    assert (figures["requests"], figures["failed"], figures["error"]) == (8, 0, "")
    assert [figures[f"ttft_ms_p{one}"] for one in (50, 90, 99)] == [15.0, 19.0, 19.9]
    assert [figures[f"e2e_ms_p{one}"] for one in (50, 90, 99)] == [45.0, 49.0, 49.9]
    assert figures["input_tokens_per_second"] == pytest.approx(512 / 0.0337, rel=1e-4)
    assert figures["good_requests_per_second"] == 118.79
    # Nobody was asked for counters.
    assert figures["preemptions"] is None and figures["other_requests"] is None


def test_counters_are_what_grew_while_it_was_measured(tmp_path: Path, serve: Any) -> None:
    grown = {
        "stopped": 3.0,
        "finished": 14.0,
        "preempted": 4.0,
        "queries": 300.0,
        "hits": 60.0,
        "queued": 2.3,
    }
    pages = iter([NOTHING, grown])
    server = serve(lambda _: (200, COUNTED.format(**next(pages))))
    host = Host(tmp_path, (server.url,))
    before = ramp.counters(host.engine.metrics)
    assert before["finished"] == 5
    figures = host.keep(1, {}, before)["points"][0]["figures"]
    assert figures["preemptions"] == 3
    assert figures["prefix_cache_hit_share"] == 0.25
    # 1.8 s for nine requests; the engine has no such clock of the others.
    assert figures["queue_ms_mean"] == 200.0
    assert figures["decode_ms_mean"] is None
    # Twelve more answers: the client's eight, the question before it, and three of somebody else.
    assert figures["other_requests"] == 3


def test_a_point_during_which_the_engine_compiled_is_measured_once_more(tmp_path: Path) -> None:
    host, log = Host(tmp_path), tmp_path / "chat.log"
    # As the log of an H200 had it: tests/data/h200-layouts.json.
    log.write_text("WARNING Triton kernel JIT compilation during inference: fused_moe_kernel\n")
    first = host.keep(1, {}, {}, {str(log): 0})
    assert first["points"] == [] and first["discarded"]["figures"]["compiled"]
    assert ramp.next_point(first["points"], asked(rounds=1)) == {
        "kind": ramp.LOAD, "step": 1, "round": 1,
    }  # fmt: skip
    host.document = first
    again = host.keep(1, {}, {}, {str(log): log.stat().st_size})
    assert (again["discarded"], len(again["points"])) == ({}, 1)
    assert again["points"][0]["figures"]["compiled"] == ""
    host.document = again
    # What compiles each time is kept with its mark, and is not judged beside one that does not.
    host.document = host.keep(2, {"completed": 8}, {}, {str(log): 0})
    kept = host.keep(2, {"completed": 8}, {}, {str(log): 0})
    assert "fused_moe_kernel" in kept["points"][1]["figures"]["compiled"]
    assert list(ramp.of_steps(kept["points"])) == [1]


def test_requests_that_were_sent_late_are_counted(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.document["fingerprint"]["ramp"] |= {"arrivals": "rate", "seconds": 2.0}
    # Eight requests at two a second are sent within four seconds; these took six.
    times = {"start_times": [float(one) for one in (0, 1, 2, 3, 4, 5, 5.5, 6)]}
    figures = host.keep(2, times, {})["points"][0]["figures"]
    assert (figures["send_lag_share"], figures["concurrency"]) == (0.5, 0)


def test_a_server_without_these_counters_has_none(tmp_path: Path, serve: Any) -> None:
    server = serve(lambda _: (404, "not here"))
    assert ramp.counters((server.url,)) == {}
    assert ramp.counters(()) == {}


def test_requests_that_fail_beyond_the_first_step_are_kept_as_the_end(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.document = host.keep(1, {}, {})
    broken = {
        "completed": 3,
        "output_lens": [32, 32, 32, 0],
        "errors": ["", "", "", "Traceback\n  ...\naiohttp.ServerDisconnectedError: gone"],
    }
    kept = host.keep(2, broken, {})
    figures = kept["points"][1]["figures"]
    assert (figures["requests"], figures["failed"]) == (8, 5)
    assert figures["error"] == "aiohttp.ServerDisconnectedError: gone"
    assert ramp.next_point(kept["points"], asked(rounds=1)) == {
        "kind": ramp.PREFILL, "step": 1, "round": 1,
    }  # fmt: skip


@pytest.mark.parametrize("first", [True, False])
def test_no_answer_at_all_is_a_failure(tmp_path: Path, first: bool) -> None:
    host = Host(tmp_path)
    if not first:
        host.document = host.keep(1, {}, {})
    silent = {"completed": 0, "output_lens": [0] * 8, "errors": ["Unauthorized"] * 8}
    with pytest.raises(ProcessError, match="chat answered 0 of 8 requests"):
        host.keep(1 if first else 2, silent, {})


def test_the_order_of_calls_is_that_of_the_play(tmp_path: Path) -> None:
    """What `keep` returned is what the next point is decided from."""
    host, order = Host(tmp_path), []
    wanted: Callable[[], Any] = lambda: ramp.next_point(host.document["points"], asked(rounds=1))  # noqa: E731
    while (point := wanted()) and point["kind"] == ramp.LOAD:
        order.append(point["step"])
        # Twice as many users, and no token more.
        host.document = host.keep(point["step"], {**one_of(point["step"])}, {})
    assert order == [1, 2, 4]


def one_of(users: int) -> dict[str, Any]:
    """Return a result whose requests are as many as its users want."""
    requests = max(8, 2 * users)
    return {
        "completed": requests,
        "output_lens": [32] * requests,
        "errors": [""] * requests,
    }
