"""However an audit came about, its numbers are those of a cold one, byte for byte."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from homes import make_home

from plumbline.world.folders import ensure
from resources.checkout import PROJECT

# Some ten audits in processes of their own, and a cold one after each sequence.
pytestmark = pytest.mark.slow

MODEL = "small-control-3k"


class Changing:
    """A home whose data, checkpoint, prompts and settings can be changed.

    Attributes
    ----------
    more : bool
        Whether the suite `crime` has a word more.
    """

    def __init__(self, folder: Path, planted: Path) -> None:
        self.faces, self.checkpoint, self.more = folder / "faces", folder / "checkpoint", False
        shutil.copytree(ensure("folder", planted), self.faces)
        shutil.copytree(PROJECT / "plumbline/world/checkpoints" / MODEL, self.checkpoint)
        entry = yaml.safe_load((PROJECT / "audit.yaml").read_text())["datasets"]["visitors"]
        self.home = make_home(
            folder / "changing",
            labeller=MODEL,
            statistics={"resamples": 200, "permutations": 200},
            datasets={"visitors": {**entry, "root": str(self.faces)}},
            encoders={MODEL: {"address": f"local-dir:{self.checkpoint}"}},
            audit=[{"suites": ["trident", "crime", "communion"]}],
        )

    def command(self, home, *arguments):
        script = Path(__file__).with_name("with_a_word_more.py")
        program = [str(script)] if self.more else ["-m", "orchestration"]
        return subprocess.Popen(
            [sys.executable, *program, *arguments],
            cwd=PROJECT,
            env=home.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def audit(self, home):
        process = self.command(home, "audit")
        output, _ = process.communicate(timeout=600)
        assert process.returncode == 0, output
        return output

    def cold(self, folder):
        """Return the metric table of a cold audit of what is there now."""
        home = make_home(folder)
        shutil.copy(self.home.workspace.audit_path, home.workspace.audit_path)
        self.audit(home)
        return home.table_sha256()

    # --- what changes

    def a_word(self, rng):
        self.more = not self.more

    def an_image(self, rng):
        """Let one image have other bytes, and so another identity."""
        image = rng.choice(sorted(self.faces.rglob("*.jpg")))
        image.write_bytes(image.read_bytes() + bytes([rng.randrange(256)]))  # after the picture's end

    def a_checkpoint(self, rng):
        config = self.checkpoint / "open_clip_config.json"
        config.write_text(config.read_text() + " ")

    def a_setting(self, rng):
        path = self.home.workspace.audit_path
        content = yaml.safe_load(path.read_text())
        content["statistics"]["confidence"] = rng.choice([0.9, 0.95, 0.99])
        content["title"] = f"title {rng.random()}"
        content["audit"] = [{"suites": rng.choice([["trident", "crime"], ["crime", "communion"]])}]
        path.write_text(yaml.safe_dump(content, sort_keys=False))

    def a_kill(self, rng):
        process = self.command(self.home, "audit")
        time.sleep(rng.uniform(4, 12))
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize("seed", [0, 1])
def test_a_sequence_of_changes_ends_with_the_bytes_of_a_cold_audit(seed, tmp_path, planted_base):
    rng, changing = random.Random(seed), Changing(tmp_path, planted_base)
    changing.audit(changing.home)
    kinds = [changing.a_word, changing.an_image, changing.a_checkpoint, changing.a_setting, changing.a_kill]
    for change in rng.sample(kinds, k=len(kinds)):
        change(rng)
        if rng.random() < 0.5:
            changing.audit(changing.home)
    changing.audit(changing.home)
    assert "Nothing changed since the last audit" in changing.audit(changing.home)
    assert changing.home.table_sha256() == changing.cold(tmp_path / "cold")
