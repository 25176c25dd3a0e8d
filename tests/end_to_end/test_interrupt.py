"""Ctrl-C: an audit stops at once, says so, and goes on from there the next time."""

import os
import signal
import time

import pytest
from homes import forward_passes, make_home


@pytest.mark.slow
def test_an_interrupted_audit_stops_and_can_go_on(tmp_path):
    home = make_home(tmp_path / "interrupted", audit=[{"suites": ["crime"]}])
    process = home.start("audit")
    deadline = time.monotonic() + 240
    while not home.shards() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert output.count("stopping after what is under way …") == 1
    assert output.index("stopping after") < output.index("Interrupted. What was computed is kept")
    assert "Traceback" not in output and "refused" not in output and "Report:" not in output
    kept = sum(home.shards())

    code, output = home.run("audit")
    assert code == 0, output
    assert forward_passes(output) == sum(home.shards()) - kept
