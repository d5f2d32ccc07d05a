"""Which servers compute other numbers than those that have the same weights, and what is kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vllm_ansible.computation.distance import Prompts, distance
from vllm_ansible.node.fingerprint import PROMPTS, broken

# Arguments that change what a right engine computes; sizes of a layout are none of them.
NUMERIC = ("dtype", "quantization", "kv-cache-dtype", "attention-backend", "revision")
ATTENTION = "VLLM_ATTENTION_BACKEND"


@dataclass(frozen=True)
class Server:
    """One server and what it computed; `prompts` is empty where it was not asked.

    same: what else must be equal for two servers to compute the same; weights: their digest.
    known: this start of it has passed before. refused: why it has no numbers to give.
    """

    name: str
    engine: str
    process: str
    host: str
    weights: str
    same: str
    instance: str
    prompts: Prompts = ()
    known: bool = False
    refused: str = ""

    @property
    def key(self) -> str:
        """Return under what its numbers are kept."""
        return f"{self.same} {self.weights}"


@dataclass
class Verdict:
    """`measurements` as a gate takes them, `wrong` engines, and what is to be `kept`."""

    measurements: list[dict[str, Any]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    kept: dict[str, Any] = field(default_factory=dict)
    compared: int = 0
    notes: list[str] = field(default_factory=list)


def conditions(engine: Mapping[str, Any], version: str, accelerator: str) -> str:
    """Return under what engines with the same weights must compute the same, as words."""
    words = [str(word) for word in engine.get("arguments", ())]
    found = {"accelerator": accelerator, "vllm": version}
    for place, word in enumerate(words):
        name, equals, value = word.removeprefix("--").partition("=")
        if word.startswith("--") and name in NUMERIC:
            found[name] = value if equals else words[place + 1]
    environment = engine.get("environment") or {}
    if ATTENTION in environment:
        found["attention-backend"] = str(environment[ATTENTION])
    prompts = hashlib.sha256(json.dumps(PROMPTS).encode()).hexdigest()[:8]
    told = " ".join(f"{name}={value}" for name, value in sorted(found.items()))
    return f"{engine['model_source']}:{engine['model']} {told} prompts={prompts}"


def judge(servers: Sequence[Server], kept: Mapping[str, Any], tolerance: float) -> Verdict:
    """Compare servers with what is kept and with each other, and name those that leave the others.

    kept: `weights`, by key the `prompts` and whose they were `of`; `servers`, by process the
    `instance` that passed.
    """
    verdict = Verdict()
    references = dict(kept.get("weights") or {})
    passed: list[Server] = []
    for same in dict.fromkeys(one.same for one in servers):
        group = [one for one in servers if one.same == same]
        passed += _judged(group, references, tolerance, verdict)
    for one in passed:
        references.setdefault(one.key, {"of": f"{one.name} on {one.host}", "prompts": one.prompts})
    instances = {**(kept.get("servers") or {}), **{one.process: one.instance for one in passed}}
    used = {one.engine for one in servers}
    verdict.wrong = [name for name in dict.fromkeys(verdict.wrong) if name in used]
    bad = {one.process for one in servers if one.engine in verdict.wrong}
    verdict.kept = {
        "weights": references,
        # What is closed has another start the next time; it is asked then.
        "servers": {name: value for name, value in instances.items() if name not in bad},
    }
    return verdict


def _judged(
    group: Sequence[Server],
    references: Mapping[str, Any],
    tolerance: float,
    verdict: Verdict,
) -> list[Server]:
    """Judge servers that must compute the same; return those asked now that passed."""
    sound: list[Server] = []
    anchored: set[str] = set()
    numbers: dict[str, Prompts] = {}
    for one in group:
        reference = references.get(one.key)
        if one.known and reference:
            anchored.add(one.name)
            numbers[one.name] = reference["prompts"]
            sound.append(one)
        elif one.refused or not one.prompts:
            verdict.notes.append(f"{one.name} not compared: {one.refused or 'it was not asked'}")
        elif count := broken(one.prompts):
            _refuse(verdict, one, f"{count} numbers of fixed prompts are not finite", tolerance)
        elif reference and (gap := distance(reference["prompts"], one.prompts)).mean > tolerance:
            found = f"{gap.words()} from {reference['of']}, kept for the same weights"
            _refuse(verdict, one, found, tolerance)
        else:
            if reference:
                anchored.add(one.name)
            numbers[one.name] = one.prompts
            sound.append(one)
    near = {
        one.name: {
            other.name
            for other in sound
            # Fine-tunes that are near each other are other models all the same.
            if one.weights == other.weights
            and distance(numbers[one.name], numbers[other.name]).mean <= tolerance
        }
        for one in sound
    }
    verdict.compared += len(sound)
    if not sound:
        return []
    centre = max(sound, key=lambda one: (one.name in anchored, len(near[one.name])))
    agreed = near[centre.name]
    decided = centre.name in anchored or 2 * len(agreed) > len(sound)
    for one in sound:
        if len(agreed) < len(sound) and (one.name not in agreed or not decided):
            other = centre if one is not centre else _farthest(one, sound, numbers)
            gap = distance(numbers[other.name], numbers[one.name])
            words = f"{gap.words()} from {other.name} on {other.host}"
            if other.weights != one.weights:
                words += f"; weights {one.weights[:12]} here, {other.weights[:12]} there"
            if not decided:
                words += "; which of them is right is not known"
            _refuse(verdict, one, words, tolerance)
    wrong = set(verdict.wrong)
    return [one for one in sound if not one.known and one.engine not in wrong]


def _farthest(one: Server, sound: Iterable[Server], numbers: Mapping[str, Prompts]) -> Server:
    return max(sound, key=lambda other: distance(numbers[one.name], numbers[other.name]).mean)


def _refuse(verdict: Verdict, one: Server, found: str, tolerance: float) -> None:
    verdict.wrong.append(one.engine)
    verdict.measurements.append(
        {
            "what": f"the numbers that {one.name} computes",
            "ok": False,
            "expected": "the same weights, and log probabilities of fixed prompts within "
            f"{tolerance} in the mean of those that servers with the same model compute",
            "found": found,
            "where": f"{one.name} on {one.host}",
            "fix": f"compare the weights on all hosts of {one.engine} (-e weights_rehash=true), "
            "then its devices (--tags verify)",
        }
    )
