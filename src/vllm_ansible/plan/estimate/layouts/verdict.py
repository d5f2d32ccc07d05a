"""What is known of one candidate: whether it runs, what it holds, how fast it is."""

from __future__ import annotations

from vllm_ansible.frozen import frozen
from vllm_ansible.plan.estimate.layouts.candidate import Candidate
from vllm_ansible.plan.estimate.memory.budget import Budget
from vllm_ansible.plan.estimate.throughput.estimate import Band, Estimate

GIB = 1 << 30


@frozen
class Verdict:
    """One candidate judged.

    `refusal` is why it cannot run, empty for one that can. `nodes` are those of one engine,
    `tensor_nodes` those of one tensor-parallel group. `load` is the estimate of one engine at its
    share of the wanted `requests`, which is at least one.
    """

    candidate: Candidate
    refusal: str
    nodes: int
    tensor_nodes: int
    layer_partition: tuple[int, ...] | None = None
    budget: Budget | None = None
    load: Estimate | None = None
    requests: float = 1.0

    @property
    def accepted(self) -> bool:
        """Tell whether this candidate can run."""
        return not self.refusal

    @property
    def rates(self) -> Band:
        """Return the output tokens per second of all engines that have a request, together."""
        if self.load is None:
            return Band(0.0, 0.0, 0.0)
        return self.load.output_rate.times(self.requests / self.load.concurrency)

    @property
    def output_rate(self) -> float:
        """Return the middle of these rates."""
        return self.rates.middle

    @property
    def token_time(self) -> float:
        """Return the seconds between two tokens of a reply."""
        return self.load.token_time.middle if self.load else float("inf")

    @property
    def kv_tokens(self) -> int:
        """Return the tokens that the caches of one engine are expected to hold together."""
        return self.budget.kv_tokens[1] * self.candidate.data if self.budget else 0

    @property
    def rank_bytes(self) -> int:
        """Return the bytes of weights on the fullest rank."""
        return max(one.weights for one in self.budget.stages) if self.budget else 0

    @property
    def order(self) -> tuple[int, ...]:
        """Return how much there is to go wrong: what is simpler comes first.

        Replicas and tensor-parallel groups in a node are as simple as each other.
        """
        one = self.candidate
        return (self.tensor_nodes, self.nodes, one.data, one.pipeline, int(one.expert))
