"""How the command line starts: nothing heavy is loaded before it is known what is asked."""

import json
import os
import subprocess
import sys

import pytest

HEAVY = (
    "dagster", "torch", "polars", "numpy", "scipy", "transformers", "mlflow", "great_expectations",
    "matplotlib", "PIL",
)  # fmt: skip
START = """
import json, resource, sys
from orchestration.command_line import main
sys.argv = ["plumbline", *sys.argv[1:]]
try:
    main()
except SystemExit:
    pass
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([sorted(sys.modules), used.ru_utime + used.ru_stime]), file=sys.stderr)
"""
COMMANDS = ("fetch", "explain", "export", "verify", "plan", "audit", "ui", "report", "export-mitigation", "diff",
            "sample-annotations", "status")  # fmt: skip


def start(*arguments: str) -> tuple[str, set[str], float]:
    """Return what the command prints, the modules that it loaded and the seconds of processor that it took."""
    done = subprocess.run(
        [sys.executable, "-c", START, *arguments],
        capture_output=True, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    modules, seconds = json.loads(done.stderr.splitlines()[-1])
    return done.stdout, set(modules), seconds


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], *([name, "--help"] for name in COMMANDS)], ids=" ".join
)
def test_help_loads_nothing_heavy(arguments):
    said, modules, _ = start(*arguments)
    assert said.strip()
    assert not modules.intersection(HEAVY)


def test_help_lists_every_command():
    said, _, _ = start("--help")
    assert all(name in said for name in COMMANDS)


def test_help_is_quick():
    """0.26 s of processor were measured; 1.3 s before heavy imports moved to where they are used."""
    assert min(start("--help")[2] for _ in range(3)) < 0.8


def test_definitions_load_what_computes_only_when_it_is_used():
    """Whatever asks Dagster something imports them: `status`, an audit with nothing to do, every process of a step."""
    code = (
        "import json, resource, sys; import orchestration.definitions; "
        "used = resource.getrusage(resource.RUSAGE_SELF); "
        "print(json.dumps([sorted(sys.modules), used.ru_utime + used.ru_stime]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules, seconds = json.loads(done.stdout)
    assert not {
        "torch", "transformers", "open_clip", "mlflow", "great_expectations", "matplotlib", "scipy", "sklearn",
        "statsmodels", "pandas",
    }.intersection(modules)  # fmt: skip
    assert seconds < 6, "1.9 s were measured, of which dagster 0.7 and polars with numpy 0.3"
