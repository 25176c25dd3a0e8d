"""A file of prompts that somebody wrote is a suite, or is refused with the place of its mistake."""

import json
import re

import pytest
import yaml

from plumbline.catalog.own_suites import KINDS, read_own_suite, remarks, starter
from plumbline.catalog.suites import filled, suite_of, with_article
from plumbline.config.file import read_audit
from plumbline.digests import canonical_json
from plumbline.errors import ConfigError
from resources.checkout import PROJECT

PAGE = PROJECT / "docs" / "own-suites.md"
PAGES_OWN = {
    re.search(r"^id: (\S+)", text, re.MULTILINE)[1]: text
    for text in re.findall(r"```text\n(id: .*?)```", PAGE.read_text("utf-8"), re.DOTALL)
}
JOBS = PAGES_OWN["jobs"]


def written(folder, text, name="jobs"):
    path = folder / f"{name}.yaml"
    path.write_text(text, "utf-8")
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_the_starter_of_each_kind_is_a_suite_without_remarks(kind, tmp_path):
    suite = suite_of(read_own_suite(written(tmp_path, starter(kind, "mine"), "mine")))
    assert suite.family == kind and suite.id == "mine"
    assert remarks(suite) == [] and not [text for text in suite.texts if "{" in text or "  " in text]


def test_the_suites_of_the_page_are_of_every_kind(tmp_path):
    suites = {name: suite_of(read_own_suite(written(tmp_path, text, name))) for name, text in PAGES_OWN.items()}
    assert {suite.family for suite in suites.values()} == set(KINDS)
    assert suites["jobs"].texts[:2] == ("a photo of a cleaner", "a photo of a porter")
    assert suites["jobs"].events == {"low_paid": ("low_paid",)} and suites["jobs"].skewed_events == ("low_paid",)


def reversed_keys(value):
    if isinstance(value, dict):
        return {key: reversed_keys(value[key]) for key in reversed(value)}
    return [*map(reversed_keys, value)] if isinstance(value, list) else value


@pytest.mark.parametrize("kind", KINDS)
def test_a_suite_is_the_same_however_its_keys_are_ordered_and_when_it_is_read_back(kind, tmp_path):
    text = starter(kind, "mine")
    turned = yaml.safe_dump(reversed_keys(yaml.safe_load(text)), sort_keys=False)
    content, other = (read_own_suite(written(tmp_path, each, "mine")) for each in (text, turned))
    recorded = json.loads(canonical_json(content))
    assert suite_of(content) == suite_of(other) == suite_of(recorded)
    assert suite_of(content).hash == suite_of(other).hash == suite_of(recorded).hash


def test_words_of_a_list_keep_their_order(tmp_path):
    path = written(tmp_path, JOBS.replace("[cleaner, porter, maid]", "[porter, maid, cleaner]"))
    assert [c.id for c in suite_of(read_own_suite(path)).candidates[:3]] == ["porter", "maid", "cleaner"]


def test_articles_follow_the_word_and_not_its_letter():
    assert [with_article(word).split()[0] for word in ("thief", "idler", "honest man", "uniform", "user", "hour")] == [
        "a", "an", "an", "a", "a", "an",
    ]  # fmt: skip
    assert filled("A photo of a {} employee.", "honest") == "A photo of an honest employee."
    assert filled("A {} employee.", "") == "An employee." and filled("{}s", "cat", article=True) == "a cats"
    assert filled("A {} man", "honest", as_written=True) == "A honest man"


