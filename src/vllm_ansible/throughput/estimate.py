"""What an engine delivers at a concurrency: tokens per second, time per token, first token."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_ansible.accelerators.accelerator import Accelerator
from vllm_ansible.accelerators.machines import Fabric
from vllm_ansible.planner.frozen import frozen
from vllm_ansible.throughput import constants as c
from vllm_ansible.throughput.collectives import links
from vllm_ansible.throughput.step import Pass, Rank, Terms, stage_pass
from vllm_ansible.throughput.work import Kinds, Parts, Work

V1_SINCE = (0, 8)
FUSED_ROTARY_SINCE = (0, 10)
MARLIN_SINCE = (0, 9)
# Prompts of which a prefill rate is told.
PROMPT = 2048


@frozen
class Stage:
    """One pipeline stage: its layers, its device, and how many nodes its groups span.

    `tensor_nodes` are those of one tensor-parallel group, `nodes` those of all its ranks.
    """

    layers: range
    accelerator: Accelerator
    tensor_nodes: int
    nodes: int


@frozen
class Placed:
    """One engine as far as its speed goes."""

    tensor: int
    data: int
    expert: bool
    stages: tuple[Stage, ...]
    nodes: int
    fabric: Fabric
    eager: bool = False
    engine_version: tuple[int, ...] | None = None

    @property
    def old_rotary(self) -> bool:
        """Tell whether this engine runs DeepSeek's rotary embedding operation by operation."""
        return self.engine_version is not None and self.engine_version < FUSED_ROTARY_SINCE

    @property
    def first_engine(self) -> bool:
        """Tell whether this is vLLM's first engine, V0, which did everything between steps."""
        return self.engine_version is not None and self.engine_version < V1_SINCE


@frozen
class Band:
    """A prediction and the range in which a measurement is expected."""

    low: float
    middle: float
    high: float

    def holds(self, value: float) -> bool:
        """Tell whether a measured value lies in the band."""
        return self.low <= value <= self.high

    def times(self, factor: float) -> Band:
        """Return the band of a quantity that is this many times as large."""
        return Band(self.low * factor, self.middle * factor, self.high * factor)


@frozen
class Estimate:
    """What one engine delivers: rates in tokens per second, times in seconds.

    `running` is how many sequences run at once, `decode` the time of one decode step of a
    pipeline stage chain, by cause.
    """

    concurrency: float
    running: float
    output_rate: Band
    token_time: Band
    first_token: Band
    prefill_rate: float
    decode: Terms


@frozen
class Alike:
    """So many stages of a pipeline that hold layers of the same kinds on the same device."""

    parts: Parts
    head: bool
    rank: Rank
    times: int


