"""Stands in for the program `vllm`: a server that streams tokens, and its measuring client."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

# As the log of an H200 had it: tests/data/h200-layouts.json.
COMPILED = "WARNING Triton kernel JIT compilation during inference: fused_moe_kernel"


class Handler(BaseHTTPRequestHandler):
    """Answers completions in the way of an OpenAI server, and counts them."""

    key = ""
    count = Path()

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers.get("Authorization") != f"Bearer {self.key}":
            self.send_response(401, "Unauthorized")
            self.end_headers()
            return
        with self.count.open("a") as log:
            log.write("request\n")
        with suppress(FileNotFoundError):
            self.count.with_name("compile").unlink()
            print(COMPILED, flush=True)
        self.send_response(200)
        self.end_headers()
        tokens = request["max_tokens"]
        chunks: list[dict[str, Any]] = [{"choices": [{"text": " word"}]}] * tokens
        chunks.append({"choices": [], "usage": {"completion_tokens": tokens, "prompt_tokens": 64}})
        for chunk in [*map(json.dumps, chunks), "[DONE]"]:
            self.wfile.write(f"data: {chunk}\n\n".encode())

    def log_message(self, *_: Any) -> None:
        pass


def serve(argv: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--key", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--count", type=Path, required=True)
    options = parser.parse_args(argv)
    Handler.key, Handler.count = options.key, options.count
    ThreadingHTTPServer(("127.0.0.1", options.port), Handler).serve_forever()


def ask(url: str, model: str, tokens: int) -> tuple[int, str]:
    """Return the tokens of one answer, or why there is none."""
    headers = {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}
    body = json.dumps({"model": model, "max_tokens": tokens}).encode()
    request = urllib.request.Request(url, body, headers)  # noqa: S310 - our own server
    try:
        with urllib.request.urlopen(request) as response:  # noqa: S310 - our own server
            return response.read().count(b'"text"'), ""
    except urllib.error.HTTPError as error:
        return 0, error.reason
    except OSError as error:
        words = "aiohttp.client_exceptions.ClientConnectorError: Cannot connect to host"
        return 0, f"Traceback (most recent call last):\n  ...\n{words}: {error}"


def bench(argv: list[str]) -> None:
    parser = argparse.ArgumentParser()
    for name in ("--base-url", "--model", "--tokenizer", "--dataset-name", "--result-filename"):
        parser.add_argument(name, required=True)
    for name in ("--num-prompts", "--max-concurrency", "--random-input-len", "--seed"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--random-output-len", type=int, required=True)
    parser.add_argument("--temperature", type=float, required=True)
    parser.add_argument("--save-result", action="store_true", required=True)
    parser.add_argument("--save-detailed", action="store_true", required=True)
    parser.add_argument("--ignore-eos", action="store_true")
    parser.add_argument("--percentile-metrics", default="ttft,tpot,itl")
    parser.add_argument("--metric-percentiles", default="99")
    parser.add_argument("--goodput", nargs="+", default=[])
    options = parser.parse_args(argv)
    print(options, flush=True)
    began = time.monotonic()
    url = f"{options.base_url}/v1/completions"
    with ThreadPoolExecutor(options.max_concurrency) as pool:
        todo = [(url, options.model, options.random_output_len)] * options.num_prompts
        answers = list(pool.map(lambda one: ask(*one), todo))
    seconds = time.monotonic() - began
    result = {
        "duration": seconds,
        "completed": sum(1 for tokens, _ in answers if tokens),
        "output_lens": [tokens for tokens, _ in answers],
        "errors": [error for _, error in answers],
        "output_throughput": sum(tokens for tokens, _ in answers) / seconds,
        "median_ttft_ms": 12.34,
        "p99_ttft_ms": 15.0,
        "median_itl_ms": 3.0,
    }
    done = result["completed"]
    result |= {
        "total_input_tokens": done * options.random_input_len,
        "total_output_tokens": sum(tokens for tokens, _ in answers),
        "request_throughput": done / seconds,
        "request_goodput": done / seconds if options.goodput else None,
    }
    for number in options.metric_percentiles.split(","):
        for metric in options.percentile_metrics.split(","):
            result.setdefault(f"p{number}_{metric}_ms", float(number))
    Path(options.result_filename).write_text(json.dumps(result))


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2:])
    else:
        bench(sys.argv[3:])
