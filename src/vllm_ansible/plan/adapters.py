"""LoRA adapters that an engine has beside its model, each asked for by a name of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from vllm_ansible.plan.arguments import by_name, option
from vllm_ansible.problem import Problem

MODULES, ENABLED = "lora_modules", "enable_lora"
# The door finds an engine by it in a list of lines.
NAME = re.compile(r"[^\s=,\"\\]+")
FORM = "NAME=PATH, or a mapping with name and path; no space, comma, = or quotation mark in a name"
# An engine as the inventory asks for it, which imports this file.
Asked = Any


def adapters_of(engine: Mapping[str, Any]) -> list[str]:
    """Return the names of a planned engine's adapters, in the forms of vLLM's LoRAParserAction."""
    words = [str(word) for word in engine.get("arguments", ())]
    flag, found = option(MODULES), []
    for place, word in enumerate(words):
        if word == flag:
            found += _values(words[place + 1 :])
        elif word.startswith(f"{flag}="):
            found.append(word.partition("=")[2])
    return [name for one in found if (name := _name(one))]


def adapters_asked(arguments: Mapping[str, Any]) -> list[str]:
    """Return the names of the adapters that an engine of an inventory is to have."""
    return [name for one in _listed(arguments) if (name := _name(one))]


def adapter_refusals(item: Mapping[str, Any]) -> Iterator[tuple[str, str, object, str]]:
    """Yield key, what was expected, what was found and the fix, of adapters that vLLM refuses.

    vLLM does so when all weights are loaded.
    """
    arguments = item.get("vllm_args")
    arguments = arguments if isinstance(arguments, Mapping) else {}
    asked = _listed(arguments)
    for one in asked:
        if not _name(one):
            yield f"vllm_args.{MODULES}", FORM, one, "write a list of NAME=PATH"
    if asked and by_name(arguments).get(ENABLED) is not True:
        yield (
            "vllm_args",
            f"{ENABLED}: true beside {MODULES}",
            by_name(arguments).get(ENABLED),
            f"add {ENABLED}: true",
        )


def adapter_problems(engines: Iterable[Asked]) -> list[Problem]:
    """Return the adapters whose name another model has, or an adapter of another model.

    Behind one door a name has one meaning.
    """
    engines = list(engines)
    owners = {one.served_name: f"the model of engine {one.name}" for one in engines}
    models: dict[str, str] = {}
    problems = []
    for engine in engines:
        own: set[str] = set()
        for name in adapters_asked(engine.vllm_args):
            other = owners.get(name) or ("another adapter of this engine" if name in own else "")
            if not other and models.setdefault(name, engine.served_name) != engine.served_name:
                other = f"an adapter of {models[name]}"
            own.add(name)
            if other:
                problems.append(
                    Problem(
                        f"adapter {name} of engine {engine.name} has the name of {other}",
                        expected="one meaning of a name",
                        found=f"{name} twice",
                        where=f"engines {engine.name}.vllm_args.{MODULES}",
                        fix="give the adapter another name",
                    )
                )
    return problems


def _listed(arguments: Mapping[str, Any]) -> list[Any]:
    """Return the adapters that an inventory asks for; one alone is a list of one."""
    asked = by_name(arguments).get(MODULES)
    listed = list(asked) if isinstance(asked, list | tuple) else [asked]
    # vLLM passes over what is empty.
    return [one for one in listed if one is not None and one != ""]


def _values(words: Sequence[str]) -> list[str]:
    """Return the words up to the next option."""
    end = next((at for at, word in enumerate(words) if word.startswith("--")), len(words))
    return list(words[:end])


def _name(one: object) -> str:
    """Return the name of one adapter, empty where it is in no form that vLLM takes."""
    found = _read(one) if isinstance(one, str) else one
    if not isinstance(found, Mapping) or not found.get("path"):
        return ""
    name = found.get("name")
    return name if isinstance(name, str) and NAME.fullmatch(name) else ""


def _read(text: str) -> Any:
    """Return what a text says of an adapter, None where it is neither NAME=PATH nor JSON."""
    if "=" in text and "," not in text:
        name, _, path = text.partition("=")
        return {"name": name, "path": path}
    try:
        return json.loads(text)
    except ValueError:
        return None
