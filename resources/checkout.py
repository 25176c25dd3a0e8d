"""Where the checkout is: the one place that knows."""

from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
