"""`vllm serve`, with the options that flows with a stand-in use; any other is refused."""

import argparse
from typing import Any


class ServeSubcommand:
    name = "serve"

    @staticmethod
    def cmd(args: argparse.Namespace) -> None:
        # Heavy: nobody who only asks about arguments needs it.
        from vllm.server import main

        main(args)

    def subparser_init(self, subparsers: Any) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = subparsers.add_parser(self.name)
        parser.add_argument("model_tag")
        parser.add_argument("--config")
        parser.add_argument("--middleware", action="append", default=[])
        parser.add_argument("--host")
        parser.add_argument("--port", type=int)
        parser.add_argument("--served-model-name")
        parser.add_argument("--tensor-parallel-size", type=int, default=1)
        parser.add_argument("--pipeline-parallel-size", type=int, default=1)
        parser.add_argument("--distributed-executor-backend", choices=["ray", "mp"], required=True)
        parser.add_argument("--data-parallel-size", type=int, default=1)
        parser.add_argument("--data-parallel-rank", type=int, default=0)
        parser.add_argument("--data-parallel-address")
        parser.add_argument("--data-parallel-rpc-port", type=int)
        parser.add_argument("--no-enable-expert-parallel", action="store_true")
        parser.add_argument("--attention-backend", choices=["CPU_MLA"])
        parser.add_argument("--enforce-eager", action="store_true")
        parser.add_argument("--max-model-len", type=int)
        parser.add_argument("--max-num-seqs", type=int)
        parser.add_argument("--max-num-batched-tokens", type=int)
        parser.add_argument("--dtype", choices=["auto", "float32", "bfloat16"], default="auto")
        parser.add_argument("--kv-cache-memory-bytes", type=int, required=True)
        return parser
