"""The audit file: what is shipped is valid, and every mistake is said with line, key, found and expected."""

import subprocess
import sys
from itertools import pairwise

import pytest
import yaml

from plumbline.config.file import read_audit
from plumbline.datasets.registry import IMAGE_TEXT_PAIRS, reader_names
from plumbline.errors import ConfigError
from plumbline.mitigations.settings import METHODS
from plumbline.world.folders import KINDS
from resources.checkout import PROJECT

SHIPPED = PROJECT / "audit.yaml"


def write(tmp_path, **changes):
    content = yaml.safe_load(SHIPPED.read_text())
    if "datasets" in changes:  # what names image-text pairs goes with them
        content["mitigations"] = {name: each for name, each in content["mitigations"].items() if "pairs" not in each}
        del content["retrieval"]
    for key, value in changes.items():
        if value is None:
            content.pop(key, None)
        else:
            content[key] = value
    path = tmp_path / "audit.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


def test_the_shipped_file_audits_the_whole_grid():
    audit = read_audit(SHIPPED)
    sizes = {
        (e.factors["size"], e.factors["data_amount"], e.factors["data_source"])
        for e in audit.encoders.values()
        if e.factors
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
        ("device: auto", "device: auto\ndevice: cpu", r"line 5, key device\n.*a second `device`.* line 4\n.*once"),
        ("  utkface:\n", "  fairface:\n", r"line \d+, key datasets\.fairface\n.*a second `fairface`"),
        ("padding: 0.25", "padding: 0.25\n    padding: 1.25", r"key datasets\.fairface\.padding\n.*a second"),
        ("reader: utkface", "reader: nope", r"line \d+, key datasets\.utkface\.reader\n.*'nope'\n.*fairface, folder"),
        ("planted:utkface", "planted:nope", r"key datasets\.utkface\.root\n.*'planted:nope'\n.*planted:fairface"),
        (
            "root: planted:utkface",
            "root: hf-hub:datasets/o/n@main",
            r"key datasets\.utkface\.root\n.*o/n@main'\n.*40 hexadecimal",
        ),
        ("root: planted:utkface", "root: ''", r"key datasets\.utkface\.root\n.*''\n.*a folder"),
        ("padding: 0.25", "filters: {crime: nope}", r"key datasets\.fairface\.filters\.crime\n.*'nope'\n.*all, "),
        ("padding: 0.25", "filters: {crimes: all}", r"filters\.crimes\n.*'crimes'\n.*did you mean `crime`"),
        ("{race: [0.10", "{races: [0.10", r"line \d+, key datasets\.fairface\.balance\.races\n.*\n.*mean `race`"),
        ("race_gender: [", "gender_race: [", r"key datasets\.fairface\.balance\.gender_race\n.*\n.*race_gender"),
        ("address: local-dir:p", "address: local-folder:p", r"address\n.*local-folder.*\n.*ARCHITECTURE/TAG"),
        ("address: local-dir:p", "address: hf-hub:o/n@main  #", r"address\n.*hf-hub:o/n@main'\n.*40 hexadecimal"),
        ("planted_source: atlas", "planted_source: atlass", r"planted_source\n.*'atlass'\n.*mean `atlas`"),
        ("suites: [t", "suites: []  # [t", r"line \d+, key audit\.0\.suites\n.*\[\]\n.*at least one of agency"),
        (
            "encoders: [small-bazaar-3k]",
            "encoders: []",
            r"line \d+, key audit\.2\.encoders\n.*\[\]\n.*at least one of small",
        ),
        (
            "datasets: [fairface]",
            "datasets: [fairfaces]",
            r"line \d+, key audit\.0\.datasets\.0\n.*\n.*mean `fairface`",
        ),
        ("[trident, t", "[t", r"line \d+, key audit\.0\.suites\.0\n.*'trident_composite'\n.*`trident` beside"),
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
    path = write(tmp_path, device="tpu", storage={"shards": 3}, datasets=None)
    with pytest.raises(ConfigError, match=r"3 mistake\(s\)"):
        read_audit(path)


def test_the_first_encoder_labels_where_none_is_named_and_none_where_no_encoder_is_audited(tmp_path):
    alone = write(tmp_path, labeller=None, encoders=None, audit=None, watch=None)
    assert read_audit(alone).labeller is None and not read_audit(alone).cells and read_audit(alone).designs
    audit = read_audit(write(tmp_path, labeller=None))
    assert audit.labeller == next(iter(audit.encoders)) != read_audit(SHIPPED).labeller


def test_encoders_are_demanded_where_they_are_asked_something(tmp_path):
    with pytest.raises(ConfigError, match=r"key encoders\n[\s\S]*at least one encoder"):
        read_audit(write(tmp_path, encoders=None, labeller=None, watch=None))


def test_an_id_that_is_none_is_the_only_mistake_told_of_it(tmp_path):
    encoders = {"Mine!": {"address": "local-dir:x"}}
    with pytest.raises(ConfigError) as caught:
        read_audit(write(tmp_path, encoders=encoders, labeller=None, watch=None))
    assert "key labeller" not in str(caught.value) and "Mine!" in str(caught.value)


def test_automatic_labels_are_used_where_trident_asks_for_them_or_a_balance_does(tmp_path):
    shipped = read_audit(SHIPPED)
    assert shipped.uses_automatic_labels("fairface")
    asked = {"audit": [{"datasets": ["celeba"], "suites": ["communion"]}], "generate": None}
    assert not read_audit(write(tmp_path, **asked)).uses_automatic_labels("celeba")
    demanded = {
        "idenprof": {"reader": "idenprof", "root": "planted:idenprof", "balance": {"occupation_gender": [0, 1]}}
    }
    audit = read_audit(write(tmp_path, audit=[{"suites": ["communion"]}], generate=None, datasets=demanded))
    assert audit.uses_automatic_labels("idenprof")


def test_repeated_keys_are_listed_with_the_other_mistakes(tmp_path):
    path = tmp_path / "audit.yaml"
    path.write_text(SHIPPED.read_text().replace("device: auto", "device: tpu\nlabeller: large-atlas-3k"))
    with pytest.raises(ConfigError, match=r"2 mistake\(s\)[\s\S]*a second `labeller`[\s\S]*'tpu'"):
        read_audit(path)


def test_an_alias_and_a_merge_repeat_no_key(tmp_path):
    path = tmp_path / "audit.yaml"
    text = SHIPPED.read_text()
    text = text.replace("  utkface:\n", "  again: &d\n    reader: fairface\n    root: here\n  utkface:\n    <<: *d\n")
    path.write_text(text)
    assert read_audit(path).datasets["utkface"].reader == "utkface"


@pytest.mark.parametrize(
    ("entries", "valid"),
    [
        ([{"suites": ["trident_composite"]}, {"suites": ["trident"]}], True),
        ([{"suites": ["trident_composite"]}, {"suites": ["trident"], "datasets": ["utkface"]}], False),
        ([{"suites": ["crime", "trident_composite"], "datasets": ["fairface"]}], False),
        ([], True),
    ],
)
def test_composites_need_the_single_tests_of_the_same_cells(tmp_path, entries, valid):
    path = write(tmp_path, audit=entries)
    if valid:
        read_audit(path)
    else:
        with pytest.raises(ConfigError, match=r"1 mistake\(s\)[\s\S]*`trident` beside it"):
            read_audit(path)


@pytest.mark.parametrize("balance", ["age", "caption", "occupation_gender", "gender"])
def test_a_balance_may_be_of_any_label_that_records_have(tmp_path, balance):
    dataset = {"reader": "utkface", "root": "~/faces", "balance": {balance: [0.1, 0.2]}}
    path = write(tmp_path, datasets={"utkface": dataset}, audit=[], generate=[])
    assert read_audit(path).datasets["utkface"].balance == {balance: (0.1, 0.2)}


def test_reading_an_audit_file_needs_no_torch():
    code = f"import sys; from pathlib import Path; from plumbline.config.file import read_audit; \
read_audit(Path({str(SHIPPED)!r})); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=SHIPPED.parent)


_FOREIGN = {
    "bytes": (b"title: \xff\n", "not text in UTF-8", "byte 0xff on line 1"),
    "date": (b"title: x\nlabeller: 2026-13-45\n", "not valid YAML", "this is no timestamp: '2026-13-45' at line 2"),
    "zone": (b"title: 2001-12-14t21:59:43.10-99:00\n", "not valid YAML", "this is no timestamp"),
    "number": (b'statistics: {seed: !!int "abc"}\n', "not valid YAML", "this is no int: 'abc' at line 1"),
    "truth": (b"title: !!bool maybe\n", "not valid YAML", "this is no bool: 'maybe' at line 1"),
    "digits": (
        b"statistics: {seed: " + b"9" * 5000 + b"}\n",
        "not valid YAML",
        "a number of more than 1,000 digits at line 1",
    ),
    "nesting": (b"title: " + b"[" * 200_000, "not valid YAML", "nested more than 100 levels deep at line 1"),
    "aliases": (b"a: &a [x, x, x, x, x, x, x, x, x]\n", "not valid YAML", "more than 200,000 values"),
    "merges": (b"a: &a {k: v}\n", "not valid YAML", "more than 200,000 values"),
}


@pytest.mark.parametrize("name", _FOREIGN)
def test_whatever_the_file_holds_is_refused_in_a_sentence_with_its_line(tmp_path, name):
    text, said, found = _FOREIGN[name]
    if name in ("aliases", "merges"):
        form = b"{<<: [%s]}" if name == "merges" else b"[%s]"
        for old, new in pairwise(b"abcdefghi"):
            text += b"%c: &%c " % (new, new) + form % b", ".join([b"*%c" % old] * 9) + b"\n"
    path = tmp_path / "audit.yaml"
    path.write_bytes(text)
    with pytest.raises(ConfigError, match=said) as refused:
        read_audit(path)
    assert found in refused.value.found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ("found:    nothing", "expected: keys with values, such as `datasets`", "plumbline init FOLDER")),
        ("[1, 2]", ("found:    a list", "expected: keys with values")),
        (
            "datasets:\n\tx: {}\n",
            ("not valid YAML", "line 2", "expected: lines that begin with spaces, not with a tab"),
        ),
    ],
)
def test_what_is_no_audit_file_is_refused_with_what_one_is(tmp_path, text, said):
    path = tmp_path / "audit.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as refused:
        read_audit(path)
    assert all(each in str(refused.value) for each in said), refused.value


