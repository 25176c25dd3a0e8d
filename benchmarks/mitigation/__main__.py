"""Every row of the mitigations' table: `make bench-mitigation` or `python -m benchmarks.mitigation`.

The exit status is not 0 where a result disagrees with its peer's or a bar is missed.
"""

import sys

import torch

from benchmarks.mitigation import logit_adjustment
from benchmarks.statistics.contest import judged

TASKS = (logit_adjustment,)


def main() -> int:
    """Print every row, and return 1 if any result disagrees or any ratio is below its bar."""
    torch.set_num_threads(1)
    return judged(TASKS)


if __name__ == "__main__":
    sys.exit(main())
