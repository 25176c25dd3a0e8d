"""Every row of the statistics table in one run: `make bench-statistics` or `python -m benchmarks.statistics`.

At the size of FairFace's validation split: 10,954 images, 7 races, 30 prompts, 10,000 resamples. A peer that would
take minutes runs on fewer resamples and is scaled up, and its line says so. The bar of a row is half the ratio that a
prototype reached. The exit status is not 0 where a result disagrees; a missed bar is only said.
"""

import sys

from benchmarks.statistics import grid, max_skew, ndkl, sc_weat, skew_at_k, word_associations, word_counts

TASKS = (max_skew, skew_at_k, sc_weat, ndkl, word_associations, word_counts, grid)


def main() -> int:
    """Print every row, and return 1 if any result disagrees."""
    disagreeing = []
    for task in TASKS:
        for row in task.run():
            row.show()
            if not row.agrees:
                disagreeing.append(row.task)
    if disagreeing:
        print(f"\nDISAGREE: {'; '.join(disagreeing)}")
    return 1 if disagreeing else 0


if __name__ == "__main__":
    sys.exit(main())