@pytest.mark.parametrize(
    ("root", "said"),
    [
        ("~nosuchuser/faces", "this user has no home folder"),
        ("foo://faces", "a folder of this machine"),
        (" ", "expected: a folder"),
    ],
)
def test_a_folder_that_cannot_be_one_is_refused_before_it_is_looked_for(tmp_path, root, said):
    path = write(tmp_path, datasets={"f": {"reader": "fairface", "root": root}})
    with pytest.raises(ConfigError) as refused:
        read_audit(path)
    assert "key datasets.f.root" in str(refused.value)
    assert said in str(refused.value)


def test_results_are_kept_in_a_folder_or_a_known_file_system(tmp_path):
    assert read_audit(write(tmp_path, storage={"root": "memory://lake"})).storage.root == "memory://lake"
    with pytest.raises(ConfigError, match="did you mean `memory`"):
        read_audit(write(tmp_path, storage={"root": "memry://lake"}))
    with pytest.raises(ConfigError, match="s3://NAME/plumbline"):
        read_audit(write(tmp_path, storage={"root": "s3://"}))


def test_draws_that_no_memory_holds_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"statistics\.permutations[\s\S]*1000000"):
        read_audit(write(tmp_path, statistics={"permutations": 10**9}))


def test_control_characters_are_refused_where_they_stand(tmp_path):
    path = write(tmp_path, title="a\x1b[31mb", datasets={"f": {"reader": "fairface", "root": "a\0b"}})
    with pytest.raises(ConfigError) as refused:
        read_audit(path)
    assert "key title\n      found:    the control character '\\x1b'" in str(refused.value)
    assert "key datasets.f.root\n      found:    the control character '\\x00'" in str(refused.value)


