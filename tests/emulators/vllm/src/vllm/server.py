"""`vllm serve`: ranks over Ray, then uvicorn with the middleware that the command names."""

import asyncio
import importlib
from argparse import Namespace
from pathlib import Path
from typing import Any

import ray
import uvicorn

import vllm
from vllm import ranks
from vllm.answers import Model
from vllm.app import Application
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.logger import log


def main(args: Namespace) -> None:
    """Start as vLLM does, and serve until SIGTERM."""
    log(f"vLLM API server version {vllm.__version__}")
    config = AsyncEngineArgs.from_cli_args(args).create_model_config()
    name, _, key = Path(args.config).read_text().strip().partition(": ")
    assert name == "api-key" and key, args.config
    workers = ranks.start(args)
    log("init engine (profile, create kv cache, warmup model) took 0.01 s")
    length = args.max_model_len or int(config["max_position_embeddings"])
    model = Model(args.served_model_name or args.model_tag, args.model_tag, length)

    async def step() -> None:
        await asyncio.gather(*[worker.step.remote() for worker in workers])

    asyncio.run(serve(args, Application(model, key, step)))
    ranks.ENDS.set()
    ray.shutdown()


async def serve(args: Namespace, application: Any) -> None:
    for one in args.middleware:
        module, _, name = one.rpartition(".")
        application = getattr(importlib.import_module(module), name)(application)
    log(f"Starting vLLM server on http://{args.host}:{args.port}")
    config = uvicorn.Config(application, host=args.host, port=args.port, log_level="info")
    await uvicorn.Server(config).serve()
