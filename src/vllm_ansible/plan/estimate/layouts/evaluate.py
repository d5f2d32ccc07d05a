"""Judge every candidate: limits first, then memory, then speed."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_ansible.accelerators.accelerator import Accelerator
from vllm_ansible.accelerators.machines import Machines
from vllm_ansible.accelerators.platform import platform
from vllm_ansible.plan.estimate.layouts.candidate import (
    Candidate,
    alike,
    candidates,
    fitted,
    of_experts,
    usable,
)
from vllm_ansible.plan.estimate.layouts.limits import (
    CHECKS_ALL_LAYERS,
    Facts,
    affected,
    facts,
    refusals,
)
from vllm_ansible.plan.estimate.layouts.placing import Site, nodes_of_engine, partition, sites
from vllm_ansible.plan.estimate.layouts.request import ENGINE_VERSION, Request
from vllm_ansible.plan.estimate.layouts.verdict import GIB, Verdict
from vllm_ansible.plan.estimate.memory.budget import Budget, budget, default_batch
from vllm_ansible.plan.estimate.memory.kernels import Kernels
from vllm_ansible.plan.estimate.memory.kv_cache import resolved
from vllm_ansible.plan.estimate.memory.release import release
from vllm_ansible.plan.estimate.memory.split import Split, stages
from vllm_ansible.plan.estimate.throughput.estimate import (
    Placed,
    Speed,
    Stage,
    chat_seconds,
    version,
)
from vllm_ansible.plan.estimate.throughput.work import Kinds, Work


class Judge:
    """Judges candidates of one request; what they share is found once."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.model = request.model
        self.facts: Facts = facts(request.model)
        cached = resolved(request.model, request.kv_cache_dtype, request.engine_version)
        self.kinds = Kinds(request.model, self._kernels(), cached)
        self.version = version(request.engine_version)
        self.total = request.model.bytes()
        self._works: dict[tuple[int, int, bool], Work] = {}
        self._steps: dict[str, tuple[int, int]] = {}

    def _kernels(self) -> Kernels:
        """Return what decides on the kernels over experts: the first node's device speaks."""
        device = self.request.machines.nodes[0].accelerator
        kind = platform(device.kind).software
        return Kernels(kind, device.capability, release(self.request.engine_version))

    def all(self) -> Iterator[Verdict]:
        """Yield the verdict of every candidate, or of the one that was asked for."""
        if self.request.wanted:
            yield self.verdict(fitted(self.request.wanted, self.request.machines))
            return
        machines, known = self.request.machines, self.facts
        allowed = all(platform(one.accelerator.kind).expert_parallel for one in machines.nodes)
        found = candidates(machines, known.layers, known.experts)
        for candidate in of_experts(found, self.request.whole_experts, allowed):
            yield self.verdict(candidate)

    def verdict(self, candidate: Candidate) -> Verdict:
        """Return what is known of one candidate."""
        machines = self.request.machines
        if not alike(machines.nodes) and (refused := _shape(candidate, machines)):
            # No node may hold a group of it, so there is no place to judge.
            return Verdict(candidate, refused, 1, 1)
        where = sites(candidate, machines)
        spans = nodes_of_engine(candidate, machines), max(site.tensor_nodes for site in where)
        refusal = self._limit(candidate, where)
        if refusal:
            return Verdict(candidate, refusal, *spans)
        memory = [site.accelerator.memory_bytes for site in where]
        least = self.total / candidate.ranks - self.request.offload_gib * GIB
        if least > max(memory):
            words = f"the weights alone are {least / GIB:.1f} GiB a rank of {max(memory) / GIB:.1f}"
            return Verdict(candidate, words, *spans)
        parts = partition(
            self.facts.layers, memory, [float(site.accelerator.bandwidth) for site in where]
        )
        split = Split(candidate.tensor, candidate.pipeline, candidate.data, candidate.expert, parts)
        held = self._budget(split, where)
        refusal = self._memory(held, len(where))
        if refusal:
            return Verdict(candidate, refusal, *spans, parts, held)
        speed = self.speed(candidate, where, split, spans[0])
        load = speed.at(
            max(1.0, self.request.concurrency / candidate.replicas),
            self.request.input_tokens,
            self.request.output_tokens,
            self.most_running(held, candidate, where),
        )
        return Verdict(candidate, "", *spans, parts, held, load, float(self.request.concurrency))

    def most_running(self, held: Budget, candidate: Candidate, where: tuple[Site, ...]) -> float:
        """Return how many sequences one engine runs at once, by its cache and its scheduler."""
        each = self.request.input_tokens + self.request.output_tokens / 2
        return max(1.0, min(held.kv_tokens[1] / each, self.seats(where))) * candidate.data

    def seats(self, where: tuple[Site, ...]) -> int:
        """Return how many sequences the scheduler of one engine lets run at once."""
        return min(self._step(site.accelerator)[1] for site in where)

    def _step(self, device: Accelerator) -> tuple[int, int]:
        """Return the most tokens and sequences of a step on a device."""
        if device.name not in self._steps:
            tokens, seats = default_step(device, self.request.engine_version, self.request.longest)
            self._steps[device.name] = self.request.batched_tokens or tokens, seats
        return self._steps[device.name]

    def speed(
        self, candidate: Candidate, where: tuple[Site, ...], split: Split, nodes: int
    ) -> Speed:
        """Return the speed of one engine of a candidate."""
        key = (candidate.tensor, candidate.data, candidate.expert)
        placed = Placed(
            tensor=candidate.tensor,
            data=candidate.data,
            expert=candidate.expert,
            stages=tuple(
                Stage(layers, site.accelerator, site.tensor_nodes, site.nodes)
                for layers, site in zip(stages(self.facts.layers, split), where, strict=True)
            ),
            nodes=nodes,
            fabric=self.request.machines.fabric,
            eager=self.request.eager,
            engine_version=self.version,
            step_tokens=min(self._step(site.accelerator)[0] for site in where),
            chat=chat_seconds(self.model.architecture, self.version),
        )
        if key not in self._works:
            self._works[key] = self.kinds.work(*key, placed.old_rotary, placed.absorbed)
        return Speed(self.kinds, placed, self._works[key])

    def _limit(self, candidate: Candidate, where: tuple[Site, ...]) -> str:
        """Return the first hard limit that a candidate violates, or nothing."""
        words = _shape(candidate, self.request.machines)
        if words:
            return words
        request = self.request
        if request.lora and candidate.expert and self.facts.experts:
            return f"{candidate.name} keeps experts whole, and vLLM has no LoRA for those"
        found = refusals(self.facts, candidate, where[0].accelerator, request.offload_gib)
        return next(found, "")

    def _budget(self, split: Split, where: tuple[Site, ...]) -> Budget:
        """Return the memory of every stage."""
        request = self.request
        return budget(
            self.model,
            split,
            tuple(site.accelerator.memory_bytes for site in where),
            utilization=request.utilization,
            max_model_len=request.longest,
            max_num_batched_tokens=request.batched_tokens,
            kv_cache_dtype=request.kv_cache_dtype,
            eager=request.eager,
            engine_version=None
            if request.engine_version == ENGINE_VERSION
            else request.engine_version,
            accelerator_kind=platform(where[0].accelerator.kind).software,
            device=where[0].accelerator.name,
            capability=where[0].accelerator.capability,
            lora=request.lora,
            prefix_caching=request.prefix_caching,
        )

    def _memory(self, held: Budget, stages_: int) -> str:
        """Return why the model does not fit, in one sentence with its numbers, or nothing."""
        tokens, longest = held.kv_tokens[1], self.request.longest
        if not held.fits:
            return held.reasons[0] if held.reasons else "the cache has no room for one request"
        if stages_ > 1 and affected(self.version, CHECKS_ALL_LAYERS):
            share = max(1, self.facts.layers // stages_) / self.facts.layers
            if tokens * share < longest:
                return (
                    f"vLLM {self.request.engine_version} holds all {self.facts.layers} layers "
                    f"against one stage: {int(tokens * share):,} tokens of {longest:,} (vllm#34076)"
                )
        return ""


def default_step(device: Accelerator, engine_version: str, length: int) -> tuple[int, int]:
    """Return the most tokens and sequences of a step by vLLM's defaults for a device.

    length: the longest request, which bounds a step of engines that take prompts whole.
    """
    return default_batch(device.memory_bytes, engine_version, length, device.name)


def _shape(candidate: Candidate, machines: Machines) -> str:
    """Return why the machines cannot hold a split that was asked for, or nothing."""
    if candidate.ranks > machines.devices:
        return f"{candidate.name} needs {candidate.ranks} devices, and there are {machines.devices}"
    if candidate.data > 1 and (words := _data_shape(candidate, machines)):
        return words
    if not alike(machines.nodes):
        groups = sum(node.devices // candidate.tensor for node in machines.nodes)
        if candidate.pipeline <= groups:
            return ""
        return (
            f"{candidate.name} needs {candidate.pipeline} groups of {candidate.tensor} devices, "
            f"each in one node, and {machines.line()} has {groups}"
        )
    devices, count = machines.nodes[0].devices, len(machines.nodes)
    if candidate.nodes(devices) <= count:
        return ""
    return (
        f"TP{candidate.tensor} does not divide over nodes of {devices} devices: {candidate.name} "
        f"takes {usable(candidate.tensor, devices)} of each, so {candidate.nodes(devices)} nodes, "
        f"and there are {count}"
    )


def _data_shape(candidate: Candidate, machines: Machines) -> str:
    """Return why the machines cannot hold data-parallel ranks that were asked for, or nothing."""
    least = min(node.devices for node in machines.nodes)
    if candidate.tensor * candidate.pipeline > least and len(machines.nodes) > 1:
        return (
            f"each data-parallel rank of {candidate.name} takes "
            f"{candidate.tensor * candidate.pipeline} devices of one node, and a node has {least}"
        )
    if not alike(machines.nodes):
        return (
            f"{candidate.name} needs nodes of equal accelerators, since its data-parallel ranks "
            f"work in step, and {machines.line()} differ"
        )
    return ""