def test_an_absent_file_is_said(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        read_audit(tmp_path / "none.yaml")


def test_the_digest_is_of_what_is_computed_not_of_where_it_is_kept(tmp_path):
    base = read_audit(write(tmp_path)).digest
    storage = {"shard_rows": 512}
    assert read_audit(write(tmp_path, storage={**storage, "root": "s3://bucket/lake"})).digest == base
    assert read_audit(write(tmp_path, engine={"workers": 7})).digest == base
    assert read_audit(write(tmp_path, statistics={"seed": 1})).digest != base


def test_every_dataset_and_every_family_is_in_the_shipped_audit():
    audit = read_audit(SHIPPED)
    assert set(audit.used_datasets) == set(audit.datasets)
    assert {audit.datasets[name].reader for name in audit.pair_datasets} == set(IMAGE_TEXT_PAIRS)
    assert set(audit.audited_datasets) == set(audit.datasets) - set(audit.pair_datasets)
    assert {model for _, model in audit.cells} == set(audit.encoders)
    why = "audit.yaml has a dataset of each planted folder and of each reader"
    assert {entry.root.removeprefix("planted:") for entry in audit.datasets.values()} == set(KINDS), why
    assert {entry.reader for entry in audit.datasets.values()} == set(reader_names()) - {"counts", "listing"}, why


def test_a_file_based_on_another_says_only_what_differs(tmp_path):
    write(tmp_path)
    path = tmp_path / "more.yaml"
    path.write_text(
        "based_on: audit.yaml\ntitle: More\ndatasets: {twin: {reader: utkface, root: planted:utkface}}\n"
        "audit: [{encoders: [small-atlas-3k], datasets: [twin, neutral]}]\n"
    )
    base, audit = read_audit(tmp_path / "audit.yaml"), read_audit(path)
    assert audit.title == "More" and audit.datasets == {
        **base.datasets,
        "twin": base.datasets["utkface"].model_copy(update={"balance": {}}),
    }
    assert audit.encoders == base.encoders
    assert [dataset for dataset, _ in audit.cells] == ["twin", "neutral"]
    path.write_text("based_on: audit.yaml\nstatistics: {seeds: 1}\n")
    with pytest.raises(ConfigError, match=r"line 2, key statistics\.seeds[\s\S]*did you mean `seed`"):
        read_audit(path)


def test_mistakes_of_a_base_are_said_with_its_own_lines(tmp_path):
    base = write(tmp_path)
    base.write_text(base.read_text() + "title: Twice\n")
    path = tmp_path / "more.yaml"
    path.write_text("based_on: audit.yaml\ntitle: More\n")
    with pytest.raises(ConfigError, match=r"line \d\d+, key title[\s\S]*where: .*audit\.yaml"):
        read_audit(path)


def test_a_base_must_be_there_and_complete(tmp_path):
    write(tmp_path)
    (tmp_path / "one.yaml").write_text("based_on: audit.yaml\n")
    (tmp_path / "two.yaml").write_text("based_on: one.yaml\n")
    with pytest.raises(ConfigError, match="not on a chain"):
        read_audit(tmp_path / "two.yaml")
    (tmp_path / "two.yaml").write_text("based_on: none.yaml\n")
    with pytest.raises(ConfigError, match=r"cannot be read[\s\S]*none\.yaml"):
        read_audit(tmp_path / "two.yaml")


def test_trident_is_asked_only_where_there_are_classes(tmp_path):
    everything = read_audit(write(tmp_path, audit=[{}])).cells
    assert "trident" in everything["utkface", "small-atlas-3k"]
    assert not [s for s in everything["neutral", "small-atlas-3k"] if s.startswith(("trident", "pata"))]
    assert "pata_captions" in everything["pata", "small-atlas-3k"]
    some = read_audit(write(tmp_path, audit=[{"encoders": ["small-atlas-3k"]}, {"suites": ["crime"]}]))
    assert ("pata", "small-atlas-3k", "crime") in some.named
    assert ("pata", "small-atlas-3k", "perception") not in some.named
    only = read_audit(write(tmp_path, audit=[{"suites": ["trident"]}])).cells
    assert "neutral" not in {dataset for dataset, _ in only}
    with pytest.raises(
        ConfigError, match=r"key audit\.0\.suites\.0[\s\S]*for neutral: the Trident suites need a label"
    ):
        read_audit(write(tmp_path, audit=[{"datasets": ["utkface", "neutral"], "suites": ["trident"]}]))
    with pytest.raises(ConfigError, match=r"alone for neutral: captions of scenes need scenes, which pata have"):
        read_audit(write(tmp_path, audit=[{"datasets": ["pata", "neutral"], "suites": ["pata_captions"]}]))


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"reader": "folder", "root": "x"}, "`map` with the readers folder, listing, counts"),
        ({"reader": "utkface", "root": "x", "map": {"index": "a.csv", "path": "f"}}, "and only with them"),
        ({"reader": "folder", "root": "x", "map": {"index": "a.csv", "paths": "f"}}, "did you mean `path`"),
    ],
)
def test_a_column_map_belongs_to_the_reader_folder(tmp_path, entry, said):
    with pytest.raises(ConfigError, match=said):
        read_audit(write(tmp_path, datasets={"mine": entry}, audit=[]))


