"""A CPU communicator that knows one host from another."""

from __future__ import annotations

import os
import socket
from typing import Any

import torch
from vllm.distributed.device_communicators.cpu_communicator import (
    CpuCommunicator,
    _CPUSHMDistributed,
)


class HostAwareCpuCommunicator(CpuCommunicator):
    """Takes shared memory only among ranks that share a host, gloo over TCP otherwise."""

    def _all_group_ranks_share_shm_group_name(self) -> bool:
        # Upstream compares the group's name alone, which holds the rendezvous port and is therefore
        # the same on every host. Two containers can share a host name, so /dev/shm itself is
        # compared too.
        memory = os.stat("/dev/shm")  # noqa: S108  the place is what is asked about
        name = _CPUSHMDistributed.make_group_name(self)
        mine = (name, socket.gethostname(), memory.st_dev, memory.st_ino)
        all_ranks: list[Any] = [None] * self.world_size
        torch.distributed.all_gather_object(all_ranks, mine, group=self.device_group)
        return len(set(all_ranks)) == 1
