"""What looks at a start come to: what it does, whether it is given up, what took its time."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_ansible.node.engine.log import ranks
from vllm_ansible.record.engine_start import Start, phase


def look(
    name: str = "", compilers: dict[int, int] | None = None, news: int = 0, **more: Any
) -> dict[str, Any]:
    """Return one look; compilers are processor times by number."""
    running = [
        {"pid": pid, "started": 7, "command": "cicc", "ticks": ticks}
        for pid, ticks in (compilers or {}).items()
    ]
    return {"phase": phase(name) if name else {}, "news": news, "compilers": running, **more}


def started(*looks: dict[str, Any]) -> Start:
    """Return a start after looks ten seconds from each other."""
    start = Start(180, 1800, 0)
    for number, one in enumerate(looks):
        start.observe(one, 10.0 * number)
    return start


def test_silence_is_not_counted_while_a_compiler_takes_processor_time() -> None:
    start = Start(180, 1800, 0)
    start.observe(look("profiling", news=1), 0)
    for second in range(10, 1790, 10):
        start.observe(look(compilers={9: second}), second)
        assert start.given_up(second) == ""
    assert start.words() == "compiling kernels (1 compiler, 1770 s)"
    start.observe(look(compilers={9: 1810, 10: 4}), 1810)
    assert start.given_up(1810) == (
        "no line for more than 1800 s while compiling kernels; still at work: "
        "cicc (process 9), cicc (process 10)"
    )


def test_a_compiler_that_hangs_is_named_after_the_ordinary_silence() -> None:
    start = Start(180, 1800, 0)
    for second in range(0, 181, 10):
        start.observe(look(compilers={9: 500}), second)
    assert start.given_up(180) == ""
    start.observe(look(compilers={9: 500}), 190)
    assert start.given_up(190) == (
        "nothing new for 190 s while compiling kernels; no processor time taken by cicc (process 9)"
    )


def test_a_silence_without_compilers_is_given_up_as_before() -> None:
    start = Start(180, 60, 0)
    start.observe(look("loading", news=1), 0)
    # The bound of compilers is none for what does not compile.
    start.observe(look(), 170)
    assert start.given_up(170) == "" and start.words() == "loading, nothing new for 170 s"
    start.observe(look(), 181)
    assert start.given_up(181) == "nothing new for 181 s while loading"


def test_when_the_last_compiler_has_ended_it_does_again_what_it_did_before() -> None:
    said = look("compiling kernels", news=1)
    start = started(look("profiling", news=1), said)
    assert start.phase["name"] == "compiling kernels" and start.words() == "compiling kernels"
    start.observe(look(compilers={9: 1, 10: 2}), 30)
    assert start.words() == "compiling kernels (2 compilers, 20 s)"
    start.observe(look(), 40)
    assert start.phase["name"] == "profiling"
    # The next module is compiled as the first one was.
    start.observe(said, 50)
    assert start.phase["name"] == "compiling kernels"


def test_what_inductor_has_compiled_is_the_graph() -> None:
    start = started(look("compiling graphs", news=1), look(compilers={9: 1}))
    assert start.words() == "compiling graphs (1 compiler, 10 s)"


@pytest.mark.parametrize(
    ("spans", "seconds"),
    [
        ([], {}),
        (
            [{"starting": 3.0, "loading": 1.0}, {"loading shards": 4.5, "profiling": 0.01}],
            {"starting": 3.0, "loading": 5.5},
        ),
        (
            [
                {"capturing graphs": 6.0, "starting the server": 1.0, "listening": 0.5},
                {"starting": 2.0, "compiling kernels": 104.0},
            ],
            {"starting": 3.5, "compiling kernels": 104.0, "capturing graphs": 6.0},
        ),
    ],
)
def test_seconds_are_added_up_by_cause_in_the_order_of_a_start(
    spans: list[dict[str, float]], seconds: dict[str, float]
) -> None:
    found = started(*(look(spans=one) for one in spans)).seconds()
    assert found == seconds and list(found) == list(seconds)


HOSTS = {"10.0.0.1": "lab1", "10.0.0.2": "lab2"}
LOG = """\
(EngineCore pid=9) \x1b[36m(RayWorkerProc pid=3)\x1b[0m INFO 11-26 Model loading took 1 GiB
(EngineCore pid=9) (RayWorkerProc pid=4, ip=10.0.0.2) INFO 11-26 Starting to load model m...
(EngineCore pid=9) INFO 11-26 GPU KV cache size: 1 tokens
"""


def waits(log: str, seconds: int, **more: Any) -> Start:
    start = Start(180, 1800, 0, HOSTS)
    start.observe(look("profiling", news=1, ranks=ranks(log), **more), 0)
    start.observe(look(ranks={}, **more), seconds)
    return start


def test_the_ranks_that_others_wait_for_are_named_well_before_the_wait_ends() -> None:
    assert waits(LOG, 30).words() == "profiling"
    assert waits(LOG, 50).words() == (
        "profiling, nothing new for 50 s; RayWorkerProc 4 on lab2 came as far as loading, others "
        "as far as profiling"
    )
    assert (
        waits(LOG, 190)
        .given_up(190)
        .endswith("lab2 came as far as loading, others as far as profiling")
    )
    silent = LOG.replace("pid=4, ip=10.0.0.2", "pid=4")
    assert "the ranks on lab2 said nothing yet" in waits(silent, 50).words()
    even = LOG.replace("Starting to load model m...", "Model loading took 1 GiB")
    assert waits(even, 50).words() == "profiling"


def test_a_process_that_is_stopped_ends_the_wait_within_a_minute_by_name() -> None:
    words = "ray::RayWorker, process 7 of chat-ray, is stopped (state T); kill -CONT 7 resumes it"
    start = waits(LOG, 30, stopped=[words])
    assert words in start.behind() and not start.given_up(30)
    start.observe(look(stopped=[words]), 45)
    assert start.given_up(45) == f"nothing new for 45 s while profiling: {words}"
    # Whoever lets it go on has ended it.
    start.observe(look(news=1, ranks={}), 50)
    assert not start.given_up(50) and words not in start.behind()
