"""A CPU worker that can be any stage of a pipeline."""

from __future__ import annotations

from typing import Any

from vllm.distributed import get_pp_group
from vllm.v1.worker.cpu_worker import CPUWorker


class PipelineCpuWorker(CPUWorker):
    """Makes room for what the stage before it sends, which upstream does only in its warm-up run.

    Eager mode with an explicit KV cache skips that run, and the first request would then end in
    `assert self.intermediate_tensors is not None` on every stage but the first.
    """

    def load_model(self, **options: Any) -> None:
        """Load the model and allocate the tensors a later stage receives into."""
        super().load_model(**options)
        runner = self.model_runner
        if get_pp_group().is_first_rank or getattr(runner, "intermediate_tensors", 0) is not None:
            return
        runner.intermediate_tensors = runner.get_model().make_empty_intermediate_tensors(
            batch_size=runner.max_num_tokens,
            dtype=self.model_config.dtype,
            device=runner.device,
        )
