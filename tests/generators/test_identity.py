"""The identity that a plan tells from files is that of the loaded model."""

import pytest
from tiny_lvlms import BASE_LLMS, LVLMS

from plumbline.checkpoints.device import Placement
from plumbline.generators.folders import generator_files, load_backend
from plumbline.generators.loaded_model import identity_from_files


@pytest.mark.parametrize("name", [*LVLMS, *BASE_LLMS])
@pytest.mark.parametrize("own_generation_config", [True, False])
def test_an_identity_needs_no_weights(name, own_generation_config, tmp_path):
    {**LVLMS, **BASE_LLMS}[name](tmp_path, seed=1)
    if not own_generation_config:
        (tmp_path / "generation_config.json").unlink(missing_ok=True)
    files = generator_files("m", f"local-dir:{tmp_path}", project=tmp_path, fetched=tmp_path)
    placement = Placement()
    loaded = load_backend(files, placement).identity
    assert identity_from_files(files, placement) == loaded
