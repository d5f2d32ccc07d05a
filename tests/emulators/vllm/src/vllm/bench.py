"""`vllm bench serve`: asks one request after the other and writes the result in vLLM's form."""

import json
import os
import statistics
import time
import urllib.request
from argparse import Namespace
from pathlib import Path


def main(args: Namespace) -> None:
    began = time.monotonic()
    errors: list[str] = []
    lengths: list[int] = []
    seconds: list[float] = []
    for place in range(args.num_prompts):
        started = time.monotonic()
        try:
            lengths.append(ask(args, place))
            errors.append("")
        except OSError as error:
            lengths.append(0)
            errors.append(str(error))
        seconds.append(time.monotonic() - started)
    duration = time.monotonic() - began
    median = statistics.median(seconds) * 1000
    result = {
        "duration": duration,
        "completed": sum(1 for one in errors if not one),
        "output_lens": lengths,
        "errors": errors,
        "output_throughput": sum(lengths) / duration,
        "median_ttft_ms": median,
        "p99_ttft_ms": max(seconds) * 1000,
        "median_itl_ms": median / args.random_output_len,
    }
    Path(args.result_filename).write_text(json.dumps(result))


def ask(args: Namespace, place: int) -> int:
    """Return the number of tokens of one answer."""
    body = {
        "model": args.model,
        "prompt": " ".join([f"w{args.seed}{place}"] * args.random_input_len),
        "max_tokens": args.random_output_len,
        "temperature": args.temperature,
    }
    headers = {
        "Content-Type": "application/json",
        "Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}",
    }
    url = f"{args.base_url}/v1/completions"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)  # noqa: S310
    with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310
        return int(json.load(answer)["usage"]["completion_tokens"])
