"""Whatever code runs while a result is computed is part of that result's version, or is named here with the reason.

A version is found from what modules import; what an asset's shell calls has to be named beside it. This shows that none
was forgotten: whole audits are traced, and every function that ran for a result must lie in a module that moves its
version, as must every constant that a shell uses.
"""

import ast
import json
import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
import yaml
from homes import make_home

import orchestration.definitions  # noqa: F401
from assets.recorded import CODE_VERSIONS
from plumbline.provenance.code_versions import parts_of
from resources.checkout import PROJECT

from traced import APART, PACKAGES  # isort: skip

# A cold audit and one with other statistics, some minutes.
pytestmark = pytest.mark.slow

PLAIN = yaml.safe_load((PROJECT / "audit.yaml").read_text())
MODEL, OTHERS = "small-bazaar-3k", ["small-control-3k", "small-atlas-3k", "large-bazaar-3k"]
FITTED = {"attribute": "race", "epochs": 1, "batch": 16}
HOME = {
    "devices": 1,
    "labeller": MODEL,
    "statistics": {"resamples": 100, "permutations": 100},
    "datasets": {name: PLAIN["datasets"][name] for name in ("visitors", "neutral", "pata", "fairface")}
    | {"faces": {"reader": "socialcounterfactuals", "root": "planted:socialcounterfactuals"}},
    "encoders": {name: PLAIN["encoders"][name] for name in (MODEL, *OTHERS, "bridgetower-bazaar-3k")},
    "lvlms": {name: PLAIN["lvlms"][name] for name in ("llava-bazaar", "llama-bazaar")},
    "scorers": PLAIN["scorers"],
    "generation": {"decoding": {"max_new_tokens": 16}},
    "generate": [
        {
            "lvlms": ["llava-bazaar", "llama-bazaar"],
            "datasets": ["faces"],
            "subsets": ["race_gender"],
            "occupations": ["chef"],
            "prompts": ["characteristics", "hiring"],
            "instructions": ["none", "M1"],
            "seeds": [0],
        }
    ],
    "mitigations": {
        "ala": {"method": "logit_adjustment", "per_class": 5, "epochs": 8},
        "projection": {"method": "bias_prompts", "attributes": ["race"]},
        "array": {"method": "prompt_array", "learning_rate": 0.01, "alternate": 2, **FITTED},
        "neutral": {"method": "saner", **FITTED},
    },
    "audit": [
        {"datasets": ["visitors"], "encoders": [MODEL]},
        {"datasets": ["visitors"], "encoders": OTHERS, "mitigations": [], "suites": ["trident", "crime", "communion"]},
        {"datasets": ["pata", "neutral"], "encoders": [MODEL, OTHERS[0]], "mitigations": []},
        {"datasets": ["fairface"], "encoders": [MODEL], "mitigations": [], "suites": ["crime"]},
        {"datasets": ["neutral"], "encoders": ["bridgetower-bazaar-3k"], "mitigations": []},
    ],
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Return asset -> function that ran for it -> the names that it uses, over two audits: the second has another to
    be compared with."""
    folder = tmp_path_factory.mktemp("traced")
    home = make_home(folder / "home", **HOME)
    for resamples in (100, 101):
        statistics = {"resamples": resamples, "permutations": 100}
        home.workspace.audit_path.write_text(yaml.safe_dump({**HOME, "title": "traced", "statistics": statistics}))
        done = subprocess.run(
            [sys.executable, str(Path(__file__).with_name("traced.py")), "audit"],
            cwd=PROJECT,
            env={**home.environment, "PLUMBLINE_TRACED": str(folder / "traced")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, dict[str, list[str]]] = {}
    for line in (folder / "traced").read_text().splitlines():
        one = json.loads(line)
        found.setdefault(one["asset"], {}).update(one["ran"])
    return found


def test_every_asset_was_computed(ran):
    assert set(ran) == set(CODE_VERSIONS)


def test_what_ran_is_part_of_the_version(ran):
    lacking = {
        (function.partition(":")[0], asset)
        for asset, functions in ran.items()
        if (parts := parts_of(CODE_VERSIONS[asset])) is not None
        for function in functions
        if function.partition(":")[0] not in parts
    }
    assert sorted(lacking) == []


def test_constants_that_shells_use_are_part_of_the_version(ran):
    lacking = {
        (name, asset)
        for asset, functions in ran.items()
        if (parts := parts_of(CODE_VERSIONS[asset])) is not None
        for function, names in functions.items()
        for name in _constants(function.partition(":")[0], names)
        if name.partition(":")[0] not in parts and not name.startswith(tuple(APART))
    }
    assert sorted(lacking) == []


def test_what_is_set_apart_is_still_there():
    for name in APART:
        module, _, way = name.partition(":")
        found = import_module(module.rstrip("."))
        for step in way.split("."):
            found = next(getattr(found, each) for each in dir(found) if each.startswith(step)) if step else found


def _constants(module, names):
    """Yield `module:name` of what a module takes from others of the project, of these names, and is no code."""
    taken = _taken(module)
    for name in names:
        value = getattr(import_module(module), name, None)
        if name in taken and not callable(value) and not hasattr(value, "__path__") and not hasattr(value, "__file__"):
            yield f"{taken[name]}:{name}"


@cache
def _taken(module):
    """Return name -> module, of what is imported from the project."""
    tree = ast.parse(Path(str(import_module(module).__file__)).read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    own = [node for node in imports if (node.module or "").partition(".")[0] in PACKAGES]
    return {alias.asname or alias.name: str(node.module) for node in own for alias in node.names}
