"""The engine list as types: what an inventory may say about one engine, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vllm_ansible.node.weights.models import source_of
from vllm_ansible.plan.adapters import adapter_refusals
from vllm_ansible.plan.arguments import ours
from vllm_ansible.plan.data_request import refusals
from vllm_ansible.plan.dynamo import FRONTS, front_refusals
from vllm_ansible.plan.pairs import role_refusals, set_problems
from vllm_ansible.plan.roles import ROLES, SERVE
from vllm_ansible.plan.sizes import Layout
from vllm_ansible.problem import PlanError, Problem, close_match

NAME_LENGTH = 12
NAME = re.compile(rf"[a-z][a-z0-9-]{{0,{NAME_LENGTH - 1}}}")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
EXECUTORS = ("ray", "mp", "dp")
KEYS = (
    "name",
    "model",
    "layout",
    "nodes",
    "executor",
    "role",
    "front",
    "hosts",
    "port",
    "vllm_args",
    "environment",
    "probe",
    "served_name",
)
PARIS = "Paris"
SECRET = re.compile(r"(^|_)(api_?key|token|password|secret)$", re.IGNORECASE)


@dataclass(frozen=True)
class Probe:
    """The question whose answer proves an engine, and a text the answer must hold.

    Unless something is expected by name, the default question expects Paris of every model whose
    weights are not random; an empty text expects an answer, whatever it says.

    reasoning: it must have thought first, and its parser must have told that from the answer.
    """

    prompt: str = "What is the capital of France?"
    expect: str = ""
    reasoning: bool = False


@dataclass(frozen=True)
class Engine:
    """One model served by one group of ranks, as the user asked for it."""

    name: str
    model: str
    model_source: str
    served_name: str
    layout: Layout | None = None
    nodes: int | None = None
    executor: str = "ray"
    role: str = "serve"
    hosts: tuple[str, ...] = ()
    port: int | None = None
    vllm_args: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    probe: Probe = Probe()
    # Whether the user chose the executor; else layout: auto may choose data ranks.
    executor_given: bool = False
    # What stands before its data ranks.
    front: str = FRONTS[0]


def parse_engines(value: object) -> tuple[Engine, ...]:
    """Return the typed engines, or refuse with every problem of the list at once."""
    if not isinstance(value, list) or not value:
        raise PlanError(
            Problem(
                "engines names no engine",
                expected="a list of engines, each {name, model, layout}",
                found=f"{value!r}",
                fix="add one, such as {name: chat, model: package:smollm2-135m-instruct}",
            )
        )
    readers = [_Reader(item, place) for place, item in enumerate(value)]
    engines = [reader.engine() for reader in readers]
    problems = [problem for reader in readers for problem in reader.problems]
    problems += _repeated(engines, "name", [engine.name for engine in engines])
    problems += _repeated(engines, "port", [engine.port for engine in engines])
    problems = problems or set_problems(engines)
    if problems:
        raise PlanError(problems)
    return tuple(engines)


def has_random_weights(engine: Mapping[str, Any]) -> bool:
    """Tell whether an engine, as asked for, computes with numbers that nobody trained."""
    arguments = engine.get("vllm_args")
    given = arguments.items() if isinstance(arguments, Mapping) else ()
    dummy = any(str(k).replace("-", "_") == "load_format" and v == "dummy" for k, v in given)
    return dummy or str(engine.get("model", "")).startswith("random:")


def served_as(source: str, model: str) -> str:
    """Return the name clients use unless told otherwise: the hub's, or the last part of a path."""
    return model if source == "hub" else model.rstrip("/").rpartition("/")[2]


def _repeated(engines: list[Engine], what: str, values: list[Any]) -> list[Problem]:
    """Return a problem for each value that two engines share."""
    problems = []
    for place, value in enumerate(values):
        first = values.index(value)
        if value and first < place:
            problems.append(
                Problem(
                    f"engines {engines[first].name or first} and {engines[place].name or place}"
                    f" both have {what} {value}",
                    expected=f"every engine has its own {what}",
                    found=f"{what} {value} twice",
                    where=f"engines[{place}].{what}",
                    fix=f"give one of them another {what}",
                )
            )
    return problems


