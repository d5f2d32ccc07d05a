"""What servers with the same model compute, compared with each other and with what is kept."""

from __future__ import annotations

from typing import Any

from vllm_ansible.computation import verdict as numbers
from vllm_ansible.computation.conditions import conditions
from vllm_ansible.computation.reference import unmeasured
from vllm_ansible.computation.verdict import Limits, Server, Verdict, known_start
from vllm_ansible.gate import Case
from vllm_ansible.plan.servers import entry_of

OTHER_WEIGHTS = "nothing was computed for its weights"


def judge(case: Case) -> dict[str, Any]:
    """Return `measurements`, a `summary`, `wrong` engines, and what is to be `kept`.

    It does not fail, so that servers can be stopped before a gate fails for these measurements.

    of: engines of the plan; kept, `weights` and `servers` of before; tolerance, the largest mean
    difference of log probabilities, and unmeasured_tolerance, the same for quantized models and
    mixtures of experts; again, whether numbers that no server computes any more give way to the
    new ones; version of vLLM. of_each_host: asked, what the loop of M(engine_fingerprint)
    registered; models, C(weights_models); sites, C(site_host); references, what
    M(engine_reference) registered where it ran.
    """
    wanted, kept = case.of, case.of["kept"]
    engines = {str(one["name"]): one for one in wanted["engines"]}
    asked, models, sites = case.each("asked"), case.each("models"), case.each("sites")
    computed: dict[str, Any] = {}
    for of_host in case.of_each_host["references"].values():
        computed |= of_host.get("references") or {}
    version = str(wanted.get("version", ""))
    servers = []
    for host, loop in asked.items():
        for one in loop.get("results", []):
            item = one["item"]
            if item["host"] != host:
                continue
            one = {"asked": True, "instance": "", "refused": item["unasked"], **one}
            engine = engines[item["engine"]]
            model = models[host].get(entry_of(engine), {})
            kind = str(sites[host].get("accelerator", ""))
            same = conditions(engine, version, kind, model)
            start, loaded = known_start(kept, item["name"], same)
            known = not one["asked"] and start == one["instance"]
            weights = loaded if known else str(model.get("fingerprint", ""))
            rank = f" rank {item['rank']}" if int(item["of"]) > 1 else ""
            reference = computed.get(item["engine"], {})
            usable = reference.get("weights") == weights
            servers.append(
                Server(
                    name=f"{item['engine']}{rank}",
                    engine=item["engine"],
                    process=item["name"],
                    host=host,
                    weights=weights,
                    same=same,
                    instance=one["instance"],
                    prompts=one.get("prompts", ()),
                    known=not one["asked"],
                    refused=one.get("refused", ""),
                    unmeasured=unmeasured(engine, model),
                    reference=reference.get("prompts", ()) if usable else (),
                    unreferenced=reference.get("skipped", "") or OTHER_WEIGHTS,
                )
            )
    limits = Limits(float(wanted["tolerance"]), float(wanted["unmeasured_tolerance"]))
    verdict = numbers.judge(servers, kept, limits, bool(wanted.get("again", False)))
    return {
        "changed": False,
        "summary": summary(servers, verdict),
        "measurements": verdict.measurements,
        "wrong": verdict.wrong,
        "kept": verdict.kept,
        "differs": verdict.kept != {"weights": {}, "servers": {}, **kept},
        "warns": list(verdict.notes),
    }


def summary(servers: list[Server], verdict: Verdict) -> str:
    """Return what was compared with what, in one line."""
    known = sum(1 for one in servers if one.known)
    words = [f"{verdict.compared} of {len(servers)} servers compute what their model does"]
    if known:
        words.append(f"{known} asked at their start")
    if verdict.referenced:
        words.append(f"{verdict.referenced} compared with transformers' float32 numbers")
    words += [
        f"{engine} not compared with transformers: {why}"
        for engine, why in verdict.unreferenced.items()
    ]
    return "; ".join([*words, *verdict.notes])
