"""The page's modules by themselves, as the browser runs them."""

from __future__ import annotations

import json
import statistics
from typing import Any

import pytest

from tests.browser import Browser

# Comments, several lines of data, fields of no interest, all three ends of a line.
STREAM = (
    ": hello\r\n\r\ndata: first\r\ndata:second\r\n\r\nevent: x\nid: 7\ndata: naïve…\n\n"
    "data: by itself\r\rdata:  two spaces\n\n"
)
EVENTS = ["first\nsecond", "naïve…", "by itself", " two spaces"]


def module(page: Browser, name: str, expression: str) -> Any:
    """Return an expression over a module `m`."""
    return page.evaluate(f"import('/{name}.js').then((m) => {expression})")


def test_events_are_the_same_wherever_the_stream_is_cut(page: Browser) -> None:
    text = json.dumps(STREAM)
    cut = f"""[...{text}].map((_, place) => {{
      const events = new m.Events();
      return [{text}.slice(0, place), {text}.slice(place)].flatMap((one) => events.push(one));
    }})"""
    assert module(page, "events", cut) == [EVENTS] * len(STREAM)
    letters = (
        f"(() => {{ const e = new m.Events(); return [...{text}].flatMap((c) => e.push(c)); }})()"
    )
    assert module(page, "events", letters) == EVENTS


@pytest.mark.parametrize("samples", [[5.0], [1.0, 2.0], [9.0, 10.0, 1.0, 100.0, 2.5]])
def test_percentiles_are_those_of_the_whole_sample(page: Browser, samples: list[float]) -> None:
    found = module(page, "percentiles", f"m.summary({samples})")
    whole = samples if len(samples) > 1 else samples * 2
    cuts = statistics.quantiles(whole, n=100, method="inclusive")
    for percent in (50, 90, 95, 99):
        assert found[f"p{percent}"] == pytest.approx(cuts[percent - 1])
    assert found["mean"] == pytest.approx(statistics.fmean(samples))
    assert (found["count"], found["max"]) == (len(samples), max(samples))


def test_samples_that_come_one_by_one_have_the_percentiles_of_all(page: Browser) -> None:
    # Looked at after each, as the page does, and added out of order.
    grown = """(() => {
      const samples = new m.Samples();
      const values = Array.from({ length: 200 }, (_, place) => (place * 73) % 101);
      for (const one of values) { samples.add(one); samples.summary(); }
      return [samples.summary(), m.summary(values), Array.from(samples.sorted)];
    })()"""
    one_by_one, at_once, kept = module(page, "percentiles", grown)
    assert one_by_one == at_once
    assert kept == sorted((place * 73) % 101 for place in range(200))


def test_without_a_sample_there_is_no_percentile(page: Browser) -> None:
    assert module(page, "percentiles", "m.summary([])") == {"count": 0}


def test_rates_are_tokens_over_the_time_they_took(page: Browser) -> None:
    made = "(() => { const r = new m.Rate(1000); r.add(1100, 3); r.add(1600, 2); r.add(3000, 5);"
    assert module(page, "rate", f"{made} return r.points(2600); }})()") == [
        *([0.5, 6], [1, 4], [1.5, 0])
    ]
    assert module(page, "rate", f"{made} return [r.overall(), r.total]; }})()") == [5, 10]
    assert module(page, "rate", "new m.Rate(0).overall()") == 0


@pytest.mark.parametrize(("wanted", "got"), [(1, 13), (13, 13), (14, 14), (128, 128), (4000, 4000)])
def test_prompts_get_the_length_that_was_asked_for(page: Browser, wanted: int, got: int) -> None:
    # A tokenizer that needs nine tokens beside the words.
    found = module(page, "prompts", f"m.wordsFor({wanted}, async (words) => words + 9)")
    assert found["tokens"] == got
    assert len(module(page, "prompts", "m.prompt('q', 50)").split()) == 51


def test_a_tokenizer_that_splits_words_is_measured(page: Browser) -> None:
    counted = "async (words) => 9 + Math.round(words * 1.5)"
    found = module(page, "prompts", f"m.wordsFor(1000, {counted})")
    assert abs(found["tokens"] - 1000) <= 2


def test_two_prompts_are_never_the_same(page: Browser) -> None:
    assert module(page, "prompts", "m.prompt('q', 8) === m.prompt('q', 8)") is False


@pytest.mark.parametrize(
    ("value", "ceiling"), [(0, 1), (0.3, 0.5), (1, 1), (2.1, 2.5), (7, 10), (101, 200)]
)
def test_axes_end_at_round_numbers(page: Browser, value: float, ceiling: float) -> None:
    assert module(page, "plots", f"m.niceCeiling({value})") == pytest.approx(ceiling)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"error": {"message": "too long"}}', "too long"),
        ('{"error": "Unauthorized"}', "Unauthorized"),
        ("<html><h1>502 Bad Gateway</h1>\n</html>", "502 Bad Gateway"),
    ],
)
def test_an_error_is_told_in_its_own_words(page: Browser, text: str, told: str) -> None:
    assert module(page, "stream", f"m.reason({json.dumps(text)})") == told
