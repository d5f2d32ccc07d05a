"""What an engine delivers at a concurrency: tokens per second, time per token, first token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

from vllm_ansible.accelerators.accelerator import Accelerator
from vllm_ansible.accelerators.machines import Fabric
from vllm_ansible.accelerators.platform import USUAL_SOFTWARE, platform
from vllm_ansible.frozen import frozen
from vllm_ansible.plan.estimate.throughput import constants as c
from vllm_ansible.plan.estimate.throughput.collectives import links
from vllm_ansible.plan.estimate.throughput.step import Pass, Rank, Terms, stage_pass
from vllm_ansible.plan.estimate.throughput.work import Kinds, Parts, Work

V1_SINCE = (0, 8)
# Latent attention came with the first of these, which multiplied its matrices until the second.
ABSORBED, SPLIT_AGAIN = (0, 7, 1), (0, 8)
FUSED_ROTARY_SINCE = (0, 10)
MARLIN_SINCE = (0, 9)
# AWQ took Marlin's kernels on Hopper until it asked for the first of `_POSSIBLE_KERNELS` that can
# do it (vllm#36505, of spring 2026); 0.32 does (`auto_awq.py`, `kernels/linear/__init__.py`).
MACHETE_SINCE = (0, 32)
# Scheduling beside the device is the default from 0.14.0 on (vllm#33352 says so).
ASYNC_SINCE, STAGED_ASYNC_SINCE = (0, 14), (0, 32)
# FlashMLA's sparse kernel went over all places of its choice until it was given how many are filled
# (FlashMLA#150, January 2026): not by vLLM 0.13.0 to 0.17.1, by 0.24.0.
CHOICE_COUNTED_SINCE = (0, 18)
# The releases that read a chat's template anew for each request, and the one that did so again.
READ_TEMPLATES, KEPT_TEMPLATES = (0, 8, 5), (0, 9, 2)
READ_AGAIN, KEPT_AGAIN = (0, 11), (0, 11, 1)
# These write their chats by code of their own, without a template.
WITHOUT_TEMPLATE = ("GptOssForCausalLM",)
# Prompts of which a prefill rate is told.
PROMPT = 2048
# The most tokens of one step where nobody says: vLLM's default on large devices.
STEP_TOKENS = 8192


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
    """One engine as far as its speed goes; `step_tokens` are the most tokens of one step.

    `chat` are the seconds in which its server makes the prompt of one chat.
    """

    tensor: int
    data: int
    expert: bool
    stages: tuple[Stage, ...]
    nodes: int
    fabric: Fabric
    eager: bool = False
    engine_version: tuple[int, ...] | None = None
    step_tokens: int = STEP_TOKENS
    chat: float = 0.0

    @property
    def old_rotary(self) -> bool:
        """Tell whether this engine runs DeepSeek's rotary embedding operation by operation."""
        return self.engine_version is not None and self.engine_version < FUSED_ROTARY_SINCE

    @property
    def absorbed(self) -> bool:
        """Tell whether this engine decodes latent attention by matrices that it multiplied out."""
        return self.engine_version is not None and ABSORBED <= self.engine_version < SPLIT_AGAIN

    @property
    def band(self) -> float:
        """Return how many times more or less than planned a measured rate may be."""
        # Those are timed that vLLM is written for first.
        kinds = {platform(stage.accelerator.kind).software for stage in self.stages}
        timed = kinds == {USUAL_SOFTWARE}
        return c.BAND if timed else c.UNTIMED_BAND

    @property
    def overlaps(self) -> bool:
        """Tell whether the host prepares a step while the device works on the one before.

        With stages vLLM's V2 model runner alone does so, which 0.32 takes for each model and 0.25
        for some (config/vllm.py).
        """
        since = STAGED_ASYNC_SINCE if len(self.stages) > 1 else ASYNC_SINCE
        return self.engine_version is None or self.engine_version >= since

    @property
    def second_runner(self) -> bool:
        """Tell whether this engine's workers are those of 0.32, vLLM's V2 model runner."""
        return self.engine_version is None or self.engine_version >= STAGED_ASYNC_SINCE

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
class Wave:
    """Seconds to the first token of prompts that come at once: of half of them, and of the last."""

    half: float
    last: float


