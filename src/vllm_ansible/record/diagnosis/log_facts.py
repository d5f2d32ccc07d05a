"""Read facts out of logs: what vLLM, torch, NCCL and the driver print of themselves."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from .facts import Fact, Value
from .hosts import host_of

SOURCE = "its log"


def _cuda(text: str) -> str:
    """Return a CUDA release: of 12.8, of 128 as wheels have it, of 12080 as the driver's number."""
    if "." in text:
        return text
    number = int(text)
    if number >= 10000:
        return f"{number // 1000}.{number % 1000 // 10}"
    return f"{number // 10}.{number % 10}"


def _capability(text: str) -> str:
    """Return a compute capability: of 9.0, of 90, of sm_121a."""
    digits = re.sub(r"\D", "", text) if "." not in text else ""
    return f"{digits[:-1]}.{digits[-1]}" if len(digits) > 1 else text


def _capabilities(text: str) -> tuple[str, ...]:
    return tuple(_capability(one) for one in re.findall(r"(?:sm|compute)_(\d+)", text))


def _names(text: str) -> tuple[str, ...]:
    return tuple(part for part in re.split(r"[,\s]+", text) if part)


def _plain(text: str) -> str:
    return text.strip().strip("'\"").rstrip(".,;:")


def _ratio(text: str) -> int:
    """Return by how much two shapes differ that differ in one dimension alone, else 0."""
    first, second = (
        [int(one) for one in re.findall(r"\d+", shape)]
        for shape in re.findall(r"\(\[?([\d, ]+)\]?\)", text)[:2]
    )
    differ = [(one, other) for one, other in zip(first, second, strict=False) if one != other]
    if len(first) != len(second) or len(differ) != 1:
        return 0
    large, small = differ[0]
    return large // small if small and large % small == 0 else 0


def _devices(text: str) -> int:
    """Return how many devices the bundles of a placement group ask for."""
    return int(sum(map(float, re.findall(r"'GPU': ([\d.]+)", text))))


_GIB = {"KiB": 1 / 1024**2, "MiB": 1 / 1024, "GiB": 1.0}


def _held(text: str) -> float:
    """Return how many GiB of a device neither torch holds nor are free, of its own message."""

    def of(pattern: str) -> float:
        found = re.search(pattern, text)
        return float(found[1]) * _GIB[found[2]] if found else 0.0

    size = r"([\d.]+) ([KMG]iB)"
    total = of(rf"{size} total capacity") or of(rf"total capacity of {size}")
    free = of(rf"{size} free") or of(rf"of which {size} is free")
    own = of(rf"{size} reserved in total") or of(rf"this process has {size} memory in use")
    # A context of CUDA takes up to 1 GiB beside what torch counts.
    return round(total - free - own, 1) if total and free and own else 0.0


_Kind = Callable[[str], Value]


def _percent(text: str) -> int:
    """Return how many percent one figure is of the other, rounded down."""
    part, whole = map(float, text.split("/"))
    return int(100 * part / whole) if whole else 0