class _Reader:
    """Reads one engine and collects what is wrong with it instead of stopping at the first."""

    def __init__(self, item: object, place: int) -> None:
        self.is_mapping = isinstance(item, Mapping)
        self.item: Mapping[str, Any] = item if isinstance(item, Mapping) else {}
        self.problems: list[Problem] = []
        self.place = f"engines[{place}]"
        if not self.is_mapping:
            self._refuse("", "a mapping with name and model", item, "write {name: ..., model: ...}")
        elif self.item.get("name"):
            self.place += f" {self.item['name']}"

    def engine(self) -> Engine:
        """Return the engine; where a value was refused, its default stands in."""
        for key in self.item:
            if key not in KEYS:
                hint = close_match(str(key), KEYS) or f"remove it; known keys are {', '.join(KEYS)}"
                self._refuse(str(key), "a key an engine has", key, hint)
        source, model = source_of(self._text("model", required=True))
        layout, executor = self._layout(), self._choice("executor", EXECUTORS)
        role = self._choice("role", ROLES)
        for judged in (refusals, front_refusals, role_refusals):
            for refused in judged(self.item, layout):
                self._refuse(*refused)
        for refused in adapter_refusals(self.item):
            self._refuse(*refused)
        if role != SERVE:
            # One server on one host, which needs no Ray.
            executor = "mp"
        return Engine(
            name=self._name(),
            model=model,
            model_source=source,
            served_name=self._text("served_name") or served_as(source, model),
            layout=layout,
            nodes=self._number("nodes", 1, 4096),
            executor="dp" if layout and layout.data > 1 else executor,
            role=role,
            hosts=self._hosts(),
            port=self._number("port", 1024, 65535),
            vllm_args=self._vllm_args(),
            environment=self._environment(),
            probe=self._probe(),
            executor_given=self.item.get("executor") is not None or role != SERVE,
            front=self._choice("front", FRONTS),
        )

    def _refuse(self, key: str, expected: str, found: object, fix: str) -> None:
        where = f"{self.place}.{key}" if key else self.place
        shown = f"{found!r}" if not isinstance(found, Mapping) else str(dict(found))
        self.problems.append(
            Problem(
                f"{where}: expected {expected}, found {shown}",
                expected=expected,
                found=shown,
                where=where,
                fix=fix,
            )
        )

    def _text(self, key: str, *, required: bool = False) -> str:
        value = self.item.get(key)
        if value is None and not (required and self.is_mapping):
            return ""
        if not isinstance(value, str) or not value.strip():
            self._refuse(key, "a text", value, f"set {key}")
            return ""
        return value

    def _name(self) -> str:
        name = self.item.get("name")
        if self.is_mapping and not (isinstance(name, str) and NAME.fullmatch(name)):
            self._refuse(
                "name",
                "a small letter, then at most 11 small letters, digits or dashes",
                name,
                "choose a short name such as chat",
            )
            return ""
        return str(name or "")

    def _choice(self, key: str, choices: tuple[str, ...]) -> str:
        value = self.item.get(key, choices[0])
        if value not in choices:
            hint = close_match(str(value), choices) or f"choose {choices[0]}"
            self._refuse(key, f"one of {', '.join(choices)}", value, hint)
            return choices[0]
        return str(value)

    def _number(self, key: str, least: int, most: int) -> int | None:
        value = self.item.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            self._refuse(key, f"a whole number from {least} to {most}", value, f"correct {key}")
            return None
        return value

    def _layout(self) -> Layout | None:
        value = self.item.get("layout", "auto")
        if value == "auto":
            return None
        sizes = {"tensor": 1, "pipeline": 1, "data": 1}
        wanted = dict(value) if isinstance(value, Mapping) else {"": value}
        good = all(
            key in sizes and isinstance(size, int) and not isinstance(size, bool) and size > 0
            for key, size in wanted.items()
        )
        if not (good and wanted):
            self._refuse(
                "layout",
                "auto, or {tensor: N, pipeline: M} or {data: N, tensor: M}, each at least 1",
                value,
                "write layout: auto, or both numbers",
            )
            return None
        return Layout(**{**sizes, **wanted})

    def _hosts(self) -> tuple[str, ...]:
        value = self.item.get("hosts") or []
        if not isinstance(value, list) or not all(isinstance(host, str) for host in value):
            self._refuse("hosts", "a list of inventory host names", value, "write [name, name]")
            return ()
        if len(set(value)) < len(value):
            self._refuse("hosts", "every host once", value, "remove the repeated name")
        return tuple(value)

    def _vllm_args(self) -> dict[str, Any]:
        value = self.item.get("vllm_args") or {}
        if not isinstance(value, Mapping):
            self._refuse("vllm_args", "a mapping of arguments", value, "write {max_model_len: N}")
            return {}
        for key in value:
            instead = ours(str(key))
            if instead or str(key).startswith("-"):
                fix = f"use {instead} instead" if instead else f"write it as {str(key).lstrip('-')}"
                self._refuse("vllm_args", "an argument that is the engine's own", key, fix)
            elif SECRET.search(str(key).replace("-", "_")):
                # Every user of the host sees the arguments of every process.
                self._refuse("vllm_args", "no secret", key, "use huggingface_token_file")
        return {str(key): argument for key, argument in value.items()}

    def _environment(self) -> dict[str, str]:
        value = self.item.get("environment") or {}
        if not isinstance(value, Mapping):
            self._refuse("environment", "a mapping of names to values", value, "write {NAME: text}")
            return {}
        for key, text in value.items():
            if not VARIABLE.fullmatch(str(key)) or isinstance(text, Mapping | list):
                self._refuse("environment", "a variable's name and a plain value", key, "rename it")
            elif SECRET.search(str(key)):
                # Every process on the host could read it, and Ray copies it to every worker.
                self._refuse(
                    "environment",
                    "no secret (an environment is listed in many places)",
                    key,
                    "use vllm_api_key_file or huggingface_token_file",
                )
        return {str(key): environment_text(text) for key, text in value.items()}

    def _probe(self) -> Probe:
        value = self.item.get("probe") or {}
        kinds = {"prompt": str, "expect": str, "reasoning": bool}
        good = isinstance(value, Mapping) and all(
            key in kinds and isinstance(given, kinds[key]) for key, given in value.items()
        )
        if not good:
            expected = "{prompt: text, expect: text, reasoning: true or false}"
            self._refuse("probe", expected, value, "write these alone")
            return Probe()
        arguments = self.item.get("vllm_args")
        parses = isinstance(arguments, Mapping) and any(
            given and str(name).replace("-", "_") == "reasoning_parser"
            for name, given in arguments.items()
        )
        # The default question has its answer; whoever writes another one knows what to expect.
        asks_default = value.get("prompt", Probe.prompt) == Probe.prompt
        known = asks_default and not has_random_weights(self.item)
        return Probe(**{"reasoning": parses, "expect": PARIS if known else "", **value})


def environment_text(value: object) -> str:
    """Return a value as programs read it from an environment: yes is 1, no is 0."""
    return str(int(value)) if isinstance(value, bool) else str(value)
