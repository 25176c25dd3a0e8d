"""Every row of the generation table: `python -m benchmarks.generation`.

The exit status is not 0 where texts differ from a peer's or a bar is missed.
"""

import sys

import torch

from benchmarks.generation import sharing

TASKS = (sharing,)


def main() -> int:
    """Print every row, and return 1 if any result disagrees or any ratio is below its bar."""
    torch.set_num_threads(1)
    failed = []
    for task in TASKS:
        for row in task.run():
            row.show()
            missed = [p for p in row.peers if p.reached and p.seconds / row.seconds < p.reached / 2]
            if missed or not row.agrees:
                failed.append(row.task)
    if failed:
        print(f"\nFAILED: {'; '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
