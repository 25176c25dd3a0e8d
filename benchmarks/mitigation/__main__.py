"""Every row of the mitigations' table: `make bench-mitigation` or `python -m benchmarks.mitigation`.

The exit status is not 0 where a result disagrees with its peer's or a bar is missed.
"""

import sys

import torch

from benchmarks.mitigation import logit_adjustment

TASKS = (logit_adjustment,)


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