@frozen
class Estimate:
    """What one engine delivers: rates in tokens per second, times in seconds.

    `running` is how many sequences run at once, `decode` the time of one decode step of a
    pipeline stage chain, by cause. `first_token` is of clients that ask one by one, `wave` of those
    that run if they ask all at once.
    """

    concurrency: float
    running: float
    output_rate: Band
    token_time: Band
    first_token: Band
    prefill_rate: float
    decode: Terms
    wave: Wave

    def last_first_token(self, input_tokens: float) -> float:
        """Return the seconds to the first token of the last one, where all clients ask at once."""
        return self.first_token.middle + self.concurrency * input_tokens / self.prefill_rate


@frozen
class Round:
    """Between two tokens of a sequence: replies that begin, seconds, and those without a prompt."""

    replies: float
    seconds: float
    plain: float
    terms: Terms


@frozen
class Alike:
    """So many stages of a pipeline that hold layers of the same kinds on the same device."""

    parts: Parts
    head: bool
    rank: Rank
    times: int
    first: bool


class Speed:
    """The speed of one placed engine, for any load; the work of a rank is found once."""

    def __init__(self, kinds: Kinds, placed: Placed, work: Work | None = None) -> None:
        self.placed = placed
        self.work = work or kinds.work(
            placed.tensor, placed.data, placed.expert, placed.old_rotary, placed.absorbed
        )
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
        prompt = 0.0 if prefilled else input_tokens
        round_ = self._round(running, context, prompt, output_tokens)
        reply = running * round_.seconds / round_.replies
        queue = reply * max(0.0, concurrency - running) / running
        alone, prefill_rate = self.prefill(input_tokens), self.prefill_rate()
        band = self.placed.band
        return Estimate(
            concurrency=concurrency,
            running=running,
            output_rate=_band(round_.replies * output_tokens / round_.seconds, band),
            token_time=_band(reply / output_tokens, band),
            first_token=_band(queue + self.placed.chat + alone + round_.plain, band),
            prefill_rate=prefill_rate,
            decode=round_.terms,
            wave=self._wave(running, input_tokens, alone, prefill_rate),
        )

    def _wave(self, prompts: float, length: float, alone: float, rate: float) -> Wave:
        """Return when prompts that come at once are taken in: a step's tokens of them at a time.

        A first token is there when the step that takes in the end of its prompt is over.
        """
        placed = self.placed
        step = placed.step_tokens * placed.data * len(placed.stages)

        def after(number: float) -> float:
            steps = ceil(number * length / step - 1e-9)
            taken = min(steps * step, prompts * length) / rate
            return number * placed.chat + max(alone, taken)

        return Wave(after(max(1.0, prompts / 2)), after(prompts))

    def prefill_rate(self) -> float:
        """Return the tokens per second of an engine that does nothing but take in prompts."""
        placed, batches = self.placed, len(self.placed.stages)
        tick, _, _ = self.tick(0.0, 0.0, float(placed.step_tokens), PROMPT / 2, batches)
        return placed.step_tokens * placed.data * batches / tick

    def _round(self, running: float, context: float, prompt: float, output: float) -> Round:
        """Return what happens between two tokens of a sequence.

        A step decodes a token of each sequence that is past its prompt and takes in prompts with
        what is left of its tokens; the last part of a prompt makes the first token of a reply.
        """
        placed = self.placed
        local = max(1.0, running / placed.data)
        batches = min(len(placed.stages), max(1, int(local)))
        slots, more = local / batches, max(0.0, output - 1)
        chunk = min(prompt, float(placed.step_tokens))
        own = prompt / chunk if chunk else 1.0
        # Replies that begin in each step: as many as its slots turn over, or as its tokens allow.
        begun = min(slots / (more + own), placed.step_tokens / (prompt + more) if prompt else slots)
        decoding = begun * more
        everywhere = max(1.0, running / batches) / slots
        taken = begun * prompt
        chunk = min(max(chunk, taken), max(1.0, placed.step_tokens - decoding))
        part = min(1.0, taken / chunk) if chunk and prompt else 0.0
        plain, terms, _ = self.tick(decoding, context, 0.0, 0.0, batches, everywhere)
        mixed = plain
        if part and placed.first_engine:
            mixed = plain + self.tick(0.0, 0.0, chunk, prompt / 2, batches, everywhere)[0]
        elif part:
            mixed = self.tick(decoding, context, chunk, prompt / 2, batches, everywhere)[0]
        # Stages wait for each other: one batch with a prompt in it delays all that are under way.
        slow = 1 - (1 - part) ** batches
        seconds = slow * mixed + (1 - slow) * plain
        # A server makes one prompt after the other.
        seconds = max(seconds, begun * batches * placed.chat)
        # Ranks in step that have no sequence of their own add nothing.
        working = running / (local * placed.data)
        return Round(begun * batches * placed.data * working, seconds, plain, terms)

    def tick(
        self,
        sequences: float,
        context: float,
        prompt: float,
        before: float,
        batches: int = 1,
        everywhere: float = 0.0,
    ) -> tuple[float, Terms, float]:
        """Return the seconds of a round of all batches, its terms, and the way of one batch.

        everywhere: how many data-parallel ranks have as much to do.
        """
        placed = self.placed
        tokens = max(1.0, sequences + prompt)
        load = Pass(
            max(1.0, sequences) if not prompt else sequences,
            context,
            tokens * (everywhere or placed.data),
            prompt,
            before,
        )
        passes = [
            (stage_pass(self.work, one.parts, one.head, load, one.rank, one.first), one.times)
            for one in self.stages
        ]
        host = self._host(max(1.0, sequences))
        through = sum((one.total * times for one, times in passes), 0.0)
        # The host's own time holds these kernels where nothing else goes on in it.
        through += c.STEP_KERNELS * c.SMALL_KERNEL * placed.overlaps
        through = max(through, host) if placed.overlaps else through + host
        through += (len(placed.stages) - 1) * c.PIPELINE_HOP
        widest = max(max(one.total for one, _ in passes), host)
        together = sum((one.times(times) for one, times in passes), Terms())
        # What each sequence gets is sent by a process beside the engine, which works meanwhile.
        sent = sequences * c.FRONT_END_TOKEN
        return max(through, batches * max(widest, sent)), together, through

    def prefill(self, tokens: float) -> float:
        """Return the seconds from a prompt's arrival at the first stage to its logits."""
        steps = tokens / min(tokens, float(self.placed.step_tokens))
        return steps * self.tick(0.0, 0.0, tokens / steps, tokens / 2)[2]

    def _host(self, sequences: float) -> float:
        """Return the seconds the engine takes on the host between two steps."""
        step, each = c.HOST_STEP, c.HOST_SEQUENCE
        if self.placed.first_engine:
            step, each = c.V0_HOST_STEP, c.V0_HOST_SEQUENCE
        elif self.placed.second_runner:
            staged, ranks = len(self.placed.stages) > 1, self.placed.data
            step = c.V2_HOST_STEP + c.STAGE_HOST_STEP * staged + c.AGREE_RANK * ranks * (ranks > 1)
        return step + each * sequences + (c.MULTI_NODE_STEP if self.placed.nodes > 1 else 0.0)