# A name, what each match of the pattern is made to, and the pattern: its first group that matched
# counts, and of several matches the last one, for a log may hold more than one start.
_PATTERNS: tuple[tuple[str, _Kind, str], ...] = (
    ("vllm", _plain, r"vLLM (?:API server )?version:? v?(\d+\.\d[\w.+]*)|engine \(v(\d+\.[\w.]+)"),
    ("torch", _plain, r"PyTorch version ?: (\d+\.\d+[\d.]*)|\btorch==(\d+\.\d+\.\d+)"),
    (
        "torch_cuda",
        _cuda,
        r"PyTorch version ?: [\d.]+\S*?\+cu(\d{3})|\btorch==[\d.]+\+cu(\d{3})"
        r"|CUDA used to build PyTorch ?: (\d+\.\d+)",
    ),
    ("torchvision", _plain, r"\btorchvision==([\w.+]+)"),
    ("transformers", _plain, r"\btransformers(?:==| version:? )(\d[\w.]+)"),
    ("nccl", _plain, r"vLLM is using nccl==([\d.]+)|NCCL version (\d+\.\d+\.\d+)"),
    (
        "driver",
        _plain,
        r"Nvidia driver version ?: (\d{3}\.[\d.]+)|Driver Version: (\d{3}\.[\d.]+)"
        r"|NVRM version: .*?\b(\d{3}\.\d+(?:\.\d+)?)\b",
    ),
    (
        "driver_cuda",
        _cuda,
        r"cudaDriverVersion (\d{5})\b|CUDA Version: (\d+\.\d+)|\(found version (\d{5})\)",
    ),
    ("wanted_cuda", _cuda, r"unsatisfied condition: cuda ?>= ?(\d+\.\d+)"),
    (
        "compute",
        _capability,
        r"GPU has compute capability (\d+\.\d)|Current capability: (\d+)"
        r"|with CUDA capability sm_(\d+)|'?(sm_\d+)a?'? is not defined for option",
    ),
    ("compute_wanted", _capability, r"Minimum capability: (\d+)|capability of at least (\d+\.\d)"),
    ("architectures", _capabilities, r"supports CUDA capabilities ([\w ]+)"),
    (
        "tensor_parallel",
        int,
        r"tensor_parallel_size['\"]?[=:] ?(\d+)|tensor parallel size \((\d+)\)"
        r"|--tensor-parallel-size[ =](\d+)",
    ),
    ("heads", int, r"attention heads \((\d+)\) must be divisible"),
    ("divided", int, r"\b(\d+) is not divisible by \d+"),
    ("divisor", int, r"\b\d+ is not divisible by (\d+)"),
    ("shard", int, r"(?:input|output)_size_per_partition ?= ?(\d+)"),
    ("shard_unit", int, r"is not divisible by min_thread_[kn] ?= ?(\d+)"),
    (
        "socket_interface",
        _plain,
        r"NCCL_SOCKET_IFNAME (?:set by environment to|set to) (\S+)|NCCL_SOCKET_IFNAME=(\S+)",
    ),
    ("network", _plain, r"NCCL INFO Using network (.+)$"),
    ("net_plugin", _plain, r"NET/Plugin: (?:Loaded net plugin|Plugin name set by env to) (\S+)"),
    ("nvls", _plain, r"NVLS multicast support is ((?:not )?available)"),
    (
        "visible_devices",
        _plain,
        r"CUDA_VISIBLE_DEVICES['\"]?\s*(?:=|:|is set to)\s*(['\"]?[\w,\-]*['\"]?)",
    ),
    ("library", _plain, r"(lib[\w+.-]+\.so[.\d]*): cannot open shared object"),
    ("library_cuda", _plain, r"lib(?:cudart|cublas(?:Lt)?|nvrtc)\.so\.(\d+)[.\d]*: cannot open"),
    ("module", _plain, r"No module named '([\w.]+)'"),
    (
        "model",
        _plain,
        r"(?i:failed to (?:fetch|download|resolve) model) '?(/[^\s']+)"
        r"|(\S+) is not a local folder and is not|Repo id must .*: '([^']+)'"
        r"|\bmodel='([^']+)', speculative",
    ),
    (
        "directory_without_config",
        _plain,
        # Of a directory that is not there, and of a name on the hub, transformers says other words.
        r"([/~.]\S*/\S+) does not appear to have (?:a file|files) named config",
    ),
    ("header_error", _plain, r"deserializing header: (\w+(?: \w+)?)"),
    ("missing_header", _plain, r"fatal error: ([\w/.+-]+\.h(?:pp)?): No such file"),
    ("fabric_manager", _plain, r"(?i:fabric manager) .{0,60}?version ([\d.]+) don.t match"),
    ("fabric_driver", _plain, r"don.t match with driver version ([\d.]+)"),
    ("unknown_option", _plain, r"error: unrecognized arguments?: (\S+)"),
    ("ray_devices", lambda text: int(float(text)), r"^ *[\d.]+/([\d.]+) GPU$"),
    ("ray_devices_wanted", _devices, r"creating a placement group of specs for .*specs=(\[.*\])"),
    ("max_length", int, r"max seq len \((\d+)\)"),
    ("cache_tokens", int, r"stored in KV cache \((\d+)\)"),
    ("free_percent", _percent, r"Free memory on device \S* ?\((\d[\d.]*/\d[\d.]*) GiB\)"),
    ("held_gib", _held, r"(CUDA out of memory\. Tried .*)"),
    (
        "weight_ratio",
        _ratio,
        r"(Attempted to load weight \(\S*?\(?\[.*?\]\)+ into parameter \(\S*?\(?\[.*?\]\)+)",
    ),
    ("kernel_source", _plain, r"(?i:cuda error) \S*?([\w-]+)\.cuh?:\d+"),
    ("weight_key", _plain, r"KeyError: '([\w.]+)'"),
    ("option", _plain, r"argument (--?[a-z][\w-]+)|(--[a-z][\w-]+)\W{1,3}(?:requires|needs) "),
    ("needed_option", _plain, r"--[\w-]+\W{1,3}(?:requires|needs) (?:\w+ ){0,3}(--[a-z][\w-]+)"),
    ("crate", _plain, r"panicked at \S*?/([a-z][\w-]*-\d+\.\d+\.\d+)/src/"),
    ("xid", int, r"Xid \(PCI:[^)]*\): (\d+)"),
    ("http_status", int, r"(?<!\d)(40[134]|429) Client Error"),
    ("line_names", _plain, r"int\(\) with base 10: '(MIG|GPU)-"),
    (
        "connect_error",
        _plain,
        r"(No route to host|Connection timed out|Connection refused|[Nn]etwork is unreachable)",
    ),
    ("peer", _plain, r"[Cc]onnect to (\d+\.\d+\.\d+\.\d+)<\d+>"),
)
_FLAGS: tuple[tuple[str, str], ...] = (
    ("speculative", r"SpecDecoding metrics|speculative_config=SpeculativeConfig|spec_decode/"),
    ("rootless", r"rootless|/run/user/\d+/docker"),
    ("offline", r"outgoing traffic has been disabled|HF_HUB_OFFLINE ?[=:] ?['\"]?1|OfflineMode"),
    ("no_net_plugin", r"No plugin found \(libnccl-net|Could not find: libnccl-net\.so"),
    ("no_fabric_card", r"NET/IB : No device found"),
    ("ray", r"\(Ray\w+ pid=|ray\.exceptions|RayWorker|ray_executor|\(raylet"),
    ("several_hosts", r"nNodes [2-9]|pid=\d+, ip=\d|NET/(?:IB|Socket|OFI)/\d|nnodes[= ]+[2-9]"),
    (
        "captures",
        r"(?s:Capturing (?:the model|cudagraphs|CUDA graph)"
        r"(?:(?!capturing finished|Capturing ).){0,6000}?"
        r"(?:CUDA out of memory|OutOfMemoryError|CUDA error: out of memory))",
    ),
    ("wakes", r"\bwake_up\b|waking up|(?s:to fall asleep.*cumem_allocator\.cpp)"),
    ("roce", r"/RoCE\b|link_layer:? *Ethernet"),
    ("weights_mapped", r"[Ll]oading (?:weights|safetensors|checkpoint|\S*\.safetensors)"),
    (
        "network_files",
        r"/(?:lustre|gpfs|beegfs|nfs\d?|efs|fsx|weka|cephfs|juicefs|gcsfuse|s3fs|rclone)\b"
        r"|\b(?:Lustre|GPFS|NFS|mergerfs|[Ff]use)\b",
    ),
    ("user_site", r"/\.local/lib/python"),
    ("package_paths", r"/(?:site|dist)-packages/"),
    (
        "unified_memory",
        r"\b(?:GB10|DGX Spark|Jetson|AGX (?:Thor|Orin))\b|\bsm_?121a?\b|\b[Uu]nified[- ]memory\b",
    ),
    (
        "other_platform",
        r"detected platform (?:xpu|rocm)|device_config=(?:xpu|rocm)|\bxpu:\d"
        r"|\bxpu_(?:worker|model_runner)|(?:xpu|rocm)_communicator|HIP (?:error|version)",
    ),
)
_COMPILED = tuple((name, kind, re.compile(text, re.MULTILINE)) for name, kind, text in _PATTERNS)
_COMPILED_FLAGS = tuple((name, re.compile(text)) for name, text in _FLAGS)


