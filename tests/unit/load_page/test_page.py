"""What a person does with the page, by clicking."""

from __future__ import annotations

import csv
import json
import time
from pathlib import Path

import pytest

from tests.browser import Browser
from tests.emulators.streaming import KEY, WORD, Engine

from .watched import cluster

# What stands where there is no figure.
NONE = "\u2013"


def enter(page: Browser, key: str = KEY) -> None:
    page.write("#key", key)
    page.click("#open")
    page.wait("document.querySelector('#message').innerText || !door.checkVisibility()", 120)


def start(page: Browser, **fields: int) -> None:
    """Fill in fields by their ids, and start."""
    for name, value in fields.items():
        page.write(f"#{name.replace('_', '-')}", str(value))
    page.click("#start")


def finish(page: Browser, seconds: float = 60) -> str:
    page.wait("document.querySelector('#stop').disabled", seconds)
    return page.text("#message")


def figure(page: Browser, name: str) -> float:
    return float(page.text(f"[data-figure={name}]"))


def test_a_wrong_key_opens_nothing(page: Browser, engine: Engine) -> None:
    enter(page, "not-the-key")
    assert page.text("#message") == "this is not the key"
    assert page.evaluate("door.checkVisibility() && !controls.checkVisibility()")
    assert engine.asked == []


def test_what_no_key_can_hold_is_not_the_key(page: Browser, engine: Engine) -> None:
    enter(page, "schlüssel … 🔑")
    assert page.text("#message") == "this is not the key"


def test_a_server_that_is_gone_is_named(page: Browser, engine: Engine) -> None:
    engine.close()
    enter(page)
    assert page.text("#message").startswith("nobody answers at 127.0.0.1:")


def test_of_two_engines_the_chosen_one_is_asked(page: Browser, engine: Engine) -> None:
    enter(page)
    offered = "[...document.querySelectorAll('#engine option')].map((one) => one.innerText)"
    assert page.evaluate(offered) == ["chat (model-chat)", "other (model-other)"]
    page.evaluate("document.querySelector('#engine').value = 'other'")
    start(page, concurrency=2, requests=3, output_tokens=2)
    assert finish(page) == "done"
    assert {one["path"] for one in engine.asked} == {"/engines/other/v1/chat/completions"}
    assert {one["model"] for one in engine.asked} == {"model-other"}


def test_an_answer_is_shown_as_text_whatever_it_holds(page: Browser, engine: Engine) -> None:
    engine.word = "<img src=x onerror=alert(1)><script>document.title = 'taken'</script>"
    enter(page)
    start(page, concurrency=1, requests=1, output_tokens=2)
    assert finish(page) == "done"
    assert page.text("article p") == engine.word * 2
    assert page.evaluate("document.querySelectorAll('main img, main script').length") == 0
    assert page.complaints == []


def test_a_run_counts_what_the_engine_counted(
    page: Browser, engine: Engine, tmp_path: Path
) -> None:
    enter(page)
    assert page.text("#engine").split("\n")[0] == "chat (model-chat)"
    start(page, concurrency=3, requests=7, prompt_tokens=64, output_tokens=10)
    assert finish(page) == "done"
    assert (figure(page, "answered"), figure(page, "failed")) == (7, 0)
    assert figure(page, "tokens") == 70
    assert figure(page, "prompt") == 64
    found = json.loads(page.saved("#json", tmp_path, "json").read_text())
    # What the stand-in waits is the least that can be seen. On a busy machine several tokens arrive
    # together: those that come first together have no gap between them.
    for one in found["requests"]:
        assert one["ttft_ms"] >= 1000 * engine.first_seconds
        assert one["total_ms"] >= 1000 * (engine.first_seconds + 9 * engine.gap_seconds)
        assert one["ttft_ms"] + sum(one["itl_ms"]) <= one["total_ms"]
        assert 0 < len(one["itl_ms"]) <= 9
    assert found["figures"]["output_tokens"] == 70
    assert sorted(one["number"] for one in found["requests"]) == list(range(1, 8))
    # By bins of half a second, of which the last one is not over.
    assert 0 < sum(rate for _, rate in found["rate"]) / 2 <= 70
    assert page.text("article p").strip() == (WORD * 10).strip()
    assert len(page.evaluate("[...document.querySelectorAll('article')].map((a) => a.id)")) == 3
    asked = engine.asked[-7:]
    assert {one["path"] for one in asked} == {"/engines/chat/v1/chat/completions"}
    assert {one["max_tokens"] for one in asked} == {10}
    assert all(one["ignore_eos"] and one["stream_options"]["include_usage"] for one in asked)
    assert len({one["messages"][0]["content"] for one in asked}) == 7
    assert page.complaints == []


