"""The tutorial, typed as it stands: what it says is what one sees."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from fenced_blocks import blocks, command_lines
from forked import server

from documentation.repository_pages import PROJECT

PAGE = PROJECT / "docs" / "tutorial.md"
FAILS = "# exits with 1"


@pytest.fixture(scope="module")
def typed(tmp_path_factory):
    """Do what parts 2 to 4 say, in another folder than theirs; gives what each audit, diff and status printed."""
    folder, shown = tmp_path_factory.mktemp("tutorial"), []
    environment = {**os.environ, "COLUMNS": "200", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for block in blocks(PAGE):
        text = block.text.replace("/tmp/tutorial", str(folder))
        if text == block.text and block.language != "yaml":
            continue
        if block.language == "yaml":
            (folder / "audit.yaml").write_text(text, "utf-8")
        elif block.language == "python":
            subprocess.run([sys.executable, "-c", text], cwd=PROJECT, check=True, timeout=120)
        for line in command_lines(text) if block.language == "bash" else ():
            if line.startswith("export "):
                name, _, value = line.removeprefix("export ").partition("=")
                environment[name] = value
                continue
            code, printed = _run(line, environment)
            assert code == (1 if line.endswith(FAILS) else 0), (line, printed)
            if "plumbline" in line.split()[0]:
                shown.append(" ".join(printed.split()))
    return shown


def _run(line: str, environment: dict[str, str]) -> tuple[int, str]:
    command, *arguments = shlex.split(line, comments=True)
    if command == ".venv/bin/plumbline":
        process = server().start(arguments, environment)
        printed, _ = process.communicate()
        return process.returncode, printed
    run = subprocess.run(line, shell=True, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=60)
    return run.returncode, run.stdout + run.stderr


@pytest.mark.slow
def test_what_the_tutorial_says_is_what_one_sees(typed):
    first, status, second, diff, kept, verified, refused, refusal = typed
    told = " ".join(PAGE.read_text("utf-8").split())
    # Long names are folded where a table is narrow.
    assert "no evidence of gender skew in" in first and " 21% " in first
    assert "308" in status and "300" in status, "eight files are bad on purpose"
    assert "Race skew in crime labels" in second
    for part in ("Worse by more than is allowed", "Where the changes come from", "the checkpoint"):
        assert part in diff and part in told, part
    assert "by gender × race mine faces 0.77 2.36" in diff and "from 0.77 to 2.36" in told
    assert all(name in kept for name in ("metric_table.parquet", "report.html", "SHA256SUMS"))
    assert "18 file(s) are the same" in verified
    assert "11.7% of the images are `East Asian`; `datasets.faces.balance.race` asks for 12% to 16% (n = 35)" in refused
    assert "0 forward passes" in refused and "records.label_balance (failed)" in refusal
