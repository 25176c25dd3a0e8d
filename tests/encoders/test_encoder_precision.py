"""Encoders in float32, in bfloat16 and compiled: what changes, and what says so."""

import shutil
from functools import partial

import numpy as np
import pytest
import torch
from every_encoder import CASES, DEVICES, batch_of, files_of, logits_of
from tiny_architectures import TEXTS

from plumbline.checkpoints.device import Placement
from plumbline.encoders.folders import load_encoder
from plumbline.encoders.torch_encoder import hold_in_bfloat16


@pytest.mark.parametrize("case", CASES)
def test_float32_is_float32_in_a_pass_and_the_process_is_left_as_it_was(case, folders, pictures):
    encoder = load_encoder(files_of(folders, case), Placement())
    batch, seen = batch_of(encoder, pictures), []

    def now():
        backends = torch.backends
        return backends.cuda.matmul.fp32_precision, backends.cudnn.conv.fp32_precision

    # A GPU convolves in TF32 unless told otherwise: set on any machine, seen here without one.
    before = now()
    assert before[1] == "tf32"
    for module in encoder._model.modules():
        if not list(module.children()):
            module.register_forward_hook(lambda *_: seen.append(now()))
    logits_of(encoder, batch, TEXTS)
    assert len(seen) > 5 and set(seen) == {("ieee", "ieee")} and now() == before


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", CASES)
def test_bfloat16_is_near_and_says_so(case, device, folders, encoders, pictures):
    encoder = load_encoder(files_of(folders, case), Placement(device, dtype="bfloat16"))
    assert encoder.identity.dtype == "bfloat16" != encoders[case].identity.dtype
    batch = batch_of(encoder, pictures)
    half, full = (logits_of(e, batch, TEXTS) for e in (encoder, encoders[case]))
    assert half.dtype == np.float32 and not np.array_equal(half, full)
    np.testing.assert_allclose(half, full, atol=0.1 * np.abs(full).max())


@pytest.mark.parametrize("case", CASES)
def test_scales_and_small_heads_stay_float32(case, folders, encoders):
    encoder = load_encoder(files_of(folders, case), Placement(dtype="bfloat16"))
    for name, tensor in (*encoder._model.named_parameters(), *encoder._model.named_buffers()):
        of_logits = name.rpartition(".")[2] in ("logit_scale", "logit_bias", "temperature")
        exact = of_logits or name.startswith(encoder.kept_in_float32)
        if tensor.is_floating_point():
            assert tensor.dtype == (torch.float32 if exact else torch.bfloat16), name
    if hasattr(encoder, "logit_scale"):
        both = (encoder, encoders[case])
        assert len({(each.logit_scale, each.logit_bias) for each in both}) == 1


@pytest.mark.parametrize("case", CASES)
def test_learned_tokens_are_trained_through_bfloat16(case, folders, encoders):
    if not hasattr(encoders[case], "differentiable_texts"):
        pytest.skip("this encoder learns no tokens")
    gradients = []
    for encoder in (load_encoder(files_of(folders, case), Placement(dtype="bfloat16")), encoders[case]):
        learned = encoder.token_vectors("person").float().requires_grad_()
        encoder.differentiable_texts(TEXTS, learned)[:, 0].sum().backward()
        gradients.append(learned.grad)
    half, full = gradients
    assert half.dtype == torch.float32 and torch.linalg.norm(half - full) < 0.1 * torch.linalg.norm(full)


@pytest.mark.parametrize("padding", [0, "valid"])
@pytest.mark.parametrize("size", [(28, 42), (30, 45)])
def test_patches_are_projected_as_the_convolution_does_it(padding, size):
    layer = torch.nn.Conv2d(3, 5, (4, 7), stride=(4, 7), padding=padding)
    pixels = torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(0)).bfloat16()
    hold_in_bfloat16(layer)
    assert "forward" in vars(layer)
    projected, convolved = layer(pixels), torch.nn.Conv2d.forward(layer, pixels)
    assert projected.shape == convolved.shape and projected.dtype == torch.bfloat16
    torch.testing.assert_close(projected, convolved, atol=0.02, rtol=0.02)


@pytest.mark.parametrize(
    "changes", [{"stride": 2}, {"padding": 1}, {"padding": "same", "stride": 1}, {"dilation": 2}, {"groups": 3}]
)
def test_other_convolutions_are_left_alone(changes):
    layer = torch.nn.Conv2d(3, 6, 4, **{"stride": 4, **changes})
    hold_in_bfloat16(layer)
    assert "forward" not in vars(layer)


# torch imports its compiler here, which still defines deprecated things of torch.jit.
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
@pytest.mark.parametrize("case", CASES)
def test_compiling_waits_for_the_first_call_and_shows_in_the_identity(case, folders, encoders):
    def compiled(encoder):
        return sum(m._compiled_call_impl is not None for m in encoder._model.modules())

    encoder = load_encoder(files_of(folders, case), Placement(compiled=True))
    assert compiled(encoder) >= 2 and compiled(encoders[case]) == 0
    assert encoder.identity.backend == encoders[case].identity.backend + "/compiled"


# As above.
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
@pytest.mark.parametrize(
    "case", [case if case in ("open_clip", "clip") else pytest.param(case, marks=pytest.mark.slow) for case in CASES]
)
def test_traced_towers_take_batches_of_any_size(case, folders, encoders, pictures, monkeypatch):
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    # What is traced wrongly shows with this backend too, which compiles nothing and so takes no time.
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    encoder = load_encoder(files_of(folders, case), Placement(compiled=True))
    batch = batch_of(encoder, pictures)
    for rows in (5, 3, 1):
        expected = logits_of(encoders[case], batch[:rows], TEXTS)
        traced = logits_of(encoder, batch[:rows], TEXTS)
        np.testing.assert_allclose(traced, expected, atol=1e-6 * np.abs(expected).max(), rtol=1e-6)
    assert torch._dynamo.utils.counters["stats"]["calls_captured"] > 0
    torch._dynamo.reset()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on a CPU")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", ["open_clip", "clip", "bridgetower"])
def test_compiled_towers_give_the_same_results(case, folders, encoders, pictures):
    encoder = load_encoder(files_of(folders, case), Placement(compiled=True))
    batch = batch_of(encoder, pictures)
    expected = logits_of(encoders[case], batch, TEXTS)
    np.testing.assert_allclose(logits_of(encoder, batch, TEXTS), expected, atol=1e-4, rtol=1e-4)