def test_the_key_is_kept_nowhere_and_saved_nowhere(page: Browser, tmp_path: Path) -> None:
    enter(page)
    start(page, concurrency=1, requests=1, output_tokens=2)
    finish(page)
    kept = "document.cookie + JSON.stringify(localStorage) + JSON.stringify(sessionStorage)"
    assert KEY not in page.evaluate(f"{kept} + location.href + document.body.innerHTML + key.value")
    for kind in ("json", "csv"):
        assert KEY not in page.saved(f"#{kind}", tmp_path, kind).read_text()
    page.call("Page.reload")
    page.wait("document.readyState === 'complete' && door.checkVisibility()", 120)


def test_stop_ends_the_answers_in_flight_and_keeps_what_came(page: Browser, engine: Engine) -> None:
    enter(page)
    start(page, concurrency=4, requests=1000, output_tokens=5000)
    page.wait("document.querySelectorAll('[data-figure=tokens]')[0].innerText > 20", 60)
    assert page.evaluate("document.querySelector('#json').disabled")
    page.click("#stop")
    assert finish(page) == "stopped"
    assert figure(page, "answered") == 0
    assert figure(page, "tokens") > 20
    assert page.text("[data-row=ttft_ms] td:last-child") == "4"
    sent = len(engine.asked)
    time.sleep(1.5)
    assert len(engine.asked) == sent
    start(page, concurrency=1, requests=1, output_tokens=2)
    assert finish(page) == "done"