def chat_seconds(architecture: str, engine_version: tuple[int, ...] | None) -> float:
    """Return the seconds in which a server makes the prompt of one chat, where that is long."""
    if engine_version is None or architecture in WITHOUT_TEMPLATE:
        return 0.0
    if READ_TEMPLATES <= engine_version < KEPT_TEMPLATES:
        return c.CHAT_TEMPLATE_BEFORE_0_9_2
    return c.CHAT_TEMPLATE_0_11_0 if READ_AGAIN <= engine_version < KEPT_AGAIN else 0.0


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
        key = (sizes, place == 0, place == last, stage.accelerator.name)
        before = found.get(key)
        if before is None:
            found[key] = Alike(parts, place == last, _rank(placed, stage), 1, place == 0)
        else:
            found[key] = replace(before, times=before.times + 1)
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
        machete=placed.engine_version is None or placed.engine_version >= MACHETE_SINCE,
        whole_choice=placed.engine_version is not None
        and placed.engine_version < CHOICE_COUNTED_SINCE,
        sampling=c.SAMPLING
        if placed.engine_version is None or placed.engine_version >= STAGED_ASYNC_SINCE
        else c.SAMPLING_BEFORE_0_32,
    )


def _band(middle: float, times: float) -> Band:
    return Band(middle / times, middle, middle * times)


def even_stages(
    splits: Sequence[range], accelerator: Accelerator, tensor_nodes: int, nodes: int
) -> tuple[Stage, ...]:
    """Return the stages of an engine whose devices are all alike."""
    return tuple(Stage(layers, accelerator, tensor_nodes, nodes) for layers in splits)
