"""An emulator of Enflame's extension of PyTorch: names of its manual, processors behind them.

`import torch_gcu` makes torch.gcu and the backend eccl, as README and manual of the extension say
(torch.gcu.set_device, torch.gcu.synchronize, init_process_group(backend="eccl")). Tensors lie in
main memory and gloo carries them. It refuses devices beyond those that GCU_COUNT says.
"""

import os
import types

import torch
import torch.distributed as dist

COUNT = int(os.environ.get("GCU_COUNT", "8"))
REAL_DEVICE = torch.device
CURRENT = {"device": 0}


def set_device(number):
    """Choose a device of those there are."""
    if not 0 <= int(number) < COUNT:
        raise RuntimeError(f"topsErrorInvalidDevice: {number} of {COUNT}")
    CURRENT["device"] = int(number)


def device(kind, number=None):
    """Return what stands for a device: torch has none of that kind without the extension."""
    if kind == "gcu":
        return REAL_DEVICE("cpu")
    return REAL_DEVICE(kind) if number is None else REAL_DEVICE(kind, number)


def eccl(store, rank, size, timeout):
    """Return a process group of gloo under the other name; it asks for the variable ECCL reads."""
    options = dist.ProcessGroupGloo._Options()
    options._timeout = timeout
    interface = os.environ["ECCL_SOCKET_IFNAME"]
    options._devices = [dist.ProcessGroupGloo.create_device(interface=interface)]
    return dist.ProcessGroupGloo(store, rank, size, options)


torch.gcu = types.SimpleNamespace(
    set_device=set_device, synchronize=lambda: None, device_count=lambda: COUNT
)
torch.device = device
dist.Backend.register_backend("eccl", eccl, devices=["cpu"])
