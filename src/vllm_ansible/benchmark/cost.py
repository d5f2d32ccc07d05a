"""What an engine costs an hour, and from that what a million tokens cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

HOUR, MILLION = 3600.0, 1_000_000


def engine_price(
    engine: Mapping[str, Any],
    engines: Sequence[Mapping[str, Any]],
    hosts: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """Return the US dollars an hour of one engine of a plan with all its engines.

    hosts: of each host what the inventory gives (`given`) and what the provider lists (`listed`),
    in US dollars an hour, 0 where nothing is known. Engines that share a host divide its price by
    their ranks there; devices without a rank are paid for by the engines of their host.
    """
    total, parts = 0.0, []
    for name in engine["hosts"]:
        known = hosts.get(name, {})
        given, listed = float(known.get("given") or 0), float(known.get("listed") or 0)
        price = given or listed
        if price <= 0:
            return {"usd_per_hour": None, "why": f"the price of {name} is not known"}
        ours, all_ranks = _ranks(engine, name), sum(_ranks(one, name) for one in engines)
        total += price * ours / all_ranks
        parts.append(
            {
                "host": name,
                "usd_per_hour": price,
                "source": "benchmark_usd_per_hour" if given else "the provider's list",
                "ranks": ours,
                "ranks_of_all_engines": all_ranks,
            }
        )
    return {"usd_per_hour": round(total, 6), "hosts": parts}


def _ranks(engine: Mapping[str, Any], host: str) -> int:
    found = sum(1 for rank in engine.get("ranks") or () if rank["host"] == host)
    # An engine without a list of ranks has one on each of its hosts.
    return found or int(not engine.get("ranks") and host in engine["hosts"])


def per_million(usd_per_hour: float, figures: Mapping[str, Any]) -> dict[str, float]:
    """Return what a million tokens cost at measured rates.

    `both` counts prompts and answers alike; `out_alone` lays the whole price on the answers.
    """
    second = usd_per_hour / HOUR
    both = figures["input_tokens_per_second"] + figures["output_tokens_per_second"]
    return {
        "usd_per_million_tokens": second / both * MILLION,
        "usd_per_million_output_tokens_alone": second
        / figures["output_tokens_per_second"]
        * MILLION,
    }


def split(
    usd_per_hour: float, load: Mapping[str, Any], prefill: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what a million tokens in and a million out cost, from two measured loads.

    prefill is the same load with answers of one token. A request keeps the engine busy for one part
    of its throughput: 1 / requests a second. What remains when the prompts alone are taken away is
    the answers'. So the prices of a request's tokens in and out add up to the price of the request.
    """
    whole = 1 / load["requests_per_second"]
    prompt = 1 / prefill["requests_per_second"]
    told = load["input_tokens_per_second"] * whole
    said = load["output_tokens_per_second"] * whole
    second = usd_per_hour / HOUR
    found: dict[str, Any] = {
        "usd_per_request": second * whole,
        "engine_seconds_per_request": whole,
        "engine_seconds_per_prompt": prompt,
        "tokens_in_per_request": told,
        "tokens_out_per_request": said,
    }
    if prompt >= whole:
        return {
            **found,
            "usd_per_million_input_tokens": None,
            "usd_per_million_output_tokens": None,
            "why": "prompts alone took as long as whole requests: noise, or answers too short",
        }
    return {
        **found,
        "usd_per_million_input_tokens": second * prompt / told * MILLION,
        "usd_per_million_output_tokens": second * (whole - prompt) / said * MILLION,
    }