MITIGATION_MISTAKES = [
    ({"before": {"method": "saner"}}, r"key mitigations\.before\n.*\n.*does not begin with `before`"),
    ({"x": {"method": "promt_array"}}, r"key mitigations\.x\.method\n.*promt_array[\s\S]*did you mean `prompt_array`"),
    ({"x": {"tokens": 2}}, r"key mitigations\.x\n\s+found:    nothing\n.*the key `method`"),
    ({"x": {"method": "saner", "widht": 8}}, r"key mitigations\.x\.widht\n.*unknown key[\s\S]*did you mean `width`"),
    ({"x": {"method": "saner", "width": 0}}, r"key mitigations\.x\.width\n.*found:    0"),
    ({"x": {"method": "bias_prompts", "attributes": ["sex"]}}, r"key mitigations\.x\.attributes\.0\n.*sex"),
]


@pytest.mark.parametrize(("mitigations", "said"), MITIGATION_MISTAKES)
def test_a_mistake_in_a_mitigation_is_said_with_its_place(tmp_path, mitigations, said):
    with pytest.raises(ConfigError, match=said):
        read_audit(write(tmp_path, mitigations=mitigations, audit=[{}]))


def test_mitigations_are_all_or_those_that_are_named(tmp_path):
    mitigations = {"ala": {"method": "logit_adjustment"}, "bias": {"method": "bias_prompts"}}
    audit = read_audit(
        write(
            tmp_path,
            mitigations=mitigations,
            audit=[
                {"encoders": ["small-atlas-3k"], "datasets": ["fairface"]},
                {"encoders": ["small-atlas-3k"], "datasets": ["fairface"], "mitigations": ["ala"]},
                {"encoders": ["small-atlas-3k"], "datasets": ["utkface"], "mitigations": []},
                {"encoders": ["small-atlas-3k"], "datasets": ["neutral"], "suites": ["templates"]},
            ],
        )
    )
    assert audit.mitigated == {
        ("fairface", "small-atlas-3k"): {"ala": True, "bias": False},
        ("utkface", "small-atlas-3k"): {},
    }
    with pytest.raises(ConfigError, match=r"audit\.0\.mitigations\.0[\s\S]*did you mean `bias`"):
        read_audit(write(tmp_path, mitigations=mitigations, audit=[{"mitigations": ["bais"]}]))


