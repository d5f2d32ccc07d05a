"""Read a model's configuration, and say in one sentence what is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from vllm_ansible.frozen import frozen
from vllm_ansible.problem import PlanError, Problem

LARGEST_FILE = 4 * 2**20
LARGEST_NUMBER = 2**31
# `_LEGACY_LAYER_TYPE_REMAP` of transformers 5.19.
RENAMED = {
    "mamba": "linear_attention",
    "attention": "full_attention",
    "deepseek_sparse_attention": "indexed_attention",
    "qwen_sparse_attention": "indexed_attention",
}


@frozen
class Settings:
    """A section of a configuration; every reading says where it failed."""

    values: Mapping[str, Any]
    where: str

    def __contains__(self, name: str) -> bool:
        """Return whether a key has a value other than null."""
        return self.values.get(name) is not None

    def count(self, *names: str, default: int | None = None, limit: int = LARGEST_NUMBER) -> int:
        """Return the first of these that is given, a whole number from 1 to `limit`."""
        name = next((name for name in names if name in self), None)
        if name is None:
            if default is None:
                raise self.problem(f"the model's configuration has no {names[0]}", "a number")
            return default
        value = self.values[name]
        number = None if isinstance(value, bool) else _whole(value)
        if number is None or not 0 < number <= limit:
            raise self.problem(
                f"the model's {name} is {brief(value)}, not a whole number from 1 to {limit}",
                f"1 to {limit}",
                brief(value),
            )
        return number

    def size(self, name: str, default: int = 0) -> int:
        """Return a whole number that may be zero, which is also what null and absence mean."""
        return self.count(name) if self.values.get(name) else default

    def fraction(self, name: str, default: float) -> float:
        """Return a positive number."""
        value = self.values.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 2**31:
            raise self.problem(f"the model's {name} is {brief(value)}, not a positive number")
        return float(value)

    def flag(self, name: str, default: bool = False) -> bool:
        """Return a truth value."""
        value = self.values.get(name)
        if value is not None and value not in (False, True):
            raise self.problem(
                f"the model's {name} is {brief(value)}, not true or false",
                "true or false",
                brief(value),
            )
        return default if value is None else bool(value)

    def text(self, name: str, default: str = "") -> str:
        """Return a word, or the default where there is none."""
        value = self.values.get(name)
        if value is not None and not isinstance(value, str):
            raise self.problem(
                f"the model's {name} is {brief(value)}, not a word", "a word", brief(value)
            )
        return default if value is None else value

    def section(self, name: str) -> Settings | None:
        """Return a nested section, None where it is absent."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.problem(f"{name} is {brief(value)}, not a mapping", "a mapping")
        return Settings(value, f"{self.where}: {name}")

    def items(self, name: str) -> Sequence[Any]:
        """Return a list, empty where it is absent."""
        value = self.values.get(name)
        if value is None:
            return ()
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise self.problem(f"{name} is {brief(value)}, not a list", "a list")
        return value

    def of_layers(
        self, name: str, layers: int, *known: object, needed: bool = False
    ) -> Sequence[Any]:
        """Return what a list says of each layer, each one of `known`; empty where it is absent."""
        listed = self.kinds(name)
        if len(listed) < layers and (listed or needed):
            raise self.problem(
                f"{name} names {len(listed)} layers of {layers}", f"{layers}", f"{len(listed)}"
            )
        return self._checked(name, listed[:layers], "one of " + ", ".join(map(str, known)), known)

    def kinds(self, name: str) -> Sequence[Any]:
        """Return a list in the words that transformers has now, as the engine's configuration."""
        listed = self.items(name)
        return [RENAMED.get(one, one) if isinstance(one, str) else one for one in listed]

    def numbers(self, name: str) -> Sequence[int]:
        """Return a list of whole numbers, empty where it is absent."""
        listed = self.items(name)
        whole = [one for one in map(_whole, listed) if one is not None and one >= 0]
        return [int(one) for one in self._checked(name, listed, "whole numbers", whole)]

    def _checked(
        self, name: str, listed: Sequence[Any], wanted: str, known: Sequence[object]
    ) -> Sequence[Any]:
        odd = [one for one in listed if one not in known]
        if odd:
            raise self.problem(f"{name} has {brief(odd[0])}, not {wanted}", wanted, brief(odd[0]))
        return listed

    def over(self, other: Settings) -> Settings:
        """Return these values, and the other's where this one has none."""
        own = {name: value for name, value in self.values.items() if value is not None}
        return Settings({**other.values, **own}, self.where)

    def problem(self, message: str, expected: str = "", found: str = "") -> PlanError:
        """Return the refusal of this file."""
        file = "index" if self.where.endswith(".index.json") else "config.json"
        fix = f"take the {file} that the weights were published with"
        return PlanError(Problem(message, expected, found, self.where, fix))


def _whole(value: object) -> int | None:
    """Return a whole number, which JSON may write as 1e6 too; None for anything else."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) else None


def brief(value: object) -> str:
    """Return a value short enough for a sentence."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def parse(text: str | bytes, where: str, largest: int = LARGEST_FILE) -> Settings:
    """Return a configuration as read from one JSON file; refuse all else in one sentence."""
    if len(text) > largest:
        raise PlanError(
            Problem(
                f"this file has {len(text) / 2**20:.1f} MiB, which no model's configuration has",
                f"at most {largest // 2**20} MiB of JSON",
                f"{len(text)} bytes",
                where,
                "name the config.json, not the weights",
            )
        )
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = str(error).split("\n")[0] or type(error).__name__
        raise PlanError(
            Problem(
                f"this file is not JSON: {reason}",
                "a JSON mapping",
                where=where,
                fix="fetch the file again, it may be cut short",
            )
        ) from error
    if not isinstance(values, Mapping):
        raise PlanError(
            Problem(
                f"a model's configuration is a mapping, and this is a {type(values).__name__}",
                "a JSON mapping",
                brief(values),
                where,
                "name the config.json of the model",
            )
        )
    return Settings(values, where)
