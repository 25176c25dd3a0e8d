"""How the command line starts: nothing heavy is loaded before it is known what is asked."""

import json
import os
import subprocess
import sys

from resources.checkout import PROJECT

HEAVY = (
    "dagster", "torch", "polars", "numpy", "scipy", "transformers", "mlflow", "great_expectations",
    "altair", "vl_convert", "PIL",
)  # fmt: skip
# Prints, for each list of arguments, what was said and the modules that are loaded then; then the seconds of processor.
START = """
import contextlib, io, json, resource, sys
from orchestration.command_line import main
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["plumbline", *arguments]
    with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.suppress(SystemExit):
        main()
    print(json.dumps([said.getvalue(), sorted(sys.modules)]))
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime)
"""
COMMANDS = ("fetch", "scorecard", "explain", "export", "verify", "plan", "audit", "ui", "report", "export-mitigation",
            "diff", "sample-annotations", "status")  # fmt: skip


def start(*commands: list[str]) -> tuple[list[tuple[str, set[str]]], float]:
    """Return what each command prints and the modules loaded after it, all in one process, and its seconds."""
    done = subprocess.run(
        [sys.executable, "-c", START, json.dumps(commands)],
        capture_output=True, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    *told, seconds = done.stdout.splitlines()
    return [(said, set(modules)) for said, modules in map(json.loads, told)], float(seconds)


# As the command starts its workers; `print` is whatever they do.
WORKERS = """
from orchestration.command_line import _import_nothing_from_here
_import_nothing_from_here()
if __name__ == "__main__":
    from orchestration.parent_of_workers import PROCESSES, import_for_workers
    import_for_workers()
    process = PROCESSES.Process(target=print)
    process.start()
    process.join()
    raise SystemExit(process.exitcode)
"""


def test_no_process_of_an_audit_imports_what_lies_in_the_folder_where_it_runs(tmp_path):
    script, here = tmp_path / "of_the_command" / "script.py", tmp_path / "downloads"
    for folder in (script.parent, here):
        folder.mkdir()
    script.write_text(WORKERS)
    for name in ("multiprocessing", "torch", "polars", "encodings", "gc", "orchestration"):
        (here / f"{name}.py").write_text(f"open({str(tmp_path / 'RAN')!r}, 'w'); raise SystemExit")
    env = {**os.environ, "PLUMBLINE_AUDIT": str(PROJECT / "audit.yaml"), "PLUMBLINE_HOME": str(tmp_path / "home")}
    done = subprocess.run([sys.executable, script], cwd=here, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not (tmp_path / "RAN").exists(), done.stderr


def test_help_loads_nothing_heavy():
    asked = [["--help"], ["--version"], *([name, "--help"] for name in COMMANDS)]
    told, _ = start(*asked)
    assert len(told) == len(asked)
    for arguments, (said, modules) in zip(asked, told, strict=True):
        assert said.strip() and not modules.intersection(HEAVY), arguments
    assert all(name in told[0][0] for name in COMMANDS)


def test_help_is_quick():
    """0.26 s of processor were measured; 1.3 s before heavy imports moved to where they are used."""
    assert min(start(["--help"])[1] for _ in range(3)) < 0.8


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
        "torch", "transformers", "open_clip", "mlflow", "great_expectations", "altair", "vl_convert", "scipy",
        "sklearn", "statsmodels", "pandas",
    }.intersection(modules)  # fmt: skip
    assert seconds < 6, "1.9 s were measured, of which dagster 0.7 and polars with numpy 0.3"
