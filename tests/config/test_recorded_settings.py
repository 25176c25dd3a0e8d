"""An audit file whose reads are noted: what is read is what is noted, and the same can be looked up again."""

import json

import pytest
import yaml

from plumbline.config.file import read_audit
from plumbline.config.recorded import recorded, setting
from plumbline.recording import Recording, note, recording, unrecorded

AUDIT = {
    "title": "one",
    "datasets": {
        "faces": {"reader": "fairface", "root": "faces", "balance": {"race": [0.1, 0.2]}},
        "more": {"reader": "utkface", "root": "more"},
    },
    "encoders": {"small": {"address": "local-dir:small"}, "large": {"address": "local-dir:large"}},
    "audit": [{"suites": ["crime"]}],
}


@pytest.fixture
def written(tmp_path):
    """Return a function that writes an audit file with changes, and reads it."""

    def write(**changes):
        path = tmp_path / "audit.yaml"
        path.write_text(yaml.safe_dump({**AUDIT, **changes}, sort_keys=False))
        return read_audit(path)

    return write


def noted(audit, read):
    """Return what is noted while `read` reads an audit file, as way -> value."""
    reads = Recording()
    read(recorded(audit, reads))
    return {tuple(map(json.dumps, json.loads(key)[1:])): value for key, value in reads.reads.items()}


READS = [
    lambda audit: audit.statistics.confidence,
    lambda audit: audit.statistics.model_dump(include={"seed", "resamples"}),
    lambda audit: audit.datasets["faces"].balance,
    lambda audit: audit.datasets["faces"].open_reader().declaration,
    lambda audit: "absent" in audit.datasets,
    lambda audit: [*audit.encoders],
    lambda audit: audit.cells.get(("faces", "small")),
    lambda audit: ("faces", "small", "crime") in audit.named,
    lambda audit: audit.uses_automatic_labels("faces"),
    lambda audit: audit.mitigations.get("orth_projection"),
    lambda audit: audit.digest,
]


@pytest.mark.parametrize("read", READS)
def test_the_same_is_found_at_the_end_of_a_noted_way(written, read):
    audit = written()
    values = noted(audit, read)
    assert values, "something was read"
    again = Recording()
    for way in values:
        path = [json.loads(step) for step in way]
        again.note("setting", *path, value=setting(audit, path))
    assert list(again.reads.values()) == list(values.values())


@pytest.mark.parametrize("read", READS)
def test_reading_gives_what_it_gives_unrecorded(written, read):
    audit = written()
    assert read(recorded(audit, Recording())) == read(audit)


def test_only_what_is_read_is_noted(written):
    before, after = written(), written(title="another", statistics={"confidence": 0.9})
    read = lambda audit: (audit.statistics.resamples, audit.cells.get(("faces", "small")))  # noqa: E731
    assert noted(before, read) == noted(after, read)
    told = lambda audit: audit.statistics.confidence  # noqa: E731
    assert noted(before, told) != noted(after, told)


def test_a_cell_does_not_depend_on_other_cells(written):
    before, after = written(), written(audit=[{"suites": ["crime"], "encoders": ["small"]}])
    mine = lambda audit: audit.cells.get(("faces", "small"))  # noqa: E731
    theirs = lambda audit: audit.cells.get(("faces", "large"))  # noqa: E731
    assert noted(before, mine) == noted(after, mine) and noted(before, theirs) != noted(after, theirs)


def test_a_setting_that_is_gone_is_not_found(written):
    (way,) = noted(written(), lambda audit: audit.datasets["more"].root)
    without = written(datasets={"faces": AUDIT["datasets"]["faces"]})
    with pytest.raises(LookupError):
        setting(without, [json.loads(step) for step in way])


def test_what_a_computation_writes_itself_is_no_input():
    with recording() as reads:
        note("stored", "mine", "a", value="1")
        note("stored", "other", "a", value="2")
        with unrecorded():
            note("stored", "hidden", "a", value="3")
        reads.wrote("mine", "a", version="4")
    assert reads.inputs() == {'["stored","other","a"]': "2"}
    note("stored", "outside", "", value="5")
    assert len(reads.reads) == 2
