"""How an engine is divided, and which layers each pipeline stage holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from vllm_ansible.frozen import frozen
from vllm_ansible.plan.estimate.architectures.model import Layer
from vllm_ansible.plan.estimate.memory.release import release
from vllm_ansible.problem import PlanError, Problem

LARGEST = 2**20


@frozen
class Split:
    """Ranks by kind of parallelism; experts are kept whole over tensor x data with `expert`.

    `layer_partition` is the layers of each stage (VLLM_PP_LAYER_PARTITION); `decode_context`
    ranks of a tensor group share the cache of one sequence.
    """

    tensor: int
    pipeline: int = 1
    data: int = 1
    expert: bool = False
    layer_partition: tuple[int, ...] | None = None
    decode_context: int = 1

    def __post_init__(self) -> None:
        """Refuse what is no number of ranks."""
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in ("expert", "layer_partition"):
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= LARGEST:
                raise PlanError(
                    Problem(
                        f"{field.name} parallelism of {value!r} is no number of ranks",
                        "a whole number from 1",
                        repr(value),
                        fix="correct the layout",
                    )
                )
        if self.tensor % self.decode_context:
            raise PlanError(
                Problem(
                    f"decode context parallelism of {self.decode_context} does not divide "
                    f"tensor parallelism of {self.tensor}",
                    f"a divisor of {self.tensor}",
                    str(self.decode_context),
                    fix="correct the layout",
                )
            )

    @property
    def ranks(self) -> int:
        """How many ranks one engine of this split has."""
        return self.tensor * self.pipeline * self.data


def stages(
    layers: Sequence[Layer] | int, split: Split, engine_version: str | None = None
) -> tuple[range, ...]:
    """Return the layers of each stage, as vLLM's `get_pp_indices` deals them.

    What does not divide goes one by one to the last stage but one and those before it; up to
    0.7.3 all of it went to the last stage. Raises PlanError for a partition that does not fit.
    """
    count = layers if isinstance(layers, int) else len(layers)
    number = split.pipeline
    if split.layer_partition is not None:
        sizes = list(split.layer_partition)
        whole = all(isinstance(size, int) and size > 0 for size in sizes)
        if not whole or len(sizes) != number or sum(sizes) != count:
            raise _uneven(sizes, number, count)
    elif number > count:
        raise PlanError(
            Problem(
                f"pipeline parallelism of {number} leaves stages without one of {count} layers",
                f"at most {count}",
                str(number),
                fix="use fewer stages",
            )
        )
    else:
        sizes = [count // number] * number
        if release(engine_version) <= (0, 7, 3):
            sizes[-1] += count % number
        else:
            for place in range(2, count % number + 2):
                sizes[-place] += 1
    ends = [sum(sizes[: index + 1]) for index in range(number)]
    return tuple(range(end - size, end) for end, size in zip(ends, sizes, strict=True))


def _uneven(sizes: Sequence[int], number: int, count: int) -> PlanError:
    told = ",".join(str(size) for size in sizes)
    return PlanError(
        Problem(
            f"the layer partition {told} does not deal {count} layers to {number} stages",
            f"{number} positive numbers that sum to {count}",
            told,
            fix="correct the partition",
        )
    )
