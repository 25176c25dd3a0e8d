"""`transformers serve` with a tiny LLaVA, in a process of its own on loopback."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from forked import server

_RUNNING = re.compile(r"Uvicorn running on http://127\.0\.0\.1:(\d+)")

# Two things that a machine with a GPU has and this one may not: torchvision's image extension, which a CPU-only torch
# cannot load, so PIL decodes; and accelerate, which is asked for a map of devices even where there is one.
_LAUNCHER = """
import base64, io, sys
import numpy, torch
from PIL import Image
from plumbline.checkpoints.operators import declare_missing_operators
declare_missing_operators()
torch.set_num_threads(1)
import transformers.image_processing_backends as backends

def load_with_pil(url, *_, **__):
    picture = Image.open(io.BytesIO(base64.b64decode(url.partition("base64,")[2]))).convert("RGB")
    return torch.from_numpy(numpy.array(picture)).permute(2, 0, 1)

backends.load_image_as_tensor = load_with_pil
import transformers.modeling_utils as modeling
modeling.check_and_set_device_map = lambda _: None
from transformers.cli.serve import Serve
Serve(force_model=sys.argv[1], device="cpu", host="127.0.0.1", port=0)
"""


@contextmanager
def serving_checkpoint(folder: Path) -> Iterator[str]:
    """Serve a checkpoint during a block, at the base URL that is yielded; the server says itself when it is ready."""
    # Nothing of the machine's settings reaches it, and it reaches nothing outside.
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    process = server().start(("-c", _LAUNCHER, str(folder)), environment)
    said = []
    try:
        for line in process.stdout:
            said.append(line)
            if running := _RUNNING.search(line):
                break
        else:
            raise AssertionError("the server ended before it ran:\n" + "".join(said))
        yield f"http://127.0.0.1:{running[1]}/v1"
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate(10)
