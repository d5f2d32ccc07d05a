"""Ranks over Ray: an actor for each, on the device that Ray gives it, as vLLM's executor has it."""

import os
import threading
import time
from argparse import Namespace
from typing import Any

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.logger import log

# As long as vLLM waits for Ray to place its ranks.
PLACED_SECONDS = 1800
# Set by a server that ends in good order.
ENDS = threading.Event()


class Rank:
    """One rank; it reads what its host has of the model, and is there as long as the engine."""

    def __init__(self, number: int, model: str) -> None:
        self.number, self.model = number, model

    def load(self) -> int:
        engine = AsyncEngineArgs(self.model, None)
        engine.create_model_config()
        return engine.weight_bytes()

    def step(self) -> int:
        return self.number

    def stay(self) -> None:
        while True:
            time.sleep(3600)


def start(args: Namespace) -> list[Any]:
    """Place and load all ranks; the process ends when one of them does."""
    world = args.tensor_parallel_size * args.pipeline_parallel_size
    log(f"Connecting to existing Ray cluster at address: {os.environ['RAY_ADDRESS']}...")
    ray.init(log_to_driver=False)
    devices = ray.cluster_resources().get("GPU", 0)
    if devices < world:
        raise ValueError(
            f"The number of required GPUs ({world}) exceeds the total number of available GPUs "
            f"({devices:.0f}) in the placement group."
        )
    group = placement_group([{"GPU": 1.0}] * world, strategy="PACK")
    ray.get(group.ready(), timeout=PLACED_SECONDS)
    ranks = []
    for number in range(world):
        where = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=number)
        actor = ray.remote(num_cpus=0, num_gpus=1, max_concurrency=2)(Rank)
        made = actor.options(scheduling_strategy=where).remote(number, args.model_tag)
        ranks.append(made)
        log(f"world_size={world} rank={number} local_rank=0 distributed_init_method=none")
    log(f"Starting to load model {args.model_tag}...")
    began = time.monotonic()
    sizes = ray.get([rank.load.remote() for rank in ranks])
    log(f"Loading weights took {time.monotonic() - began:.2f} seconds")
    log(f"{len(sizes)} ranks found {sum(sizes)} bytes")
    threading.Thread(target=_watch, args=(ranks,), daemon=True).start()
    return ranks


def end() -> None:
    """Leave Ray in good order."""
    ENDS.set()
    ray.shutdown()


def _watch(ranks: list[Any]) -> None:
    try:
        ray.get([rank.stay.remote() for rank in ranks])
    except Exception as error:
        if ENDS.is_set():
            return
        log(f"EngineDeadError: EngineCore encountered an issue: {error}")
    os._exit(1)
