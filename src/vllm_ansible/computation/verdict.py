"""Which servers compute other numbers than those that have the same weights, and what is kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vllm_ansible.computation.distance import Distance, Prompts, distance
from vllm_ansible.node.engine.fingerprint import broken


@dataclass(frozen=True)
class Limits:
    """The largest mean difference of right engines, and of those whose noise nobody measured."""

    tolerance: float
    unmeasured: float


@dataclass(frozen=True)
class Server:
    """One server and what it computed; `prompts` is empty where it was not asked.

    same: what else must be equal for two servers to compute the same; weights: their digest.
    known: this start of it has passed before. refused: why it has no numbers to give.
    unmeasured: why nobody knows how far right engines with its model lie apart.
    reference: what transformers computes with the same weights; unreferenced: why there is none.
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
    unmeasured: str = ""
    reference: Prompts = ()
    unreferenced: str = ""

    @property
    def key(self) -> str:
        """Return under what its numbers are kept."""
        return f"{self.same} {self.weights}"


@dataclass
class Verdict:
    """`measurements` as a gate takes them, `wrong` engines, and what is to be `kept`.

    notes: what a person should read; referenced: how many were held against transformers;
    unreferenced: by engine, why not.
    """

    measurements: list[dict[str, Any]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    kept: dict[str, Any] = field(default_factory=dict)
    compared: int = 0
    notes: list[str] = field(default_factory=list)
    referenced: int = 0
    unreferenced: dict[str, str] = field(default_factory=dict)


def known_start(kept: Mapping[str, Any], process: str, same: str) -> tuple[str, str]:
    """Return the start of a process whose numbers are kept, and the digest of its weights.

    Empty where nothing is kept that the start could be compared with, under these conditions: it
    is asked again then. The weights are those that it was asked with: what lies on the disk may
    have changed since it has loaded them.
    """
    found = (kept.get("servers") or {}).get(process)
    # An earlier release kept the start alone.
    if not isinstance(found, Mapping):
        return "", ""
    key = str(found.get("key", ""))
    before, _, weights = key.rpartition(" ")
    if before != same or key not in (kept.get("weights") or {}):
        return "", ""
    return str(found.get("instance", "")), weights


def judge(
    servers: Sequence[Server], kept: Mapping[str, Any], limits: Limits, again: bool = False
) -> Verdict:
    """Compare servers with what is kept and with each other, and name those that leave the others.

    kept: `weights`, by key the `prompts` and whose they were `of`; `servers`, by process the
    `instance` that passed and its `key`. again: where no server computes any more what is kept
    under its key, its numbers replace them.
    """
    verdict = Verdict()
    references = _believed(servers, dict(kept.get("weights") or {}), limits, verdict)
    if again:
        _renew(servers, references, limits, verdict)
    passed: list[Server] = []
    for same in dict.fromkeys(one.same for one in servers):
        group = [one for one in servers if one.same == same]
        passed += _judged(group, references, limits, verdict)
    for one in passed:
        references.setdefault(one.key, {"of": f"{one.name} on {one.host}", "prompts": one.prompts})
    instances = {
        **(kept.get("servers") or {}),
        **{one.process: {"instance": one.instance, "key": one.key} for one in passed},
    }
    used = {one.engine for one in servers}
    verdict.wrong = [name for name in dict.fromkeys(verdict.wrong) if name in used]
    bad = {one.process for one in servers if one.engine in verdict.wrong}
    # Nor is what was asked of a start of any use whose numbers are gone.
    bad |= {one.process for one in servers if one.known and one.key not in references}
    verdict.kept = {
        "weights": references,
        # What is closed has another start the next time; it is asked then.
        "servers": {name: value for name, value in instances.items() if name not in bad},
    }
    return verdict


def _limit(one: Server, limits: Limits) -> float:
    return limits.unmeasured if one.unmeasured else limits.tolerance


def _believed(
    servers: Sequence[Server], references: dict[str, Any], limits: Limits, verdict: Verdict
) -> dict[str, Any]:
    """Return what is kept, without numbers that leave those of transformers."""
    for one in servers:
        found = references.get(one.key)
        if not one.reference or not found:
            continue
        gap = distance(one.reference, found["prompts"])
        if not gap.tokenizer and gap.mean > _limit(one, limits):
            del references[one.key]
            verdict.notes.append(
                f"numbers of {found['of']} are no longer kept: {gap.words()} from transformers"
            )
    return references


def _renew(
    servers: Sequence[Server], references: dict[str, Any], limits: Limits, verdict: Verdict
) -> None:
    """Drop what is kept under each key that none of its servers computes any more."""
    for key in dict.fromkeys(one.key for one in servers):
        found = references.get(key)
        sharing = [one for one in servers if one.key == key and not one.refused]
        if not found or not sharing or any(one.known or not one.prompts for one in sharing):
            continue
        gaps = [distance(found["prompts"], one.prompts) for one in sharing if not _broken(one)]
        if gaps and all(gap.mean > _limit(sharing[0], limits) for gap in gaps):
            del references[key]
            names = ", ".join(one.name for one in sharing)
            verdict.notes.append(
                f"{names}: {gaps[0].words()} from {found['of']}; these numbers are kept from now "
                "on (vllm_computation_again)"
            )


def _broken(one: Server) -> int:
    return broken(one.prompts)


def _judged(
    group: Sequence[Server], references: Mapping[str, Any], limits: Limits, verdict: Verdict
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
        elif one.known:
            verdict.notes.append(
                f"{one.name} not compared: the numbers of its start are no longer kept, the next "
                "run asks it"
            )
        elif one.refused or not one.prompts:
            verdict.notes.append(f"{one.name} not compared: {one.refused or 'it was not asked'}")
        elif count := _broken(one):
            found = f"{count} numbers of fixed prompts are not finite"
            _refuse(verdict, one, found, limits, _compare(one))
        elif not _leaves_transformers(one, limits, verdict) and not (
            reference and _leaves(one, reference, limits, verdict)
        ):
            if reference:
                anchored.add(one.name)
            numbers[one.name] = one.prompts
            sound.append(one)
    verdict.compared += len(sound)
    if sound:
        _name_those_that_leave(sound, anchored, numbers, limits, verdict)
    wrong = set(verdict.wrong)
    return [one for one in sound if not one.known and one.engine not in wrong]


def _leaves_transformers(one: Server, limits: Limits, verdict: Verdict) -> bool:
    """Hold a server against what transformers computes, where that is known."""
    gap = distance(one.reference, one.prompts) if one.reference else None
    if gap is None or gap.tokenizer:
        why = one.unreferenced or "transformers reads the prompts as other tokens"
        verdict.unreferenced[one.engine] = why
        return False
    verdict.referenced += 1
    whose = "transformers, in float32 on the processor, for the same weights"
    return _too_far(
        one,
        gap,
        whose,
        f"{_compare(one)}. Where transformers is known to be wrong about this model: -e "
        "vllm_reference_gib=0",
        limits,
        verdict,
    )


def _leaves(one: Server, reference: Mapping[str, Any], limits: Limits, verdict: Verdict) -> bool:
    """Hold a server against what is kept for its weights."""
    return _too_far(
        one,
        distance(reference["prompts"], one.prompts),
        f"{reference['of']}, kept for the same weights",
        f"{_compare(one)}. Where the change is meant (other kernels, a plugin): -e "
        "vllm_computation_again=true records its numbers again, and keeps those of other models",
        limits,
        verdict,
    )


def _too_far(
    one: Server, gap: Distance, whose: str, fix: str, limits: Limits, verdict: Verdict
) -> bool:
    """Refuse a server beyond its limit; say of one beyond the measured tolerance that it is."""
    found = f"{gap.words()} from {whose}"
    if gap.mean > _limit(one, limits):
        _refuse(verdict, one, found, limits, fix)
        return True
    if gap.mean > limits.tolerance:
        verdict.notes.append(_unmeasured(one, found, limits))
    return False


def _name_those_that_leave(
    sound: Sequence[Server],
    anchored: set[str],
    numbers: Mapping[str, Prompts],
    limits: Limits,
    verdict: Verdict,
) -> None:
    """Compare servers with each other."""
    near = {
        one.name: {
            other.name
            for other in sound
            # Fine-tunes that are near each other are other models all the same.
            if one.weights == other.weights
            and distance(numbers[one.name], numbers[other.name]).mean <= _limit(one, limits)
        }
        for one in sound
    }
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
            _refuse(verdict, one, words, limits, _compare(one))
        elif not one.known and one.name not in anchored:
            gap = distance(numbers[centre.name], numbers[one.name])
            if gap.mean > limits.tolerance:
                found = f"{gap.words()} from {centre.name} on {centre.host}"
                verdict.notes.append(_unmeasured(one, found, limits))


def _farthest(one: Server, sound: Iterable[Server], numbers: Mapping[str, Prompts]) -> Server:
    return max(sound, key=lambda other: distance(numbers[one.name], numbers[other.name]).mean)


def _unmeasured(one: Server, found: str, limits: Limits) -> str:
    return (
        f"{one.name} on {one.host}: {found}; more than {limits.tolerance}, and for "
        f"{one.unmeasured} the spread of correct engines was never measured, so it fails beyond "
        f"{limits.unmeasured} (vllm_computation_unmeasured_tolerance)"
    )


def _compare(one: Server) -> str:
    return (
        f"compare the weights on all hosts of {one.engine} (-e weights_rehash=true), "
        "then its devices (--tags verify)"
    )


def _refuse(verdict: Verdict, one: Server, found: str, limits: Limits, fix: str) -> None:
    verdict.wrong.append(one.engine)
    verdict.measurements.append(
        {
            "what": f"the numbers that {one.name} computes",
            "ok": False,
            "expected": "the same weights, and log probabilities of fixed prompts within "
            f"{_limit(one, limits)} in the mean of those that servers with the same model compute",
            "found": found,
            "where": f"{one.name} on {one.host}",
            "fix": fix,
        }
    )