def test_failures_are_counted_and_told_in_the_engines_words(
    page: Browser, engine: Engine, tmp_path: Path
) -> None:
    # The first request only measures the prompt, whose wanted length is the shortest.
    engine.refused, engine.cut = {3}, {5}
    enter(page)
    start(page, concurrency=1, requests=5, prompt_tokens=1, output_tokens=4)
    assert finish(page) == 'done; the first failure: 503: =too busy, "please" wait'
    assert (figure(page, "answered"), figure(page, "failed")) == (3, 2)
    with page.saved("#csv", tmp_path, "csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [one["number"] for one in rows] == ["1", "2", "3", "4", "5"]
    assert [one["completion_tokens"] for one in rows] == ["4", "0", "4", "2", "4"]
    assert rows[1]["error"] == '503: =too busy, "please" wait'
    assert rows[3]["error"] == "the stream ended before its answer did"
    assert rows[1]["ttft_ms"] == ""


def test_an_answer_that_cannot_be_read_is_not_let_run_on(page: Browser, engine: Engine) -> None:
    engine.garbled = {2}
    enter(page)
    start(page, concurrency=1, requests=1, prompt_tokens=1, output_tokens=5000)
    assert finish(page).startswith("done; the first failure: ")
    assert figure(page, "failed") == 1
    deadline = time.monotonic() + 60
    while engine.given_up == 0:
        assert time.monotonic() < deadline, "the engine still answers"
        time.sleep(0.05)


def test_an_engine_that_cannot_take_the_prompt_is_asked_no_more(
    page: Browser, engine: Engine
) -> None:
    engine.refused = {1}
    enter(page)
    start(page)
    assert finish(page) == 'nothing was sent: 503: =too busy, "please" wait'
    assert len(engine.asked) == 1


def test_completions_are_asked_as_text(page: Browser, engine: Engine) -> None:
    enter(page)
    page.evaluate("document.querySelector('#path').value = 'completions'")
    start(page, concurrency=1, requests=1, prompt_tokens=1, output_tokens=3)
    assert finish(page) == "done"
    assert engine.asked[-1]["path"] == "/engines/chat/v1/completions"
    assert isinstance(engine.asked[-1]["prompt"], str)


def test_plots_hold_every_request_and_every_gap(page: Browser) -> None:
    enter(page)
    start(page, concurrency=2, requests=6, output_tokens=20)
    finish(page)
    assert page.evaluate("document.querySelectorAll('#plot-ttft circle').length") == 6
    assert page.evaluate("document.querySelectorAll('#plot-itl rect').length") == 30
    assert page.evaluate("document.querySelector('#plot-rate polyline').points.numberOfItems") > 0
    gaps = (
        "[...document.querySelectorAll('#plot-itl rect')].filter((one) => one.height.baseVal.value)"
    )
    assert page.evaluate(f"{gaps}.length") > 0
    assert 6 <= int(page.text("[data-row=itl_ms] td:last-child")) <= 6 * 19


@pytest.mark.parametrize(("field", "value"), [("concurrency", "257"), ("requests", "0")])
def test_a_number_out_of_range_starts_nothing(
    page: Browser, engine: Engine, field: str, value: str
) -> None:
    enter(page)
    page.write(f"#{field}", value)
    page.click("#start")
    time.sleep(0.3)
    assert page.evaluate("document.querySelector('#stop').disabled")
    assert engine.asked == []


@pytest.mark.parametrize("dark", [False, True])
def test_it_fits_a_narrow_window_in_either_colours(page: Browser, dark: bool) -> None:
    page.look(400, dark)
    try:
        enter(page)
        start(page, concurrency=2, requests=2, output_tokens=3)
        finish(page)
        assert page.evaluate("document.scrollingElement.scrollWidth") <= 400
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (paper == "rgb(255, 255, 255)") is not dark
    finally:
        page.look(1180, False)


def test_nothing_from_elsewhere_and_no_inline_code_runs(page: Browser) -> None:
    assert page.evaluate(
        """new Promise((resolve) => {
          const kind = "securitypolicyviolation";
          document.addEventListener(kind, (event) => resolve(event.blockedURI));
          const image = new Image();
          image.src = "https://192.0.2.1/picture.png";
        })"""
    ).startswith("https://192.0.2.1")


def cells(page: Browser, part: str) -> list[list[str]]:
    rows = f"[...document.querySelectorAll('[data-part={part}] tr')]"
    found: list[list[str]] = page.evaluate(
        f"{rows}.map((r) => [...r.cells].map((c) => c.innerText))"
    )
    return found


def test_a_cluster_that_is_observed_is_shown_above_its_load_test(
    page: Browser, engine: Engine
) -> None:
    engine.cluster = cluster(time.time())
    enter(page)
    assert page.evaluate("cluster.checkVisibility() && controls.checkVisibility()")
    assert page.text("[data-part=title]") == "Cluster r1"
    assert page.text("[data-part=age]").endswith("; door: answers")
    first, second = cells(page, "engines")
    assert first[:2] == ["chat (model-chat), DP2 TP1", "0 on gh-01"]
    assert first[2:7] == ["answers", "3", NONE, "412.6", "97 %"]
    assert first[7:] == [f"{NONE} (no limit is planned)", "50 ms (limit 40 ms)"]
    assert second[1:4] == ["1 on gh-02", "no answer", NONE]
    assert [row[3:] for row in cells(page, "hosts")] == [["1", "1"], ["1", "0"]]
    (device,) = cells(page, "devices")
    assert [device[2], device[4], device[7]] == ["in use", "70 of 80 GiB", "link"]
    firing, ended = cells(page, "alerts")
    assert firing[0] == "EngineDown" and firing[2:] == [
        "engine <img src=x onerror=alert(1)> does not answer",
        "run playbooks/status.yml",
    ]
    assert ended[0] == "HostGone" and ended[1].startswith("ended ") and ended[2] == "host gh-02"
    assert page.text("[data-part=spend]") == "spent so far $41.50, $12.00 an hour, no limit"
    assert not page.evaluate("document.querySelector('[data-part=calm]').checkVisibility()")
    bad = "[...document.querySelectorAll('tbody .bad')].map((one) => one.innerText)"
    assert page.evaluate(bad) == ["EngineDown", "50 ms (limit 40 ms)", "no answer", "0", "link"]
    assert page.complaints == []


def test_a_cluster_whose_figures_are_old_says_so_and_one_that_is_not_observed_is_hidden(
    page: Browser, engine: Engine
) -> None:
    enter(page)
    assert not page.evaluate("cluster.checkVisibility()")
    page.open(engine.url)
    engine.cluster = cluster(time.time() - 300)
    enter(page)
    assert "which is old: see that observe-facts runs on the head" in page.text("[data-part=age]")
    assert not page.evaluate("document.querySelector('[data-part=calm]').checkVisibility()")


def test_without_an_answer_of_prometheus_nothing_says_that_all_is_well(
    page: Browser, engine: Engine
) -> None:
    problem = "Prometheus does not answer at http://127.0.0.1:9090: refused"
    engine.cluster = {**cluster(time.time()), "problem": problem, "alerts": [], "spend": None}
    enter(page)
    assert problem in page.text("[data-part=age]")
    assert not page.evaluate("document.querySelector('[data-part=calm]').checkVisibility()")
    assert page.text("[data-part=spend]") == ""