def test_what_is_tried_where_the_file_names_nothing_needs_no_training(tmp_path):
    audit = read_audit(write(tmp_path, mitigations=None, audit=[{}]))
    assert not any(METHODS[settings.method].trains for settings in audit.mitigations.values())


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"fit_on": "fairfaces"}, r"key mitigations\.array[\s\S]*did you mean `fairface`"),
        ({"fit_on": "utkface"}, r"key audit\.0\.mitigations\.0[\s\S]*something about `utkface` too"),
    ],
)
def test_a_dataset_that_a_mitigation_is_fitted_on_is_one_whose_images_are_embedded(tmp_path, entry, said):
    content = yaml.safe_load(SHIPPED.read_text())
    content["mitigations"] = {"array": {"method": "prompt_array", **entry}}
    content["audit"] = [
        {"encoders": ["small-bazaar-3k"], "datasets": ["pata"], "suites": ["crime"], "mitigations": ["array"]},
        {"encoders": ["small-bazaar-3k"], "datasets": ["fairface"], "suites": ["crime"], "mitigations": []},
    ]
    path = tmp_path / "audit.yaml"
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(ConfigError, match=said):
        read_audit(path)
    content["mitigations"]["array"]["fit_on"] = "fairface"
    path.write_text(yaml.safe_dump(content))
    assert read_audit(path).fitted_on == {("fairface", "small-bazaar-3k")}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"mitigations": {"x": {"method": "saner", "pairs": "capitons"}}}, r"key mitigations\.x\S*[\s\S]*`captions`"),
        ({"mitigations": {"x": {"method": "saner", "pairs": "utkface"}}}, r"mitigations\.x[\s\S]*own: .*captions, web"),
        ({"retrieval": {"datasets": ["utkface"]}}, r"key retrieval\.datasets\.0[\s\S]*captions of their own"),
        ({"retrieval": {"datasets": ["captions"], "k": [0]}}, r"key retrieval\.k\.0"),
    ],
)
def test_image_text_pairs_are_datasets_with_captions(tmp_path, changes, said):
    with pytest.raises(ConfigError, match=said):
        read_audit(write(tmp_path, audit=[{"mitigations": []}], **changes))


def test_pairs_are_used_where_something_is_trained_on_them_and_asked_nothing_where_all_are_asked(tmp_path):
    audit = read_audit(write(tmp_path, audit=[{"encoders": ["small-bazaar-3k"]}]))
    assert audit.pair_datasets == ("web", "captions")
    assert not {dataset for dataset, _ in audit.cells} & set(audit.pair_datasets)
    asked = read_audit(write(tmp_path, audit=[{"datasets": ["captions"], "suites": ["crime"], "mitigations": []}]))
    assert {dataset for dataset, _ in asked.cells} == {"captions"} and asked.pair_datasets == ()
