"""The audit file: what is shipped is valid, and every mistake is said with line, key, found and expected."""

from pathlib import Path

import pytest
import yaml

from plumbline.audit_file import read_audit
from plumbline.errors import ConfigError

SHIPPED = Path(__file__).parent.parent / "audit.yaml"


def write(tmp_path, **changes):
    content = yaml.safe_load(SHIPPED.read_text())
    for key, value in changes.items():
        if value is None:
            del content[key]
        else:
            content[key] = value
    path = tmp_path / "audit.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


def test_the_shipped_file_audits_the_whole_grid():
    audit = read_audit(SHIPPED)
    assert len(audit.cells) == 14
    sizes = {
        (e.factors["size"], e.factors["data_amount"], e.factors["data_source"])
        for e in audit.encoders.values()
    }
    grid = {(s, a, d) for s in ("small", "large") for a in ("3k", "6k") for d in ("atlas", "bazaar")}
    assert grid - sizes == {("small", "6k", "atlas"), ("large", "6k", "atlas")}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("resamples", "resample", r"line \d+, key statistics\.resample[\s\S]*did you mean `resamples`"),
        ("labeller: large-atlas-3k", "labeller: large-atlas", "did you mean `large-atlas-3k`"),
        ("    reader: utkface", "    readr: utkface", "did you mean `reader`"),
        ("communion, agency]", "communion, agencie]", "did you mean `agency`"),
        ("race: [0.10, 0.20]", "race: [0.3, 0.2]", r"found:    \[0\.3, 0\.2\]"),
        ("confidence: 0.95", "confidence: 95", r"key statistics\.confidence"),
        ("small-control-3k:", "Small Control:", "lower-case"),
        ("device: auto", "device: tpu", "key device"),
        ("title: The", "title: [The", "not valid YAML"),
    ],
)
def test_a_mistake_is_said_with_its_place_and_remedy(tmp_path, old, new, said):
    text = SHIPPED.read_text()
    assert old in text
    path = tmp_path / "audit.yaml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(ConfigError, match=said) as caught:
        read_audit(path)
    assert str(path) in str(caught.value)


def test_all_mistakes_are_listed_at_once(tmp_path):
    path = write(tmp_path, device="tpu", storage={"shards": 3}, labeller=None)
    with pytest.raises(ConfigError, match=r"3 mistake\(s\)"):
        read_audit(path)


def test_an_absent_file_is_said(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        read_audit(tmp_path / "none.yaml")


def test_the_digest_is_of_what_is_computed_not_of_where_it_is_kept(tmp_path):
    base = read_audit(write(tmp_path)).digest
    storage = {"shard_rows": 512, "batch_rows": 64}
    assert read_audit(write(tmp_path, storage={**storage, "root": "s3://bucket/lake"})).digest == base
    assert read_audit(write(tmp_path, statistics={"seed": 1})).digest != base
