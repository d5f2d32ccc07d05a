"""What is asked of the planner: a model, machines, and what matters."""

from __future__ import annotations

from math import inf

from vllm_ansible.accelerators.machines import Machines
from vllm_ansible.frozen import frozen
from vllm_ansible.plan.estimate.architectures.model import Model
from vllm_ansible.plan.estimate.layouts.candidate import Candidate
from vllm_ansible.plan.estimate.memory.lora import Slots
from vllm_ansible.problem import PlanError, Problem

OBJECTIVES = ("throughput", "latency", "context")
# The version that requirements/engine-*.txt install.
ENGINE_VERSION = "0.32.0"
USUAL_CONTEXT = 8192


@frozen
class Request:
    """One question. `context` is the longest request, prompt and reply, that must fit.

    `wanted` asks for one split instead of the best, and for at most so many engines of it as it has
    replicas; `utilization` is the share of a device's memory
    that the engine takes, and `batched_tokens` the most tokens of a step, None for what its version
    does by itself. `text_only` leaves the vision tower out, `encoder_data` keeps it whole on every
    rank; `lora` are slots for adapters, `speculative` the tokens that the checkpoint's own layers
    propose in a step, `draft` the method and name of a draft model that proposes them instead.
    `whole_experts` is what the user decided of experts, None for what is best; where
    `prefix_caching` is False a sequence keeps one recurrent state, None is the release's default.
    `model` is the one that results.
    """

    model: Model
    machines: Machines
    concurrency: int = 64
    input_tokens: int = 1024
    output_tokens: int = 512
    objective: str = "throughput"
    context: int | None = None
    engine_version: str = ENGINE_VERSION
    eager: bool = False
    utilization: float | None = None
    kv_cache_dtype: str = "auto"
    offload_gib: float = 0.0
    wanted: Candidate | None = None
    batched_tokens: int | None = None
    text_only: bool = False
    encoder_data: bool = False
    lora: Slots | None = None
    speculative: int = 0
    draft: tuple[str, str] | None = None
    whole_experts: bool | None = None
    prefix_caching: bool | None = None

    @property
    def longest(self) -> int:
        """Return the tokens of the longest request that must fit."""
        if self.context:
            return self.context
        usual = max(USUAL_CONTEXT, self.input_tokens + self.output_tokens)
        return min(usual, self.model.max_context)


def check(request: Request) -> Request:
    """Return the request, or refuse with one sentence for each number that makes no sense."""
    problems = [
        Problem(
            f"{name} is {value}, and must be at least 1",
            expected="at least 1",
            found=str(value),
            where=name,
            fix=f"raise {name}",
        )
        for name, value in (
            ("concurrency", request.concurrency),
            ("input tokens", request.input_tokens),
            ("output tokens", request.output_tokens),
            ("context", 1 if request.context is None else request.context),
            ("batched tokens", 1 if request.batched_tokens is None else request.batched_tokens),
            ("LoRA slots", request.lora.number if request.lora else 1),
            ("LoRA rank", request.lora.rank if request.lora else 1),
        )
        if value < 1
    ]
    if request.speculative and not request.draft and not request.model.next_layers:
        problems.append(
            Problem(
                f"{request.model.name} has no layers that are planned as the method mtp",
                "num_nextn_predict_layers or mtp_num_hidden_layers in its config.json",
                fix="leave speculation out, or take a model that has them",
            )
        )
    if request.objective not in OBJECTIVES:
        problems.append(
            Problem(f"the objective {request.objective!r} is none of {', '.join(OBJECTIVES)}")
        )
    if request.utilization is not None and not 0 < request.utilization <= 1:
        problems.append(
            Problem(
                f"the share of memory is {request.utilization:g}, and must lie above 0 and up to 1",
                fix="use 0.9, say",
            )
        )
    if not 0 <= request.offload_gib < inf:
        told = f"offload_gib is {request.offload_gib:g}, and must be a number of GiB from 0"
        problems.append(Problem(told, "0 or more", fix="leave it out, or use 8, say"))
    needed = request.input_tokens + request.output_tokens
    if request.longest < needed:
        problems.append(
            Problem(
                f"a request of {request.input_tokens} and {request.output_tokens} tokens is longer "
                f"than the context of {request.longest}",
                fix="raise --context, or ask for shorter requests",
            )
        )
    if request.longest > request.model.max_context > 0:
        problems.append(
            Problem(
                f"a context of {request.longest} tokens is more than the model's "
                f"{request.model.max_context}",
                fix="lower --context",
            )
        )
    if problems:
        raise PlanError(problems)
    return request


def has_experts(request: Request) -> bool:
    """Tell whether the model is a mixture of experts."""
    return any(layer.experts for layer in request.model.layers)
