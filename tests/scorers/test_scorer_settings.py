"""What an audit file may say of scorers, and what the default run needs for them."""

import subprocess
import sys

import pytest
from pydantic import TypeAdapter, ValidationError

from plumbline.scorers.classifier import ClassifierSettings
from plumbline.scorers.kinds import SCORER_SETTINGS, AnyScorer
from plumbline.scorers.offline import OfflineSettings
from plumbline.scorers.stored import StoredSettings

ADAPTER = TypeAdapter(AnyScorer)


def test_the_kind_decides():
    assert ADAPTER.validate_python({"kind": "offline"}) == OfflineSettings()
    address = "hf-hub:unitary/unbiased-toxic-roberta@36295dd80b422dc49f40052021430dae76241adc"
    read = ADAPTER.validate_python({"kind": "classifier", "address": address})
    assert isinstance(read, ClassifierSettings)
    assert read.labels is None
    assert isinstance(ADAPTER.validate_python({"kind": "stored", "path": "s.csv"}), StoredSettings)
    assert set(SCORER_SETTINGS) >= {"offline", "classifier", "perspective", "stored"}


def test_every_kind_is_registered_under_its_own_name():
    for kind, settings in SCORER_SETTINGS.items():
        assert settings.model_fields["kind"].annotation.__args__ == (kind,)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"kind": "oracle"}, "offline"),
        ({"kind": "offline", "words": "mine"}, "Extra inputs"),
        ({"kind": "classifier"}, "address"),
        ({"kind": "classifier", "address": "hf-hub:a/b@main"}, "commit"),
        ({"kind": "classifier", "address": "local-dir:x", "labels": {"rude": "x"}}, "toxicity, insult"),
        ({"kind": "classifier", "address": "local-dir:x", "max_tokens": 1}, "greater than or equal to 3"),
        ({"kind": "perspective", "queries_per_second": 0}, "greater than 0"),
        ({"kind": "perspective", "queries_per_second": float("inf")}, "finite|less than"),
        ({"kind": "stored", "path": ""}, "at least 1"),
        ({"kind": "stored", "path": "s.csv", "columns": {"score": "x"}}, "text_sha256"),
    ],
)
def test_mistakes_say_what_is_expected(settings, words):
    with pytest.raises(ValidationError, match=words):
        ADAPTER.validate_python(settings)


def test_the_offline_scorer_needs_neither_torch_nor_a_client():
    code = (
        "import sys; from plumbline.scorers.offline import OfflineScorer;"
        "import plumbline.scorers.scoring, plumbline.scorers.kinds;"
        "OfflineScorer(); print([m for m in ('torch', 'transformers', 'httpx2') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
