"""How far what two engines computed for the same prompts lies apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

Prompts = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Distance:
    """The `mean` and the `worst` difference of log probabilities, over so many `tokens`.

    tokenizer: the texts themselves became other tokens, and nothing can be compared.
    """

    mean: float
    worst: float
    tokens: int
    tokenizer: bool = False

    def words(self) -> str:
        """Return it for people."""
        if self.tokenizer:
            return "it reads the prompts as other tokens"
        return (
            f"log probabilities differ by {self.mean:.4f} in the mean of {self.tokens} tokens "
            f"(at most {self.worst:.3f})"
        )


def distance(one: Prompts, other: Prompts) -> Distance:
    """Return how far two fingerprints lie apart.

    Only what both were given is compared: a likeliest token may change with the last bit of a
    number, and all that follows it.
    """
    if [list(prompt["tokens"]) for prompt in one] != [list(prompt["tokens"]) for prompt in other]:
        return Distance(float("inf"), float("inf"), 0, tokenizer=True)
    gaps = [
        abs(float(mine) - float(others))
        for left, right in zip(one, other, strict=True)
        for mine, others in zip(left["logprobs"], right["logprobs"], strict=True)
    ]
    return Distance(fmean(gaps), max(gaps), len(gaps))
