"""`vllm serve`: its ranks, then uvicorn with the middleware that the command names."""

import asyncio
import importlib
from argparse import Namespace
from pathlib import Path
from typing import Any

import uvicorn

import vllm
from vllm import data_ranks
from vllm.answers import Model
from vllm.app import Application
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.logger import log

# Less than one request of any model of these tests needs.
LEAST_CACHE = 1 << 20


def main(args: Namespace) -> None:
    """Start as vLLM does, and serve until SIGTERM."""
    log(f"vLLM API server version {vllm.__version__}")
    config = AsyncEngineArgs.from_cli_args(args).create_model_config()
    name, _, key = Path(args.config).read_text().strip().partition(": ")
    assert name == "api-key" and key, args.config
    if args.kv_cache_memory_bytes < LEAST_CACHE:
        raise ValueError(
            "To serve at least one request with the models's max seq len, more KV cache is needed"
        )
    # By itself it computes alone, as one rank of vLLM without Ray does.
    workers: list[Any] = []
    if args.distributed_executor_backend == "ray":
        from vllm import ranks

        workers = ranks.start(args)
    group = data_ranks.Group(args) if args.data_parallel_size > 1 else None
    log("init engine (profile, create kv cache, warmup model) took 0.01 s")
    length = args.max_model_len or int(config["max_position_embeddings"])
    model = Model(args.served_model_name or args.model_tag, args.model_tag, length)

    async def step() -> None:
        await asyncio.gather(*[worker.step.remote() for worker in workers])

    asyncio.run(serve(args, Application(model, key, step)))
    if group:
        group.end()
    if workers:
        ranks.end()


async def serve(args: Namespace, application: Any) -> None:
    for one in args.middleware:
        module, _, name = one.rpartition(".")
        application = getattr(importlib.import_module(module), name)(application)
    log(f"Starting vLLM server on http://{args.host}:{args.port}")
    config = uvicorn.Config(application, host=args.host, port=args.port, log_level="info")
    await uvicorn.Server(config).serve()
