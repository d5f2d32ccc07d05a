"""How long requests take that are sent all at once: prompts first, then replies of any length."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from math import log

from vllm_ansible.plan.estimate.throughput.estimate import Speed

# Times of a step are looked up on a grid this fine.
GRID = 1.05


def spread(mean: float, number: int) -> list[float]:
    """Return lengths that fall off exponentially around a mean, in an order without a pattern.

    Nothing but the mean is told of replies of people's chats; this is what is likeliest then.
    """
    # Steps of the golden ratio visit every quantile once, large and small ones in turn.
    places = sorted(range(number), key=lambda place: place * 0.6180339887 % 1)
    lengths = [max(1.0, -mean * log(1 - (place + 0.5) / number)) for place in places]
    total = sum(lengths)
    return [length * mean * number / total for length in lengths]


class Burst:
    """One engine that is sent requests at once, step by step."""

    def __init__(self, speed: Speed, prompt: float, replies: Sequence[float]) -> None:
        self.speed = speed
        self.prompt = prompt
        self.replies = replies
        self._known: dict[tuple[int, int, int], float] = {}

    def seconds(self, seats: float, clients: float) -> float:
        """Return the seconds until the last reply; so many run, or are asked for, at once.

        The server first makes the prompts of all chats that arrive at once: its one thread takes
        each in turn before it goes on with any of them.
        """
        room = max(1, int(min(seats, clients)))
        budget = float(self.speed.placed.step_tokens)
        waiting, taken, step = list(range(len(self.replies)))[::-1], 0.0, 0
        clock = min(clients, len(self.replies)) * self.speed.placed.chat
        ends: list[tuple[int, int]] = []
        taking: int | None = None
        while waiting or ends or taking is not None:
            decoding = len(ends)
            left, used = max(1.0, budget - decoding), 0.0
            while left > 0 and (taking is not None or (waiting and len(ends) < room)):
                if taking is None:
                    taking, taken = waiting.pop(), 0.0
                part = min(left, self.prompt - taken)
                taken, left, used = taken + part, left - part, used + part
                if taken < self.prompt - 1e-9:
                    break
                heappush(ends, (step + max(1, round(self.replies[taking])), taking))
                taking = None
            jump = 1
            if not used and ends:
                jump = max(1, ends[0][0] - step)
            context = self.prompt + sum(self.replies) / len(self.replies) / 2
            clock += jump * self._step(decoding, used, context)
            step += jump
            while ends and ends[0][0] <= step:
                heappop(ends)
        return clock

    def _step(self, decoding: int, prompt: float, context: float) -> float:
        key = (_near(decoding), _near(prompt), _near(context))
        if key not in self._known:
            placed = self.speed.placed
            each = decoding / placed.data
            batches = min(len(placed.stages), max(1, int(each + (prompt > 0))))
            part = prompt / placed.data / batches
            seconds, _, _ = self.speed.tick(each / batches, context, part, self.prompt / 2, batches)
            self._known[key] = seconds
        return self._known[key]


def _near(value: float) -> int:
    return round(log(value) / log(GRID)) if value >= 1 else -1