def values(text: str) -> dict[str, Value]:
    """Return what a text says of the host and the engine that wrote it."""
    found: dict[str, Value] = {}
    for name, kind, pattern in _COMPILED:
        if matches := list(pattern.finditer(text)):
            found[name] = kind(next(one for one in matches[-1].groups() if one is not None))
    found.update((name, True) for name, pattern in _COMPILED_FLAGS if pattern.search(text))
    return found


# Nothing is read of a word so long (an image in base64), over which patterns take more than linear
# time.
_LONG_WORD = re.compile(r"(?<!\S)\S{1025,}")
# Programs print what they are at their start, and again where they fail.
_FIRST, _LAST = 2 * 1024 * 1024, 1024 * 1024


def _ends(text: str) -> str:
    ends = text if len(text) <= _FIRST + _LAST else f"{text[:_FIRST]}\n{text[-_LAST:]}"
    return _LONG_WORD.sub("", ends)


def read(logs: Mapping[str, str], known: tuple[str, ...] = ()) -> dict[str, dict[str, Fact]]:
    """Return the facts that logs print, by the host that wrote them.

    known: names of hosts, by which those that wrote a log are recognised.
    """
    found: dict[str, dict[str, Fact]] = {}
    for rank, text in logs.items():
        told = {name: Fact(value, SOURCE) for name, value in values(_ends(text)).items()}
        found.setdefault(host_of(rank, known), {}).update(told)
    return found
