"""Ask new prompts of prefill and decode engines and count what was moved; standard library only."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any

from .engine.completion import Unanswered
from .engine.http_answer import open_request
from .engine.metrics import get, total
from .kv_routing import beginning

# Several blocks of every block size, and short enough for every model.
WORDS = 300
TOKENS = 4
POLL_SECONDS = 0.2
# Of the tokens of a new prompt, that must have come from the prefill engine. vLLM computes the last
# one itself, to have numbers to choose from, and moves whole blocks.
LEAST_SHARE = 0.9
PROMPT = "vllm:prompt_tokens_by_source_total"
REMOTE = 'source="external_kv_transfer"'
BYTES = "vllm:nixl_bytes_transferred_sum"
FAILED = "vllm:nixl_num_failed_transfers_total"
# What a prefill engine is asked for, in the words of vLLM's NixlConnector.
KEPT = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}


def ask(url: str, key: str, body: Mapping[str, Any], timeout: float) -> dict[str, Any]:
    """Return what a server answers to a completion."""
    request = urllib.request.Request(  # noqa: S310 - http by plan
        f"{url}/v1/completions",
        data=json.dumps({"temperature": 0, **body}).encode(),
        headers={"Content-Type": "application/json", "Authorization": f"Bearer {key}"},
    )
    try:
        with open_request(request, timeout) as response:
            found: dict[str, Any] = json.load(response)
            return found
    except urllib.error.HTTPError as error:
        raise Unanswered(
            f"{url}: HTTP {error.code}: {error.read(500).decode(errors='replace')}"
        ) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Unanswered(f"{url}: {type(error).__name__}: {error}") from error


def counters(servers: Sequence[str], timeout: float) -> dict[str, float]:
    """Return what decode engines have counted so far, all of them together."""
    texts = [get(f"{one}/metrics", timeout) for one in servers]
    return {
        "prompts": sum(total(text, PROMPT) for text in texts),
        "remote": sum(total(text, PROMPT, REMOTE) for text in texts),
        "bytes": sum(total(text, BYTES) for text in texts),
        "failed": sum(total(text, FAILED) for text in texts),
    }


def moved(
    servers: Sequence[str],
    before: Mapping[str, float],
    tokens: int,
    wait: float,
    timeout: float,
    sized: bool = True,
) -> dict[str, int]:
    """Return what decode engines have counted since then, once that is what one prompt needs.

    sized: whether they count bytes, which vLLM's Rust front end does not.

    The counters are of the engines: prompts of other clients are in them, too.
    """
    end = time.monotonic() + wait
    while True:
        now = counters(servers, timeout)
        found = {name: int(now[name] - before[name]) for name in now}
        # Bytes are counted a step later than tokens.
        moved_all = (found["bytes"] or not sized) and found["remote"] >= LEAST_SHARE * tokens
        computed_all = found["prompts"] == tokens and not found["remote"]
        if moved_all or computed_all or time.monotonic() > end:
            break
        time.sleep(POLL_SECONDS)
    return {name: found[name] for name in ("remote", "bytes", "failed")}


def of_pair(
    prefill: str, decode: str, key: str, model: str, wait: float, timeout: float, sized: bool = True
) -> dict[str, int]:
    """Return tokens of a prompt that prefill computed, and what decode fetched of it."""
    prompt = {"model": model, "prompt": beginning(WORDS)}
    first = ask(prefill, key, {**prompt, "max_tokens": 1, "kv_transfer_params": KEPT}, timeout)
    kept = first.get("kv_transfer_params")
    if not kept:
        raise Unanswered(f"{prefill}: the answer of prefill has no kv_transfer_params")
    before = counters([decode], timeout)
    body = {**prompt, "max_tokens": TOKENS, "kv_transfer_params": kept}
    tokens = _tokens(ask(decode, key, body, timeout))
    return {"tokens": tokens, **moved([decode], before, tokens, wait, timeout, sized)}


def of_front(
    url: str,
    decode: Sequence[str],
    key: str,
    model: str,
    wait: float,
    timeout: float,
    sized: bool = True,
) -> dict[str, int]:
    """Return tokens of a prompt that a client asked, and what decode engines fetched of it."""
    before = counters(decode, timeout)
    body = {"model": model, "prompt": beginning(WORDS), "max_tokens": TOKENS}
    tokens = _tokens(ask(url, key, body, timeout))
    return {"tokens": tokens, **moved(decode, before, tokens, wait, timeout, sized)}


def _tokens(answer: Mapping[str, Any]) -> int:
    return int((answer.get("usage") or {}).get("prompt_tokens") or 0)


def look(
    url: str,
    prefill: Sequence[Mapping[str, str]],
    decode: Sequence[Mapping[str, str]],
    key: str,
    model: str,
    wait: float,
    timeout: float,
    sized: bool = True,
) -> dict[str, Any]:
    """Return what was moved between each pair, and where a client asks.

    prefill and decode: engine and url of each. wait: for counters to show what was answered.
    sized: whether decode engines count bytes.
    """
    found = []
    for first in prefill:
        for second in decode:
            pair: dict[str, Any] = {"prefill": first["engine"], "decode": second["engine"]}
            try:
                ends = first["url"], second["url"]
                pair.update(of_pair(*ends, key, model, wait, timeout, sized))
            except Unanswered as error:
                pair["reason"] = str(error)
            found.append(pair)
    try:
        servers = [one["url"] for one in decode]
        front = of_front(url, servers, key, model, wait, timeout, sized)
    except Unanswered as error:
        return {"pairs": found, "front": {"reason": str(error)}}
    return {"pairs": found, "front": front}
