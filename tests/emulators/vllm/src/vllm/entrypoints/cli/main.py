"""The command `vllm`."""

import argparse

from vllm.entrypoints.cli.serve import ServeSubcommand


def main() -> None:
    parser = argparse.ArgumentParser("vllm")
    subparsers = parser.add_subparsers(required=True)
    serve = ServeSubcommand()
    serve.subparser_init(subparsers).set_defaults(dispatch_function=serve.cmd)
    bench = subparsers.add_parser("bench")
    bench.set_defaults(dispatch_function=measure)
    add_bench(bench)
    args = parser.parse_args()
    args.dispatch_function(args)


def measure(args: argparse.Namespace) -> None:
    from vllm.bench import main

    main(args)


def add_bench(parser: argparse.ArgumentParser) -> None:
    """Add the options that the stage `benchmark` gives."""
    parser.add_argument("kind", choices=["serve"])
    for name in ("base-url", "model", "tokenizer", "result-filename"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--dataset-name", choices=["random"], required=True)
    for name in ("num-prompts", "max-concurrency", "random-input-len", "random-output-len", "seed"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--temperature", type=float, required=True)
    parser.add_argument("--save-result", action="store_true", required=True)
    parser.add_argument("--save-detailed", action="store_true", required=True)
