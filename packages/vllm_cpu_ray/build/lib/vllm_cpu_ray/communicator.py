"""A CPU communicator that knows one host from another, and exchanges tokens between data ranks."""

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
    """Takes shared memory only among ranks that share a host, gloo over TCP otherwise.

    Also has the two exchanges of data-parallel ranks that share experts, which upstream has for
    accelerators alone. gloo wants parts of one length, so shorter ones are filled up.
    """

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

    def all_gatherv(
        self,
        input_: torch.Tensor | list[torch.Tensor],
        dim: int = 0,
        sizes: list[int] | None = None,
    ) -> torch.Tensor | list[torch.Tensor]:
        """Return the rows of all ranks, of which each may have another number."""
        if isinstance(input_, list):
            return [self.all_gatherv(one, dim, sizes) for one in input_]
        if dim != 0:
            raise NotImplementedError("only rows are gathered")
        counts = sizes or [input_.shape[0]] * self.world_size
        mine = input_.new_zeros((max(counts), *input_.shape[1:]))
        mine[: input_.shape[0]] = input_
        parts = [torch.empty_like(mine) for _ in counts]
        torch.distributed.all_gather(parts, mine, group=self.device_group)
        return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])

    def reduce_scatterv(
        self, input_: torch.Tensor, dim: int = -1, sizes: list[int] | None = None
    ) -> torch.Tensor:
        """Return this rank's rows of the sum over all ranks."""
        total = input_.movedim(dim, 0).contiguous().clone()
        torch.distributed.all_reduce(total, group=self.device_group)
        counts = sizes or [total.shape[0] // self.world_size] * self.world_size
        first = sum(counts[: self.rank_in_group])
        return total[first : first + counts[self.rank_in_group]].movedim(0, dim).contiguous()
