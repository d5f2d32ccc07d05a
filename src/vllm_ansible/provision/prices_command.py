"""The command `vllm-ansible prices`: what a provider asks for its machines, as a list of offers."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Any

import yaml

from vllm_ansible.accelerators.machines import machines
from vllm_ansible.problem import PlanError, Problem

from .fields import path, read_key
from .giver import givers
from .provider import Provider, provider
from .transport import is_safe

OK, FAILED, REFUSED = 0, 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the offers; 0 is done, 1 is a provider that does not answer, 2 a wrong question."""
    options = parser().parse_args(arguments)
    try:
        cloud, key = _asked(options)
    except PlanError as refusal:
        return _told(str(refusal), REFUSED)
    try:
        found = cloud.prices(key, options.endpoint) if cloud.prices else {}
    except cloud.errors as error:
        return _told(f"{cloud.title} gave no prices: {error}", FAILED)
    sys.stdout.write(as_text(cloud, found, options.nodes, date.today()))
    return OK


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    made = argparse.ArgumentParser(
        prog="vllm-ansible prices",
        description="Write what a provider asks for its machines today, for `vllm-ansible plan "
        "MODEL --offers FILE`. Nothing is rented.",
    )
    made.add_argument("provider", help="as provision_provider names it")
    made.add_argument("key_file", metavar="KEY-FILE", help="file of the API key, mode 0600")
    made.add_argument("--nodes", type=int, default=1, metavar="N", help="machines of a type (1)")
    made.add_argument("--endpoint", default="", metavar="URL", help="of the API, if not its own")
    return made


def offers(
    cloud: Provider, cents: Mapping[str, int], nodes: int, day: date
) -> Iterator[dict[str, Any]]:
    """Yield an offer for each type with a price whose accelerators the planner knows."""
    for kind, price in sorted(cents.items(), key=lambda one: (one[1], one[0])):
        devices = cloud.devices_of(kind)
        if not devices or price <= 0:
            continue
        try:
            line = machines(f"{nodes}x{devices[0]} {devices[1]}").line()
        except PlanError:
            continue
        yield {
            "name": f"{nodes} x {kind} at {cloud.title}",
            "machines": line,
            "dollars_per_hour": nodes * price / 100,
            "as_of": day,
        }


def as_text(cloud: Provider, cents: Mapping[str, int], nodes: int, day: date) -> str:
    """Return the list as YAML, one offer a line."""
    lines = [
        yaml.safe_dump(one, default_flow_style=True, sort_keys=False, width=1000).strip()
        for one in offers(cloud, cents, nodes, day)
    ]
    return "".join(f"- {line}\n" for line in lines) or "[]\n"


def _asked(options: argparse.Namespace) -> tuple[Provider, str]:
    """Return whom to ask, and with which key."""
    renting = sorted(name for name, one in givers().items() if one.rents)
    if options.provider not in renting:
        raise PlanError(Problem(f"{options.provider} rents no machines", ", ".join(renting)))
    cloud = provider(options.provider)
    if cloud.prices is None:
        raise PlanError(
            Problem(
                f"the API of {cloud.title} returns no prices",
                fix="write the list yourself, each price with its day",
            )
        )
    if options.nodes < 1:
        raise PlanError(Problem(f"--nodes is {options.nodes}, and must be at least 1"))
    if options.endpoint and not is_safe(options.endpoint):
        raise PlanError(Problem(f"the key is not sent to {options.endpoint}", "https"))
    return cloud, read_key(path(options.key_file), cloud.title, "KEY-FILE")


def _told(words: str, status: int) -> int:
    sys.stderr.write(f"vllm-ansible: {words}\n")
    return status
