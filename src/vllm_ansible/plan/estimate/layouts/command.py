"""The verb `vllm-ansible plan`: a model and machines in, the layout to run out."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

from vllm_ansible.accelerators.machines import EXAMPLE, Machines, machines
from vllm_ansible.plan.estimate.architectures.drafts import with_draft_model, with_drafts
from vllm_ansible.plan.estimate.architectures.model import Model
from vllm_ansible.plan.estimate.architectures.towers import with_tower
from vllm_ansible.plan.estimate.layouts import apart
from vllm_ansible.plan.estimate.layouts.answer import NoLayout
from vllm_ansible.plan.estimate.layouts.candidate import Candidate
from vllm_ansible.plan.estimate.layouts.engine_set import EngineSet, engine_set
from vllm_ansible.plan.estimate.layouts.hub import model_of
from vllm_ansible.plan.estimate.layouts.request import ENGINE_VERSION, Request, check
from vllm_ansible.plan.estimate.layouts.set_table import set_document, set_lines
from vllm_ansible.plan.estimate.layouts.table import WIDTH, document, lines
from vllm_ansible.plan.estimate.memory.lora import Slots
from vllm_ansible.problem import PlanError, Problem

OK, NO_LAYOUT, REFUSED = 0, 1, 2
EXAMPLES = """
examples:
  how to run a model here   vllm-ansible plan org/name "2x8 H200 @ 8x400Gb"
  for another load          vllm-ansible plan org/name "1x8 H200" --concurrency 8 --input-tokens 512
  for the shortest answers  vllm-ansible plan org/name "1x8 H200" --latency --concurrency 1
  for the longest requests  vllm-ansible plan org/name "1x8 H200" --context
  does this one layout run  vllm-ansible plan org/name "1x8 H200" --tensor 4 --data 2 --expert
  why not another layout    vllm-ansible plan org/name "1x8 H200" --all
  prefill and decode apart  vllm-ansible plan org/name "2x8 H200 @ 8x400Gb" --slo-ttft-ms 500
  two models on one cluster vllm-ansible plan org/name "2x8 H200 @ 8x400Gb" --also org/other
  machines of two kinds     vllm-ansible plan org/name "2x8 H200 + 1x8 H100-80"
  a type of instance of AWS vllm-ansible plan org/name "2x p5.48xlarge"
  which offer is cheapest   vllm-ansible plan org/name --offers prices.yml --svg frontier.svg
  with LoRA adapters        vllm-ansible plan org/name "1x8 H200" --lora-slots 4 --lora-rank 32
  with speculative decoding vllm-ansible plan org/name "1x8 H200" --mtp 1
  for a program             vllm-ansible plan config.json "1x8 H200" --json

exit status: 0 a plan, 1 nothing can run, 2 the question is wrong
"""
# Tokens that a draft model proposes in a step, where nobody says.
PROPOSED = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a plan; 0 is a layout to run, 1 that none can run, 2 a question that is wrong."""
    options = parser().parse_args(arguments)
    try:
        _check_together(options)
        if options.offers:
            return _offered(options)
        request = _request(options)
        if options.also:
            return _several(request, options)
        found = engine_set(request)
        roles = _roles(request, options)
        if options.svg:
            _draw(found, options.svg)
    except PlanError as error:
        if options.json:
            sys.stdout.write(json.dumps({"ok": False, "refused": str(error)}, indent=2) + "\n")
        else:
            sys.stderr.write(f"vllm-ansible: {error}\n")
        return NO_LAYOUT if isinstance(error, NoLayout) else REFUSED
    if options.json:
        beside = {"apart": apart.document(roles)} if roles else {}
        sys.stdout.write(json.dumps({"ok": True, **set_document(found), **beside}, indent=2) + "\n")
    else:
        beside_it = ["", *apart.lines(roles)] if roles else []
        sys.stdout.write("\n".join([*set_lines(found, options.all), *beside_it]) + "\n")
    return OK


def _check_together(options: argparse.Namespace) -> None:
    """Raise PlanError for options that one another leaves without effect."""
    beside = "--offers" if options.offers else "--also" if options.also else None
    limits = {"--slo-ttft-ms": options.slo_ttft_ms, "--slo-tpot-ms": options.slo_tpot_ms}
    asked = [name for name, value in limits.items() if value is not None]
    asked += ["--apart"] * options.apart + ["--draft"] * bool(options.also and options.draft)
    if beside and asked:
        raise PlanError(
            Problem(
                f"{asked[0]} is not computed with {beside}",
                fix=f"leave out {beside}, or {' and '.join(asked)}",
            )
        )
    if any(one is not None and not 0 < one < inf for one in limits.values()):
        raise PlanError(Problem("--slo-ttft-ms and --slo-tpot-ms must be above 0, and finite"))


def _roles(request: Request, options: argparse.Namespace) -> apart.Advice | str | None:
    """Return what prefill and decode apart would bring, where that is asked."""
    limits = options.slo_ttft_ms, options.slo_tpot_ms
    if not options.apart and limits == (None, None):
        return None
    first, each = (None if one is None else one / 1e3 for one in limits)
    return apart.advice(request, apart.Slo(first, each))


