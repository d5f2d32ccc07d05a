"""Where to serve a model: several machines, each at a price, by dollars for a million tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from math import inf
from typing import Any

from vllm_ansible.accelerators.machines import Machines, machines
from vllm_ansible.frozen import frozen
from vllm_ansible.plan.estimate.layouts.answer import NoLayout
from vllm_ansible.plan.estimate.layouts.engine_set import EngineSet, engine_set
from vllm_ansible.plan.estimate.layouts.request import Request
from vllm_ansible.problem import PlanError, Problem

FIELDS = ("name", "machines", "dollars_per_hour", "as_of")
EXAMPLE = '{machines: "1x8 H100-80", dollars_per_hour: 24.00, as_of: 2026-11-20}'
WRITE = f"write {EXAMPLE}"
SECONDS_PER_HOUR = 3600
MILLION = 1_000_000


@frozen
class Offer:
    """Machines at a price: dollars an hour for all of them, as they were on a day (ISO 8601)."""

    name: str
    machines: Machines
    dollars_per_hour: float
    as_of: str


@frozen
class Judged:
    """An offer and its engines at the asked load; `cost` is low, likely and high.

    Dollars are for a million tokens of replies, with the whole of the machines paid, idle or not.
    """

    offer: Offer
    engines: EngineSet
    cost: tuple[float, float, float]

    @property
    def layout(self) -> str:
        """Return the layouts of all engines."""
        return " and ".join(one.answer.chosen.candidate.name for one in self.engines.members)


def offers(values: object, where: str, own: Mapping[str, Mapping[str, Any]]) -> tuple[Offer, ...]:
    """Return the offers of a list; raise PlanError, one sentence, for what is none."""
    if not isinstance(values, Sequence) or isinstance(values, str) or not values:
        raise PlanError(Problem(f"{where} is no list of offers", "a list", "", where, WRITE))
    return tuple(_offer(one, f"{where}, offer {place}", own) for place, one in enumerate(values, 1))


def ranked(
    request: Request, asked: Sequence[Offer]
) -> tuple[tuple[Judged, ...], tuple[tuple[Offer, str], ...]]:
    """Return the offers on which the model runs, cheapest first, and why it does not on others."""
    found, refused = [], []
    for one in asked:
        try:
            plan = engine_set(replace(request, machines=one.machines))
        except NoLayout as error:
            refused.append((one, error.problems[0].message))
            continue
        found.append(Judged(one, plan, _cost(one, plan)))
    return tuple(sorted(found, key=lambda judged: judged.cost[1])), tuple(refused)


def lines(
    request: Request, found: Sequence[Judged], refused: Sequence[tuple[Offer, str]]
) -> list[str]:
    """Return the table as people read it."""
    told = [
        f"{request.model.name} ({request.model.quantization}), {request.concurrency} requests of "
        f"{request.input_tokens} and {request.output_tokens} tokens, vLLM {request.engine_version}",
        "",
        f"  {'$ a million tokens':<26}{'$ an hour':>10}  {'tokens/s':>9}  {'ms a token':>10}  "
        f"{'first':>7}  offer",
    ]
    for one in found:
        low, likely, high = one.cost
        told.append(
            f"  {f'{likely:.2f} ({low:.2f} to {high:.2f})':<26}"
            f"{one.offer.dollars_per_hour:>10.2f}  {one.engines.output_rate.middle:>9,.0f}  "
            f"{one.engines.token_time * 1e3:>10.1f}  {one.engines.first_token * 1e3:>4.0f} ms  "
            f"{one.offer.name}, {one.layout}, price of {one.offer.as_of}"
        )
    told += [f"  does not run on {offer.name}: {why}" for offer, why in refused]
    return told


def document(found: Sequence[Judged], refused: Sequence[tuple[Offer, str]]) -> list[dict[str, Any]]:
    """Return the same for a program: dollars, tokens per second, seconds."""
    able = [
        {
            **_named(one.offer),
            "layout": one.layout,
            "dollars_per_million_tokens": [round(cost, 4) for cost in one.cost],
            "output_tokens_per_second": round(one.engines.output_rate.middle, 1),
            "seconds_per_token": one.engines.token_time,
            "seconds_to_first_token": one.engines.first_token,
        }
        for one in found
    ]
    return [*able, *({**_named(offer), "refused": why} for offer, why in refused)]


def _named(offer: Offer) -> dict[str, Any]:
    return {
        "name": offer.name,
        "machines": offer.machines.line(),
        "dollars_per_hour": offer.dollars_per_hour,
        "as_of": offer.as_of,
    }


def _cost(offer: Offer, plan: EngineSet) -> tuple[float, float, float]:
    rates = plan.output_rate
    low, likely, high = (
        offer.dollars_per_hour / SECONDS_PER_HOUR / rate * MILLION
        for rate in (rates.high, rates.middle, rates.low)
    )
    return low, likely, high


def _offer(value: object, where: str, own: Mapping[str, Mapping[str, Any]]) -> Offer:
    if not isinstance(value, Mapping) or set(value) - set(FIELDS):
        raise PlanError(Problem(f"{where} is no offer", EXAMPLE, str(value)[:80], where, WRITE))
    line, dollars = value.get("machines"), value.get("dollars_per_hour")
    if not isinstance(line, str):
        raise PlanError(Problem(f"{where} names no machines", EXAMPLE, str(line), where, WRITE))
    if isinstance(dollars, bool) or not isinstance(dollars, int | float) or not 0 < dollars < inf:
        raise PlanError(
            Problem(
                f"{where}: dollars_per_hour is {dollars!r}, and must be a number above 0",
                EXAMPLE,
                repr(dollars),
                where,
                "give the price of all of its machines for an hour",
            )
        )
    try:
        day = date.fromisoformat(str(value.get("as_of")))
    except ValueError as error:
        raise PlanError(
            Problem(
                f"{where}: as_of is {value.get('as_of')!r}, and must be the day of the price",
                "a date such as 2026-11-20",
                str(value.get("as_of")),
                where,
                "give the day on which the price was read",
            )
        ) from error
    name = value.get("name") or line
    if not isinstance(name, str):
        raise PlanError(Problem(f"{where}: its name is {name!r}", "a text", where=where, fix=WRITE))
    return Offer(name, machines(line, own), float(dollars), str(day))
