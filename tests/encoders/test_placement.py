"""Where a model runs: what is `auto` is filled in, and a device that is not there is refused."""

import subprocess
import sys

import pytest
import torch

from plumbline.checkpoints.device import Placement
from plumbline.errors import ConfigError


@pytest.mark.parametrize("device", ["cuda", "cuda:0", "cuda:7"])
def test_a_gpu_that_is_not_there_is_refused(device, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=rf"device: {device}, with 0 GPU[\s\S]*device: cpu or auto"):
        Placement.choose(device=device)


@pytest.mark.parametrize("device", ["cuda:2", "tpu"])
def test_a_number_beyond_the_last_gpu_or_another_kind_is_refused(device, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(ConfigError, match=rf"device: {device}, with 2 GPU"):
        Placement.choose(device=device)
    assert Placement.choose(device="cuda:1") == Placement("cuda:1", "bfloat16")


def test_auto_takes_the_gpu_where_there_is_one(monkeypatch):
    for there, expected in ((False, Placement("cpu", "float32")), (True, Placement("cuda", "bfloat16"))):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        assert Placement.choose() == expected


def test_torch_is_not_loaded_to_learn_that_there_is_no_gpu():
    code = (
        "import sys; from pathlib import Path; from plumbline.checkpoints import device; "
        "device._is_of_a_gpu = lambda path: False; "
        "print(device.Placement.choose(), 'torch' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == f"{Placement('cpu', 'float32')} False"