def _draw(found: EngineSet, path: str) -> None:
    """Write the picture of a plan."""
    from vllm_ansible.plan.estimate.layouts.picture import of_set

    _write(path, of_set(found))


def _write(path: str, picture: str) -> None:
    try:
        Path(path).write_text(picture, encoding="utf-8")
    except OSError as error:
        raise PlanError(Problem(f"{path} cannot be written: {error.strerror}")) from error


def _offered(options: argparse.Namespace) -> int:
    """Print what each of several offers costs for a million tokens."""
    from vllm_ansible.plan.estimate.layouts import offers

    if options.machines or options.also:
        raise PlanError(
            Problem(
                "--offers asks about machines of its own and one model",
                fix="leave out MACHINES and --also",
            )
        )
    own = _own(options.accelerators)
    asked = offers.offers(_read(options.offers, "offers"), options.offers, own)
    request = check(_request(options, asked[0].machines))
    found, refused = offers.ranked(request, asked)
    if options.svg and found:
        from vllm_ansible.plan.estimate.layouts import frontier

        drawn = frontier.points(request, [one.offer for one in found])
        _write(options.svg, frontier.draw(request, drawn))
    if options.json:
        told = {"ok": bool(found), "offers": offers.document(found, refused)}
        sys.stdout.write(json.dumps(told, indent=2) + "\n")
    else:
        sys.stdout.write("\n".join(offers.lines(request, found, refused)) + "\n")
    return OK if found else NO_LAYOUT


def _several(request: Request, options: argparse.Namespace) -> int:
    """Print a plan for each of several models that share the machines."""
    from vllm_ansible.plan.estimate.layouts.several import share, where

    asked = [request, *(replace(request, model=_model(name, options)) for name in options.also)]
    found = share([check(one) for one in asked])
    if options.json:
        engines = [document(one) for one in found]
        sys.stdout.write(json.dumps({"ok": True, "engines": engines}, indent=2) + "\n")
        return OK
    for one in found:
        told = "\n".join(lines(one, options.all))
        sys.stdout.write(f"on {where(one.request.machines, request.machines)}: {told}\n\n")
    return OK


def parser() -> argparse.ArgumentParser:
    """Return the parser of this verb."""
    made = argparse.ArgumentParser(
        prog="vllm-ansible plan",
        description="Say how to run a model on machines, how fast that is, and why not otherwise.",
        epilog=EXAMPLES,
        # Without a width each option asks for the terminal's, which imports a lot.
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=WIDTH),
    )
    made.add_argument("model", help="config.json, a directory with one, or a hub name (org/name)")
    made.add_argument("machines", nargs="?", help=EXAMPLE)
    made.add_argument(
        "--offers",
        metavar="FILE",
        help="machines with prices, JSON or YAML; the cheapest for a million tokens comes first",
    )
    made.add_argument(
        "--also",
        action="append",
        default=[],
        metavar="MODEL",
        help="another model on the same machines; each gets nodes of its own",
    )
    made.add_argument("--concurrency", type=int, default=64, help="requests at once (64)")
    made.add_argument("--input-tokens", type=int, default=1024, help="tokens of one prompt (1024)")
    made.add_argument("--output-tokens", type=int, default=512, help="tokens of one reply (512)")
    made.add_argument(
        "--latency", action="store_true", help="choose the shortest time a token, not most tokens/s"
    )
    made.add_argument(
        "--apart",
        action="store_true",
        help="engines for prefill and for decode beside as many replicas",
    )
    made.add_argument(
        "--slo-ttft-ms",
        type=float,
        metavar="MS",
        help="longest time to the first token, as --apart",
    )
    made.add_argument(
        "--slo-tpot-ms",
        type=float,
        metavar="MS",
        help="longest time of each further token, as --apart",
    )
    made.add_argument(
        "--context",
        type=int,
        nargs="?",
        const=0,
        metavar="TOKENS",
        help="longest request that must fit; without a number, the longest that can",
    )
    made.add_argument(
        "--tensor", type=int, metavar="N", help="this layout alone: its tensor parallel size"
    )
    made.add_argument(
        "--pipeline", type=int, default=1, metavar="N", help="its pipeline parallel size (1)"
    )
    made.add_argument("--data", type=int, default=1, metavar="N", help="its data parallel size (1)")
    made.add_argument("--expert", action="store_true", help="its experts whole on each rank")
    made.add_argument(
        "--vllm", default=ENGINE_VERSION, metavar="VERSION", help=f"release ({ENGINE_VERSION})"
    )
    made.add_argument("--eager", action="store_true", help="an engine without CUDA graphs")
    made.add_argument(
        "--utilization", type=float, metavar="SHARE", help="of each device's memory (0.92)"
    )
    made.add_argument("--kv-cache-dtype", default="auto", metavar="TYPE", help="such as fp8 (auto)")
    made.add_argument("--batched-tokens", type=int, metavar="N", help="most tokens of a step")
    made.add_argument("--text-only", action="store_true", help="without the vision tower")
    made.add_argument(
        "--encoder-data", action="store_true", help="the vision tower whole on every rank"
    )
    made.add_argument(
        "--no-prefix-caching", action="store_true", help="without states kept for prefixes"
    )
    made.add_argument("--lora-slots", type=int, metavar="N", help="LoRA adapters at once")
    made.add_argument("--lora-rank", type=int, default=16, metavar="N", help="and their rank (16)")
    made.add_argument(
        "--mtp", type=int, default=0, metavar="N", help="tokens the model's own layers propose"
    )
    made.add_argument(
        "--draft", metavar="MODEL", help=f"EAGLE model that proposes --mtp tokens ({PROPOSED})"
    )
    made.add_argument(
        "--offload-gib",
        type=float,
        default=0.0,
        metavar="GIB",
        help="of weights kept in host memory (0)",
    )
    made.add_argument(
        "--measured", type=float, metavar="GB/S", help="bus bandwidth that a check saw across nodes"
    )
    made.add_argument("--accelerators", metavar="FILE", help="own accelerators, JSON or YAML")
    made.add_argument("--svg", metavar="FILE", help="write a picture of all ranks, or of offers")
    made.add_argument("--json", action="store_true", help="print one JSON document")
    made.add_argument("--all", action="store_true", help="show every other layout")
    return made


