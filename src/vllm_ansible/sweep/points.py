"""The points of a sweep, in order, and the engine as each of them wants it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from vllm_ansible.frozen import frozen
from vllm_ansible.plan.arguments import option, whole_number
from vllm_ansible.plan.plan import digest
from vllm_ansible.problem import PlanError, Problem

AXES = ("max_num_seqs", "max_num_batched_tokens")
LENGTHS = ("input_tokens", "output_tokens")
# Words for people and expectations change without anything else; a request holds the axes.
NOT_THE_ENGINE = ("reasons", "estimate", "request")


@frozen
class Point:
    """One point: how many sequences at once, and how many tokens in one step."""

    max_num_seqs: int
    max_num_batched_tokens: int

    @property
    def name(self) -> str:
        """Return the point as people say it."""
        return f"{self.max_num_seqs} x {self.max_num_batched_tokens}"

    def to_dict(self) -> dict[str, int]:
        """Return the point as it is kept."""
        return {axis: getattr(self, axis) for axis in AXES}


@frozen
class Load:
    """What is asked of the engine at each point; so many requests for each sequence."""

    rounds: int
    least_requests: int
    input_tokens: int
    output_tokens: int

    def settings(self, point: Point) -> dict[str, int]:
        """Return the load of one point: as many requests at once as it has sequences."""
        return {
            "requests": max(self.least_requests, self.rounds * point.max_num_seqs),
            "concurrency": point.max_num_seqs,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
        }


def points(
    sequences: Sequence[Any], tokens: Sequence[Any], pairs: Sequence[Mapping[str, Any]]
) -> tuple[Point, ...]:
    """Return the points in order, each once: all combinations of the two lists, or the pairs."""
    if pairs and (sequences or tokens):
        raise _wrong("points and lists", "sweep_points, or the two lists", "both")
    if pairs:
        for pair in pairs:
            if set(pair) != set(AXES):
                raise _wrong("a point has two numbers", ", ".join(AXES), ", ".join(pair) or "none")
        given = [tuple(pair[axis] for axis in AXES) for pair in pairs]
    else:
        given = list(product(sequences, tokens))
    for value in (value for pair in given for value in pair):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise _wrong("a point is made of whole numbers", "1 or more", repr(value))
    if not given:
        raise _wrong("there is no point to measure", "values of both axes, or points", "none")
    return tuple(Point(*pair) for pair in sorted(set(given)))


def engines_at(
    engines: Sequence[Mapping[str, Any]], planned: Mapping[str, Any], point: Point
) -> list[dict[str, Any]]:
    """Return the engines of the inventory, one of them with the arguments of a point.

    planned is that one as it is planned before the sweep: its layout, and how long a request it
    takes, stay the same at every point, also where the planner chose them.
    """
    found = []
    for engine in engines:
        if engine["name"] != planned["name"]:
            found.append(dict(engine))
            continue
        given = _given(engine)
        length = whole_number(planned["arguments"], "max_model_len")
        chosen = {"max_model_len": length} if length else {}
        arguments = {**chosen, **given, **point.to_dict()}
        found.append({**engine, "layout": dict(planned["layout"]), "vllm_args": arguments})
    return found


def check_measured(
    planned: Mapping[str, Any], figures: Mapping[str, Any], point: Point, load: Mapping[str, Any]
) -> None:
    """Refuse figures of an engine, or of a load, that is not the one of the point.

    What -e says goes before what a playbook says: points would all be of one engine.
    """
    wanted = {**point.to_dict(), **load}
    found = {axis: whole_number(planned["arguments"], axis) for axis in AXES}
    found |= {name: figures.get(name) for name in load}
    astray = [name for name in wanted if wanted[name] != found[name]]
    if astray:
        raise PlanError(
            Problem(
                f"what was measured is not the point {point.name}",
                expected=", ".join(f"{name} {wanted[name]}" for name in astray),
                found=", ".join(f"{name} {found[name]}" for name in astray),
                where=str(planned["name"]),
                fix="say engines in the inventory and the load by sweep_..., not by -e",
            )
        )


def fingerprint(
    planned: Mapping[str, Any], load: Load, environment: str, wanted: Mapping[str, Any]
) -> str:
    """Return by what a kept point is known to hold still: all but the two axes.

    wanted is the engine as the inventory has it, which may have changed since it was planned.
    """
    words = list(planned["arguments"])
    for axis in AXES:
        while option(axis) in words:
            place = words.index(option(axis))
            del words[place : place + 2]
    engine = {name: value for name, value in planned.items() if name not in NOT_THE_ENGINE}
    asked = {name: getattr(load, name) for name in Load.__dataclass_fields__}
    given = {name: value for name, value in _given(wanted).items() if name not in AXES}
    return digest(
        [{**engine, "arguments": words}, asked, environment, {**wanted, "vllm_args": given}]
    )


def _given(engine: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that the inventory gives an engine, as vLLM calls them."""
    given = (engine.get("vllm_args") or {}).items()
    return {str(name).replace("-", "_"): value for name, value in given}


def _wrong(message: str, expected: str, found: str) -> PlanError:
    where = "sweep_max_num_seqs, sweep_max_num_batched_tokens, sweep_points"
    return PlanError(Problem(message, expected=expected, found=found, where=where))
