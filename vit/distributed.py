"""Several processes that train one model together, as `torchrun` starts them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """The processes of a run: `size` of them, of which this is number `rank`, from 0.

    All must call the same methods in the same order: each is a conversation. A world of one
    process says nothing to anybody.
    """

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this is the one process that writes, prints and decides."""
        return self.rank == 0

    @property
    def device(self) -> torch.device:
        if not torch.cuda.is_available():
            return torch.device("cpu")
        return torch.device("cuda", torch.cuda.current_device())

    @property
    def mine(self) -> slice:
        """Which rows of a step's batch are this process's."""
        return slice(self.rank, None, self.size)

    def share(self, count: int) -> list[int]:
        """The indices below `count` that are this process's; `gather` puts all in order again.

        Every process gets equally many; the last index comes again where they do not divide.
        """
        each = -(-count // self.size)
        return [min(i * self.size + self.rank, count - 1) for i in range(each)]

    def gather(self, rows: Tensor) -> Tensor:
        """Rows (n, …) of all processes as (n * size, …), in the order that `share` dealt out."""
        if self.size == 1:
            return rows
        mine = rows.to(self.device).contiguous()
        parts = [torch.empty_like(mine) for _ in range(self.size)]
        distributed.all_gather(parts, mine)
        return torch.stack(parts, dim=1).flatten(0, 1).to(rows.device)

    def totals(self, *values: float) -> list[float]:
        """The sum of each over all processes."""
        if self.size == 1:
            return list(values)
        summed = torch.tensor(values, dtype=torch.float64, device=self.device)
        distributed.all_reduce(summed)
        return summed.tolist()

    def agree(self, value: T) -> T:
        """What the leading process says."""
        if self.size == 1:
            return value
        said: list[T] = [value]
        distributed.broadcast_object_list(said, device=self.device)
        return said[0]

    def together(self, module: nn.Module) -> nn.Module:
        """`module`, whose gradients are from now on the mean over all processes."""
        if self.size == 1:
            return module
        devices = [self.device] if self.device.type == "cuda" else None
        return DistributedDataParallel(module, device_ids=devices)


@contextmanager
def join() -> Iterator[World]:
    """The world that `torchrun` made for this process, or one of this process alone."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield World()
        return
    backend = "gloo"
    if torch.cuda.is_available():
        place, devices = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
        if place >= devices:
            raise ValueError(
                f"Each process needs a GPU of its own, and there are {devices}: start torchrun "
                f"with --nproc_per_node={devices}."
            )
        torch.cuda.set_device(place)
        backend = "nccl"
    distributed.init_process_group(backend)
    try:
        yield World(distributed.get_rank(), size)
    finally:
        distributed.destroy_process_group()
