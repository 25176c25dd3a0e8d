"""Every row of the generation table: `python -m benchmarks.generation`.

The exit status is not 0 where texts differ from a peer's or a bar is missed.
"""

import sys

import torch

from benchmarks.generation import shared_image, sharing
from benchmarks.statistics.contest import judged

TASKS = (sharing, shared_image)


def main() -> int:
    """Print every row, and return 1 if any result disagrees or any ratio is below its bar."""
    torch.set_num_threads(1)
    return judged(TASKS)


if __name__ == "__main__":
    sys.exit(main())
