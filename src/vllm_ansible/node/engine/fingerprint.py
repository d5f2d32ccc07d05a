"""What an engine computes for fixed prompts, as numbers; standard library only.

The log probability of each token of a given text needs no choice of the engine: one engine's can be
compared with another's position by position, however near two candidates for a next token are.
"""

from __future__ import annotations

import http.client
import json
import math
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any

from .completion import Unanswered
from .http_answer import open_request

# Changing them makes every kept fingerprint one of other prompts: `digest` tells which they were.
PROMPTS = (
    "The harbour master wrote down the names of all ships that had come in overnight: two from "
    "Norway with timber, one from Portugal with cork, and a small one that nobody knew.",
    "def median(values):\n    ordered = sorted(values)\n    middle = len(ordered) // 2\n"
    "    if len(ordered) % 2:\n        return ordered[middle]\n    return (ordered[middle - 1]",
    "Question: A train leaves at 14:35 and arrives at 16:10. How long does it travel? Answer: "
    "From 14:35 to 15:35 is one hour, and from 15:35 to 16:10 are 35 minutes, together",
    "Wasser besteht aus Wasserstoff und Sauerstoff. L'eau est faite d'hydrogene et d'oxygene. "
    "El agua se compone de",
)
NEW_TOKENS = 8
PLACES = 5


def fingerprint(base_url: str, key: str, model: str, timeout: float) -> dict[str, Any]:
    """Return `prompts`, what the engine computes for each, and the `seconds` it took.

    Of each prompt: `tokens` and their `logprobs` (the first has none), then the likeliest `greedy`
    tokens with theirs. Raises Unanswered with the server's own words.
    """
    started = time.monotonic()
    found = []
    for prompt in PROMPTS:
        body = {
            "model": model,
            "prompt": prompt,
            "temperature": 0,
            "max_tokens": NEW_TOKENS,
            "ignore_eos": True,
            "logprobs": 1,
            "prompt_logprobs": 0,
            "return_tokens_as_token_ids": True,
        }
        found.append(_read(_post(f"{base_url}/v1/completions", key, body, timeout)))
    return {"prompts": found, "seconds": round(time.monotonic() - started, 2)}


def broken(prompts: Sequence[Mapping[str, Any]]) -> int:
    """Return how many numbers of a fingerprint are none."""
    numbers = [one for prompt in prompts for one in prompt["logprobs"] + prompt["greedy_logprobs"]]
    return sum(1 for one in numbers if one is None or not math.isfinite(float(one)))


def _post(url: str, key: str, body: Mapping[str, Any], timeout: float) -> Any:
    request = urllib.request.Request(  # noqa: S310 - http by plan
        url,
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json", "Authorization": f"Bearer {key}"},
    )
    try:
        with open_request(request, timeout) as response:
            return json.load(response)["choices"][0]
    except urllib.error.HTTPError as error:
        words = error.read(2000).decode(errors="replace")
        raise Unanswered(f"HTTP {error.code}: {words}") from error
    except (OSError, http.client.HTTPException, LookupError, ValueError, TypeError) as error:
        raise Unanswered(f"{type(error).__name__}: {error}") from error


def _read(choice: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers of one answer; a position lists the prompt's own token first."""
    try:
        tokens, logprobs = [], []
        for position in choice["prompt_logprobs"][1:]:
            token, told = next(iter(position.items()))
            tokens.append(int(token))
            logprobs.append(_rounded(told["logprob"]))
        greedy = choice["logprobs"]
        return {
            "tokens": tokens,
            "logprobs": logprobs,
            "greedy": [int(str(one).rpartition(":")[2]) for one in greedy["tokens"]],
            "greedy_logprobs": [_rounded(one) for one in greedy["token_logprobs"]],
        }
    except (LookupError, StopIteration, ValueError, TypeError, AttributeError) as error:
        raise Unanswered(f"no log probabilities of the prompt: {error!r}") from error


def _rounded(number: Any) -> Any:
    return number if number is None else round(float(number), PLACES)