def _request(options: argparse.Namespace, given: Machines | None = None) -> Request:
    """Return the question that the command line asks, about its machines or the given ones."""
    if given is None and options.machines is None:
        raise PlanError(Problem("no machines are named", EXAMPLE, fix="name machines, or --offers"))
    there = given or machines(options.machines, _own(options.accelerators))
    if options.measured is not None:
        if not options.measured > 0:
            raise PlanError(
                Problem(f"a measured bandwidth of {options.measured:g} GB/s must be above 0")
            )
        fabric = replace(there.fabric, measured=options.measured * 1e9, assumed=False)
        there = replace(there, fabric=fabric)
    longest = options.context == 0
    objective = "latency" if options.latency else "context" if longest else "throughput"
    return Request(
        model=_model(options.model, options),
        machines=there,
        concurrency=options.concurrency,
        input_tokens=options.input_tokens,
        output_tokens=options.output_tokens,
        objective=objective,
        context=None if longest else options.context,
        engine_version=options.vllm,
        eager=options.eager,
        utilization=options.utilization,
        kv_cache_dtype=options.kv_cache_dtype,
        offload_gib=options.offload_gib,
        wanted=_wanted(options, there),
        batched_tokens=options.batched_tokens,
        text_only=options.text_only,
        encoder_data=options.encoder_data,
        prefix_caching=False if options.no_prefix_caching else None,
        lora=None if options.lora_slots is None else Slots(options.lora_slots, options.lora_rank),
        speculative=options.mtp or (PROPOSED if options.draft else 0),
        draft=(_method(options.draft), options.draft) if options.draft else None,
    )


def _model(name: str, options: argparse.Namespace) -> Model:
    """Return a model with its vision tower as the command line wants it."""
    model = with_tower(
        model_of(name), text_only=options.text_only, encoder_data=options.encoder_data
    )
    if options.draft:
        return with_draft_model(model, model_of(options.draft), options.mtp or PROPOSED)
    return with_drafts(model, options.mtp) if options.mtp else model


def _method(draft: str) -> str:
    """Return vLLM's name for what a draft model does."""
    return "eagle" if model_of(draft).architecture == "EagleLlamaForCausalLM" else "eagle3"


def _wanted(options: argparse.Namespace, there: Machines) -> Candidate | None:
    """Return the layout that was asked for, if one was."""
    if options.tensor is None:
        if options.pipeline != 1 or options.data != 1 or options.expert:
            raise PlanError(
                Problem("a layout was asked for without its tensor size", fix="add --tensor N")
            )
        return None
    for name in ("tensor", "pipeline", "data"):
        if getattr(options, name) < 1:
            raise PlanError(
                Problem(
                    f"--{name} is {getattr(options, name)}, and must be at least 1",
                    fix=f"raise --{name}",
                )
            )
    # As many engines of it as there is room for.
    return Candidate(
        options.tensor, options.pipeline, options.data, options.expert, replicas=there.devices
    )


def _own(path: str | None) -> Mapping[str, Mapping[str, Any]]:
    """Return the accelerators that a file adds."""
    if not path:
        return {}
    found = _read(path, "accelerators")
    if not isinstance(found, dict) or not all(isinstance(one, dict) for one in found.values()):
        raise PlanError(Problem(f"{path} must map each accelerator's name to its fields"))
    return found


def _read(path: str, what: str) -> Any:
    """Return what a file of JSON or YAML holds."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PlanError(Problem(f"the {what} of {path} cannot be read: {error}")) from error
    try:
        return json.loads(text)
    except ValueError:
        import yaml

        try:
            return yaml.safe_load(text)
        # A day that no month has is a ValueError.
        except (yaml.YAMLError, ValueError) as error:
            why = " ".join(str(error).split())
            raise PlanError(Problem(f"{path} is neither JSON nor YAML: {why}")) from error