class Speed:
    """The speed of one placed engine, for any load; the work of a rank is found once."""

    def __init__(self, kinds: Kinds, placed: Placed, work: Work | None = None) -> None:
        self.placed = placed
        self.work = work or kinds.work(placed.tensor, placed.data, placed.expert, placed.old_rotary)
        self.stages = _alike(self.work, placed)

    def at(
        self,
        concurrency: float,
        input_tokens: float = 512,
        output_tokens: float = 256,
        most_running: float | None = None,
        prefilled: bool = False,
    ) -> Estimate:
        """Return what is delivered to `concurrency` clients, each waiting for its reply.

        most_running: how many sequences the KV cache and the scheduler let run at once.
        prefilled: prompts come from engines that do nothing else.
        """
        running = min(concurrency, most_running) if most_running else concurrency
        context = input_tokens + output_tokens / 2
        period, terms = self._decode(running, context)
        prefill = self._prefill(input_tokens)
        hidden = 0.0 if self.placed.first_engine else self._prefill(1)
        width = len(self.placed.stages) * self.placed.data
        busy = 0.0 if prefilled else max(0.0, prefill - hidden) / width
        reply = output_tokens * period + running * busy
        queue = reply * max(0.0, concurrency - running) / running
        rate = running * output_tokens / reply
        return Estimate(
            concurrency=concurrency,
            running=running,
            output_rate=_band(rate),
            token_time=_band(reply / output_tokens),
            first_token=_band(queue + prefill + period),
            prefill_rate=PROMPT * width / self._prefill(PROMPT),
            decode=terms,
        )

    def _decode(self, running: float, context: float) -> tuple[float, Terms]:
        """Return the seconds between two tokens of a sequence, and the stages' terms together."""
        placed = self.placed
        stages = len(placed.stages)
        local = max(1.0, running / placed.data)
        batches = min(stages, max(1, int(local)))
        batch = local / batches
        load = Pass(batch, batch, context, max(1.0, running / batches))
        passes = [
            (stage_pass(self.work, one.parts, one.head, load, one.rank), one.times)
            for one in self.stages
        ]
        host = self._host(batch)
        through = sum((one.total * times for one, times in passes), 0.0)
        through += host + (stages - 1) * c.PIPELINE_HOP
        widest = max(max(one.total for one, _ in passes), host)
        together = sum((one.times(times) for one, times in passes), Terms())
        return max(through, batches * widest), together

    def _prefill(self, tokens: float) -> float:
        """Return the seconds from a prompt's arrival at the first stage to its logits."""
        load = Pass(tokens, 1, 0, tokens * self.placed.data, decode=False)
        time = self._host(1) + (len(self.placed.stages) - 1) * c.PIPELINE_HOP
        for one in self.stages:
            terms = stage_pass(self.work, one.parts, one.head, load, one.rank)
            time += one.times * (terms.total + terms.arithmetic * (1 / c.PREFILL_SHARE - 1))
        return time

    def _host(self, sequences: float) -> float:
        """Return the seconds the engine takes on the host between two steps."""
        step, each = c.HOST_STEP, c.HOST_SEQUENCE
        if self.placed.first_engine:
            step, each = c.V0_HOST_STEP, c.V0_HOST_SEQUENCE
        return step + each * sequences + (c.MULTI_NODE_STEP if self.placed.nodes > 1 else 0.0)


def version(text: str | None) -> tuple[int, ...] | None:
    """Return a vLLM version as numbers: 0.8.5.post1 is (0, 8, 5); None stays None."""
    numbers = []
    for part in (text or "").lstrip("v").split("+")[0].split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers) or None


def _alike(work: Work, placed: Placed) -> tuple[Alike, ...]:
    """Return the stages, alike ones together: each kind of them is looked at once."""
    found: dict[tuple[object, ...], Alike] = {}
    last = len(placed.stages) - 1
    for place, stage in enumerate(placed.stages):
        parts = work.stage(stage.layers)
        sizes = tuple((id(kind), count) for kind, count in parts)
        key = (sizes, place == last, stage.accelerator.name)
        before = found.get(key)
        if before is None:
            found[key] = Alike(parts, place == last, _rank(placed, stage), 1)
        else:
            found[key] = Alike(parts, place == last, before.rank, before.times + 1)
    return tuple(found.values())


def _rank(placed: Placed, stage: Stage) -> Rank:
    group = placed.tensor * placed.data
    return Rank(
        accelerator=stage.accelerator,
        tensor_links=links(stage.accelerator, placed.fabric, placed.tensor, stage.tensor_nodes),
        expert_links=links(stage.accelerator, placed.fabric, group, stage.nodes),
        expert=placed.expert,
        eager=placed.eager,
        old_widening=placed.engine_version is not None and placed.engine_version < MARLIN_SINCE,
    )


def _band(middle: float) -> Band:
    return Band(middle / c.BAND, middle, middle * c.BAND)


def even_stages(
    splits: Sequence[range], accelerator: Accelerator, tensor_nodes: int, nodes: int
) -> tuple[Stage, ...]:
    """Return the stages of an engine whose devices are all alike."""
    return tuple(Stage(layers, accelerator, tensor_nodes, nodes) for layers in splits)