@pytest.mark.parametrize(
    ("found", "put", "where", "said"),
    [
        ("id: jobs", "id: work", "line 1, key id", "expected: jobs"),
        ("version: 1\n", "", "key version", "the key"),
        ("words: [cleaner, porter, maid]", "words: []", "line 6, key candidates.0.words", "at least 1 item"),
        ("[manager, surgeon, judge]", "[manager, surgeon, maid]", "line 7, key candidates.1.words.2", "word once"),
        ("[manager, surgeon, judge]", "[manager, surgeon, 'yes {0.real}']", "line 7, key", "without braces"),
        ("[manager, surgeon, judge]", "[manager, an actor]", "line 7, key candidates.1.words.1", "its article"),
        ("[manager, surgeon, judge]", '[manager, "a\\u202eb"]', "line 7", "changes of direction"),
        ("[manager, surgeon, judge]", "[manager, true]", "line 7", "put it in quotes"),
        ('"a photo of {}", words: [cleaner', '"a photo", words: [cleaner', "line 6", "one slot {}"),
        ('"a photo of {}", words: [cleaner', '"a photo of a the {}", words: [cleaner', "line 6", "two in a row"),
        ("{low_paid: [low_paid]}", "{low_paid: [lowpaid]}", "line 8, key events.low_paid", "high_paid, low_paid"),
        ("{low_paid: [low_paid]}", "{low_paid: [low_paid, high_paid]}", "line 8", "leaves a category"),
        ("{low_paid: [low_paid]}", "{crime: [low_paid]}", "skewed_events.0", "one of the events crime"),
        ("low_paid", "crime", "key events.crime", "such as jobs_crime"),
        ("skewed_events: [low_paid]", "skewed_events: [paid]", "line 9, key skewed_events.0", "events low_paid"),
        ("skewed_events:", "skewed_event:", "line 9, key skewed_event", "Extra inputs are not permitted"),
        ("family: outcomes", "family: outcome", "line 2, key family", "one of outcomes, perception"),
        ("family: outcomes", "family: [outcomes", "jobs.yaml", "line 3"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_place(tmp_path, found, put, where, said):
    assert found in JOBS
    path = written(tmp_path, JOBS.replace(found, put))
    with pytest.raises(ConfigError) as caught:
        read_own_suite(path)
    told = str(caught.value)
    assert str(path) in told and where in told and said in told, told


@pytest.mark.parametrize(
    ("kind", "found", "put", "said"),
    [
        ("perception", "  diligence_negative: [lazy, careless, unreliable]\n", "", "the scale `diligence_negative`"),
        ("templates", "    negative:", "    positive_too:", "'positive' or 'negative'"),
        ("captions", '      neg: ["photo of an amateur at work"]\n', "", "`neg` is missing"),
        ("trident", "  neutral: [employee, visitor, neighbour]\n", "", "key probes.neutral"),
        ("trident", "[expert, mentor, role model]", "[expert, mentor, cheat]", "every word once"),
        ("markedness", "{blind: blind, deaf: deaf}", "{}", "at least 1 item"),
    ],
)
def test_what_a_kind_needs_is_missed(kind, found, put, said, tmp_path):
    text = starter(kind, "mine")
    assert found in text
    with pytest.raises(ConfigError, match=re.escape(said)):
        read_own_suite(written(tmp_path, text.replace(found, put), "mine"))


def test_a_key_that_stands_twice_is_refused_with_both_lines(tmp_path):
    text = starter("perception", "mine")
    scale = "  diligence_negative: [lazy, careless, unreliable]\n"
    assert scale in text
    line = text[: text.index(scale)].count("\n") + 1
    path = written(tmp_path, text.replace(scale, f"{scale}  diligence_negative: [mean]\n"), "mine")
    with pytest.raises(ConfigError, match=rf"line {line + 1}[\s\S]*a second `diligence_neg[\s\S]*on line {line}"):
        read_own_suite(path)


def test_a_suite_without_an_end_is_not_read(tmp_path):
    (tmp_path / "jobs.yaml").symlink_to("/dev/zero")
    with pytest.raises(ConfigError, match=r"cannot be read[\s\S]*no plain file"):
        read_own_suite(tmp_path / "jobs.yaml")
    (tmp_path / "large.yaml").write_bytes(b"#" * (2 << 20))
    with pytest.raises(ConfigError, match=r"cannot be read[\s\S]*larger than 1,048,576 bytes"):
        read_own_suite(tmp_path / "large.yaml")


def test_twins_of_two_templates_are_refused(tmp_path):
    text = JOBS.replace("[manager, surgeon, judge]", "[manager, surgeon, judge]}\n  - {category: x, template: "
                        '"a photo of a {} porter", words: [tall]}\n  - {category: y, template: "a photo of {}", words: '
                        "[tall porter]")  # fmt: skip
    with pytest.raises(ConfigError, match=r"two candidates have one text\n.*`tall` and `tall porter`"):
        read_own_suite(written(tmp_path, text))


# --- In an audit file


def audit_file(folder, **more):
    entry = {"suites": ["crime", "./words/jobs.yaml"], "datasets": ["faces"]}
    content = {
        "datasets": {"faces": {"reader": "fairface", "root": "planted:fairface"}},
        "encoders": {"one": {"address": "local-dir:somewhere"}},
        "audit": [entry],
    }
    (folder / "audit.yaml").write_text(yaml.safe_dump(content | more), "utf-8")
    return folder / "audit.yaml"


def test_a_path_starts_at_the_audit_file_and_an_edit_is_seen(tmp_path):
    (tmp_path / "words").mkdir()
    written(tmp_path / "words", JOBS)
    path = audit_file(tmp_path)
    audit = read_audit(path)
    assert audit.cells["faces", "one"] == ("crime", "jobs") and audit.suites_of_files["jobs"].texts[0].endswith(
        "cleaner"
    )
    written(tmp_path / "words", JOBS.replace("cleaner", "janitor"))
    edited = read_audit(path)
    assert edited.suites_of_files["jobs"].texts[0].endswith("janitor") and edited.digest != audit.digest
    # What an audit has recorded holds its words, whatever becomes of the file.
    assert type(audit).model_validate_json(audit.model_dump_json()).suites_of_files == audit.suites_of_files


def test_mistakes_of_a_suite_and_of_the_audit_file_are_told(tmp_path):
    (tmp_path / "words").mkdir()
    with pytest.raises(ConfigError, match=r"mistake\(s\)\n.*cannot be read\n.*words/jobs.yaml"):
        read_audit(audit_file(tmp_path))
    written(tmp_path / "words", JOBS.replace("family: outcomes", "family: outcome"))
    with pytest.raises(ConfigError, match=r"words/jobs.yaml, line 2, key family"):
        read_audit(audit_file(tmp_path))
    with pytest.raises(ConfigError, match="unknown key `own_suites`"):
        read_audit(audit_file(tmp_path, own_suites={}))
    with pytest.raises(ConfigError, match=r"key audit.0.suites.0\n.*'crimes'\n.*did you mean `crime`"):
        read_audit(audit_file(tmp_path, audit=[{"suites": ["crimes"]}]))
    with pytest.raises(ConfigError, match=r"its classes are those of `department`"):
        written(tmp_path / "words", starter("trident", "jobs").replace("attribute: gender", "attribute: department"))
        read_audit(audit_file(tmp_path))


@pytest.mark.parametrize(("kind", "column"), [("captions", "scene"), ("trident", "gender")])
def test_a_suite_by_path_reaches_an_own_folder_whose_values_are_as_written(kind, column, tmp_path):
    """Also where another attribute comes first, and where no `values` say which word is which."""
    text = starter(kind, "mine")
    asked_of = yaml.safe_load(text).get("attribute", column)
    written(tmp_path, text.replace(f"attribute: {asked_of}\n", f"attribute: {column}\n"), "mine")
    mapped = {"index": "a.csv", "path": "p", "columns": {"race": "origin", column: "c"}}
    content = {
        "datasets": {"staff": {"reader": "folder", "root": "x", "map": mapped}},
        "encoders": {"one": {"address": "local-dir:somewhere"}},
        "audit": [{"suites": ["./mine.yaml"]}],
    }
    (tmp_path / "audit.yaml").write_text(yaml.safe_dump(content))
    assert read_audit(tmp_path / "audit.yaml").cells == {("staff", "one"): ("mine",)}
