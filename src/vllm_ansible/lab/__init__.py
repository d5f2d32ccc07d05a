"""A lab of real hosts on one machine: containers with systemd and sshd, links that can fail."""

from .commands import LabError
from .lab import Lab

__all__ = ["Lab", "LabError"]
