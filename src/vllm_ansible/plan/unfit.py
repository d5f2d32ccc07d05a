"""What cannot run, or is far slower than it need be, in sentences with the planner's numbers."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_ansible.plan.engines import Engine
from vllm_ansible.plan.estimate.architectures.model import Model
from vllm_ansible.plan.estimate.layouts.choice import choose
from vllm_ansible.plan.estimate.layouts.evaluate import Judge
from vllm_ansible.plan.estimate.layouts.request import Request
from vllm_ansible.plan.estimate.layouts.single import devices_of
from vllm_ansible.plan.estimate.layouts.verdict import Verdict
from vllm_ansible.plan.model_arguments import asked_length, given_arguments
from vllm_ansible.plan.sizes import Layout
from vllm_ansible.plan.splits import served, written
from vllm_ansible.problem import PlanError, Problem

# A layout below this part of another one's rate, on no more devices, is worth a warning: bands of
# rates reach from 1/1.5 to 1.5 of their middle.
FAR_SLOWER = 0.5
# Arguments that may scale positions, so that the model's own length is no limit.
POSITIONED = ("hf_overrides", "rope_scaling")
UNFIT = "-e plan_allow_unfit=true tries it still"


def refuse_length(engine: Engine, model: Model) -> None:
    """Refuse a context that vLLM refuses at its start, when what served before has stopped."""
    given = given_arguments(engine)
    length = asked_length(engine)
    longer = engine.environment.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "0") not in ("", "0")
    if (
        longer
        or any(given[name] for name in given if name.partition(".")[0] in POSITIONED)
        or length is None
        or not 0 < model.most_context < length
    ):
        return
    raise PlanError(
        Problem(
            f"engine {engine.name} asks for max_model_len {length:,}, and {model.name} has "
            f"{model.most_context:,}",
            expected=f"at most {model.most_context:,}",
            found=f"{length:,}",
            where=f"engines {engine.name}.vllm_args.max_model_len",
            fix="lower it, or set VLLM_ALLOW_LONG_MAX_MODEL_LEN: 1 in the engine's environment",
        )
    )


def surely_not(verdict: Verdict, request: Request) -> bool:
    """Tell whether a refused layout cannot run with the least overhead of its band either."""
    held = verdict.budget
    if held is None:
        return True
    # What lies in the host's memory is not counted.
    return not request.offload_gib and held.kv_tokens[2] < request.longest


def cannot_run(engine: Engine, layout: Layout, verdict: Verdict, judge: Judge) -> Problem:
    """Return the refusal of a layout that the user chose, with what would run instead."""
    able = [one for one in served(engine, judge, True) if one.accepted]
    best = choose(able, judge.request)
    instead = f"layout {written(best.candidate)} is expected to run" if best else "no other runs"
    return Problem(
        f"engine {engine.name} with layout {layout.name} cannot run on "
        f"{judge.request.machines.line()}: {verdict.refusal}",
        expected=f"a layout and arguments that run; {instead}",
        found=verdict.refusal,
        where=f"engines {engine.name}",
        fix=f"write layout: {written(best.candidate)} or auto, or change vllm_args; {UNFIT}"
        if best
        else f"change vllm_args or add devices; {UNFIT}",
    )


def far_slower(engine: Engine, layout: Layout, verdict: Verdict, judge: Judge) -> tuple[str, ...]:
    """Return a sentence where another layout of no more devices has more than twice the rate."""
    others = [
        one
        for one in served(engine, judge, True)
        if one.accepted and devices_of(one.candidate) <= layout.world_size
    ]
    best = choose(others, judge.request)
    if best is None or verdict.output_rate >= FAR_SLOWER * best.output_rate:
        return ()
    return (
        f"{layout.name} is expected to give {verdict.output_rate:,.0f} tokens/s, and layout "
        f"{written(best.candidate)} {best.output_rate:,.0f} on no more devices",
    )


def nothing_runs(engine: Engine, able: Sequence[Verdict], judge: Judge) -> Problem:
    """Return why no layout of the free devices is expected to run."""
    there = judge.request.machines.line()
    why = f"no split of {judge.request.machines.devices} devices is even"
    if able:
        nearest = max(able, key=lambda one: (one.budget is not None, one.candidate.ranks))
        why = f"{nearest.candidate.name}: {nearest.refusal}"
    return Problem(
        f"engine {engine.name} with {engine.model}: no layout is expected to run on {there}; {why}",
        expected="accelerators that hold the model and a cache",
        found=why,
        where=f"engines {engine.name}",
        fix="add machines or take larger ones, lower max_model_len, or give the engine a layout "
        "and run with -e plan_allow_unfit=true to try it",
    )
