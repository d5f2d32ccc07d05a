"""What only the start of an engine refuses."""

import json
import os
from argparse import Namespace
from pathlib import Path


class AsyncEngineArgs:
    def __init__(self, model: str, max_model_len: int | None) -> None:
        self.model, self.max_model_len = model, max_model_len

    @classmethod
    def from_cli_args(cls, args: Namespace) -> "AsyncEngineArgs":
        return cls(args.model_tag, args.max_model_len)

    def create_model_config(self) -> dict:
        """Return the model's configuration; raises as vLLM does."""
        path = Path(self.model, "config.json")
        if not path.is_file():
            raise OSError(f"Can't load the configuration of '{self.model}': no {path}")
        config = json.loads(path.read_text())
        most = int(config["max_position_embeddings"])
        if self.max_model_len and self.max_model_len > most:
            raise ValueError(
                f"User-specified max_model_len ({self.max_model_len}) is greater than the derived "
                f"max_model_len (max_position_embeddings={most})"
            )
        return config

    def weight_bytes(self) -> int:
        """Return how much there is to load; raises where nothing is."""
        sizes = [os.stat(path).st_size for path in Path(self.model).glob("*.safetensors")]
        if not sizes:
            raise RuntimeError(f"Cannot find any model weights with `{self.model}`")
        return sum(sizes)
