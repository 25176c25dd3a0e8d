"""Every refusal of `plumbline check` names place, what was found, limit and key, three examples, and how many more."""

import ast
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import yaml
from typer.testing import CliRunner

from documentation.repository_pages import PROJECT
from plumbline import own_code
from plumbline.catalog.own_suites import starter
from plumbline.commands.main import app
from plumbline.errors import PlumblineError

TABLE, IMAGES = Path("staff/people.csv"), Path("staff/photos")


def people(**columns):
    """Return a change that fills columns of the table anew, by a function of the number of the person."""

    def change(audit):
        frame = pl.read_csv(TABLE)
        values = {name: [each(i) for i in range(frame.height)] for name, each in columns.items()}
        frame.with_columns(**{name: pl.Series(of) for name, of in values.items()}).write_csv(TABLE)

    return change


def images(data, number):
    """Return a change that gives so many images these bytes; None takes them away."""

    def change(audit):
        for person in range(number):
            path = IMAGES / f"{person}.jpg"
            if data is None:
                path.unlink()
            else:
                path.write_bytes(data)

    return change


def lines(edit):
    """Return a change of the lines of the table."""
    return lambda audit: TABLE.write_bytes(b"\n".join(edit(TABLE.read_bytes().splitlines())) + b"\n")


def put(path, value):
    """Return a change of a key of the audit file."""

    def change(audit):
        *parents, last = path.split(".")
        part = audit
        for name in parents:
            part = part.setdefault(name, {})
        part[last] = value

    return change


def mapped(**columns):
    return put("datasets.staff.map.columns", columns)


def files(reader, **contents):
    """Return a change to a dataset of a published kind with these files."""

    def change(audit):
        for name, content in contents.items():
            path = Path("faces") / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        Path("faces").mkdir(exist_ok=True)
        audit["datasets"] = {"faces": {"reader": reader, "root": "faces"}}

    return change


def counts(*rows, header="race,thief,nice"):
    def change(audit):
        TABLE.write_text("\n".join([header, *rows]) + "\n")
        map_ = {"index": "people.csv", "columns": {"race": "race"}}
        if "all" in header:
            map_["total"] = "all"
        audit["datasets"]["staff"] |= {"reader": "counts", "map": map_}

    return change


def own(code, **entry):
    """Return a change that puts code beside the audit file and names it."""

    def change(audit):
        Path("mine.py").write_text(code)
        for path, value in entry.items():
            put(path.replace("__", "."), value)(audit)

    return change


def suite(found, wanted, kind="outcomes"):
    """Return a change to a suite by path with something wrong in it."""

    def change(audit):
        text = starter(kind, "jobs")
        assert found in text
        Path("jobs.yaml").write_text(text.replace(found, wanted, 1))
        audit["audit"] = [{"suites": ["./jobs.yaml"]}]

    return change


def stored(**arrays):
    """Return a change to an encoder of stored embeddings: the arrays of its one file, none of a folder without any."""

    def change(audit):
        Path("vectors").mkdir()
        if arrays:
            np.savez(Path("vectors") / "images.npz", **arrays)
        audit["encoders"] = {"mine": {"address": "stored:vectors"}}

    return change


VECTORS = np.ones((30, 4), np.float32)


def predictions(text, name="mine.csv"):
    """Return a change to an encoder of stored predictions: one table, or a folder of tables of datasets."""

    def change(audit):
        Path("predicted").mkdir()
        Path("predicted", name).write_text(text)
        place = f"predicted/{name}" if name == "mine.csv" else "predicted"
        audit["encoders"] = {"mine": {"address": f"stored:{place}"}}

    return change


def all_of(*changes):
    return lambda audit: [change(audit) for change in changes]


def link_out(audit):
    Path("outside.csv").write_bytes(TABLE.read_bytes())
    TABLE.unlink()
    TABLE.symlink_to("../outside.csv")


def as_parquet(audit, nested=True):
    frame = pl.read_csv(TABLE)
    frame = frame.with_columns(pl.concat_list("sex", "team").alias("sex")) if nested else frame
    frame.write_parquet("staff/people.parquet")
    audit["datasets"]["staff"]["map"]["index"] = "people.parquet"


def no_parquet(audit):
    as_parquet(audit)
    Path("staff/people.parquet").write_bytes(b"PAR1 and no more")


@dataclass(frozen=True)
class Refused:
    """One row: what is changed, and what must be said of it.

    `limit` is what is asked for, `key` the key of the audit file that says so, or whose value is wrong; `examples` are
    the three that are shown of several, and `more` how many are only counted.
    """

    change: Callable
    place: str
    found: str
    limit: str
    key: str = ""
    examples: tuple[str, ...] = ()
    more: int = 0


RATE = "`datasets.staff.quarantine_rate` or `thresholds.quarantine_rate` allows 5.0%"
SHARE = "datasets.staff.balance"
FEW = "and {} more"


def first_photos(said, *, line=2):
    """Return how the first three photos are shown, whose rows begin at a line of the table."""
    return tuple(f"photos/{i}.jpg: {said} (people.csv, line {line + i})" for i in range(3))


LABELS = {
    "a folder that is not there": Refused(
        put("datasets.staff.root", "nowhere"), "/nowhere", "nothing", "a folder", "`root`"
    ),
    "a file in place of the folder": Refused(
        put("datasets.staff.root", "staff/people.csv"), "staff/people.csv", "a file", "a folder", "`root`"
    ),
    "no table": Refused(
        put("datasets.staff.map.index", "peple.csv"), "staff", "people.csv; photos", "peple.csv", "`map.index`"
    ),
    "a table that a link leads to": Refused(link_out, "people.csv", "people.csv", "a file below it"),
    "a table without rows": Refused(lines(lambda all_: all_[:1]), "people.csv", "no row", "a row an image"),
    "a column that is not there": Refused(
        mapped(gender="sexx"),
        "people.csv, line 1",
        "photo, sex, team, badge",
        "one column `sexx`",
        "`map.columns.gender`",
    ),
    "several columns that are not there": Refused(
        mapped(a="sex1", b="sex2", c="sex3", d="sex4", e="sex5"),
        "people.csv, line 1",
        "photo, sex, team, badge",
        "one column `sex1`, for `map.columns.a` of the audit file",
        "`map.columns.a`",
        ("`sex1`", "`sex2`", "`sex3`"),
        2,
    ),
    "a column twice": Refused(
        lines(lambda all_: [b"photo,sex,sex,team", *all_[1:]]),
        "people.csv, line 1",
        "photo, sex, sex, team",
        "one column `sex`",
        "`map.columns.gender`",
    ),
    "other separators": Refused(
        lines(lambda all_: [line.replace(b",", b";") for line in all_]),
        "people.csv, line 1",
        "photo;sex;team;badge",
        "with commas",
        "`map.path`",
    ),
    "a line without end": Refused(
        lines(lambda all_: [*all_, b"x" * ((1 << 20) + 1)]), "people.csv, line 32", "more than", "lines of at most"
    ),
    "a column of lists": Refused(
        as_parquet, "people.parquet", "sex: ", "texts or numbers in `sex`", "`map.columns.gender`"
    ),
    "a damaged Parquet table": Refused(
        no_parquet, "people.parquet", "found: Parquet magic bytes not found", "a sound Parquet file"
    ),
    "no value that is known": Refused(
        all_of(people(sex=lambda i: f"s{i % 5}"), put("datasets.staff.map.values", {"gender": {"M": "man"}})),
        "people.csv",
        "found: 's0'",
        "expected: M do: write the table's own words",
        "`map.values.gender`",
        ("'s0'", "'s1'", "'s2'"),
        2,
    ),
    "a split that is not known": Refused(
        all_of(
            people(badge=lambda i: "use" if i < 24 else f"s{i}"),
            mapped(gender="sex", split="badge"),
            put("datasets.staff.map.values", {"split": {"use": "train"}}),
        ),
        "people.csv, line 26",
        "20.0% of the images",
        RATE,
        "quarantine_rate",
        tuple(f"photos/{i}.jpg: the value of `badge` is unknown (people.csv, line {i + 2})" for i in (24, 25, 26)),
        3,
    ),
    "rows with too few fields": Refused(
        lines(lambda all_: [all_[0], *(b"x.jpg,M" for _ in range(7)), *all_[8:]]),
        "people.csv, line 2",
        "23.3% of the images",
        RATE,
        "quarantine_rate",
        tuple(f"(people.csv, line {i})" for i in (2, 3, 4)),
        4,
    ),
    "rows that are not UTF-8": Refused(
        lines(lambda all_: [all_[0], *(line.replace(b".jpg", b"\xe9.jpg") for line in all_[1:8]), *all_[8:]]),
        "people.csv, line 2",
        "expected UTF-8",
        RATE,
        "quarantine_rate",
        tuple(f"(people.csv, line {i})" for i in (2, 3, 4)),
        4,
    ),
    "control characters": Refused(
        people(sex=lambda i: "M\x1b" if i < 9 else "F"),
        "people.csv, line 2",
        "30.0% of the images",
        RATE,
        "quarantine_rate",
        first_photos("the value of `sex` cannot be used"),
        6,
    ),
    "shares out of a range": Refused(
        all_of(people(team=lambda i: f"t{i % 5}"), put(SHARE, {"team": [0.3, 0.4]})),
        "staff",
        "20.0% of the images are `t0`",
        "asks for 30% to 40% (n = 6)",
        "`datasets.staff.balance.team`",
        tuple(f"20.0% of the images are `t{i}`" for i in range(3)),
        2,
    ),
    "counts that are no numbers": Refused(
        counts("White,1,2", "Black,3,x", "Asian,-1,y", "Indian,5%,7"),
        "people.csv",
        "4 of 8 counts",
        "whole numbers from 0",
        "",
        ("line 3, column `nice`: 'x'", "line 4, column `thief`: '-1'", "line 4, column `nice`: 'y'"),
        1,
    ),
    "counts that do not add up": Refused(
        counts("White,1,2,9", "Black,3,1,4", "Asian,1,1,3", header="race,thief,nice,all"),
        "line 2, column `all`",
        "line 2: 1 + 2 = 3, not 9; line 4: 1 + 1 = 2, not 3",
        "sums that are the totals",
    ),
    "counts of a group twice": Refused(
        counts("White,1,2", "Black,3,1", "White,1,1"), "line 4, column `race`", "White, as in line 2", "one row a group"
    ),
    "counts of nothing": Refused(counts("White,0,0"), "people.csv", "0 images in 1 rows", "1 to 20,000,000"),
    "no column of counts": Refused(counts("White", header="race"), "people.csv", "race", "one a candidate"),
    "rows of counts that cannot be read": Refused(
        counts(*(f"g{i},1" for i in range(5)), header="race,thief,nice"),
        "people.csv, line 2",
        "line 2: ",
        "3 fields",
        "",
        ("line 2: ", "line 3: ", "line 4: "),
        2,
    ),
    "FairFace without labels": Refused(
        files("fairface"), "faces", "found: nothing", "expected: fairface_label_train.csv or fairface_label_val.csv"
    ),
    "FairFace without columns": Refused(
        files("fairface", **{"fairface_label_val.csv": "a,b\n1,2\n"}),
        "fairface_label_val.csv, line 1",
        "a,b",
        "a first line with the columns file, gender",
    ),
    "FairFace without a row": Refused(
        files("fairface", **{"fairface_label_val.csv": "file,age,gender,race,service_test\n"}),
        "faces",
        "fairface_label_val.csv",
        "list no image",
    ),
    "CelebA without a part": Refused(
        files("celeba", **{"list_attr_celeba.txt": "1\nMale\n"}),
        "faces",
        "found: no list_eval_partition.txt",
        "expected: list_attr_celeba.txt",
    ),
    "PATA without a list": Refused(files("pata"), "faces", "found: nothing", "expected: pata_fairness.files.lst"),
    "UTKFace without files": Refused(
        files("utkface"), "faces", "nothing", "expected: [age]_[gender]_[race]_[date&time].jpg"
    ),
    "UTKFace with other names": Refused(
        files("utkface", **{f"{i}.jpg": "" for i in range(5)}),
        "0.jpg",
        "100.0% of the images",
        "`datasets.faces.quarantine_rate`",
        "quarantine_rate",
        tuple(f"{i}.jpg: the name does not give the labels, found {i}.jpg, expected" for i in range(3)),
        2,
    ),
    "IdenProf with other folders": Refused(
        files("idenprof", **{f"tests__chef__{i}.jpg": "" for i in range(4)}),
        "tests/chef/0.jpg",
        "found tests",
        "expected train or test",
        "quarantine_rate",
        tuple(f"tests/chef/{i}.jpg" for i in range(3)),
        1,
    ),
    "CausalFace with other names": Refused(
        files("causalface", **{f"{i}.jpg": "" for i in range(5)}),
        "0.jpg",
        "found 0.jpg",
        "expected",
        "quarantine_rate",
        tuple(f"{i}.jpg: " for i in range(3)),
        2,
    ),
    "SocialCounterfactuals without an index": Refused(
        files("socialcounterfactuals"), "faces", "found: nothing", "expected: data/*.parquet"
    ),
}
"""What tables and names tell: an audit stops before it embeds."""

SEEN = {
    "COCO without captions": Refused(
        files("coco", **{"train2017__1.jpg": ""}), "faces", "found: train2017", "expected: annotations/captions_train"
    ),
    "COCO of another form": Refused(
        files("coco", **{"annotations__captions_val2017.json": '{"images": 3}'}),
        "captions_val2017.json",
        "found: images",
        "expected: JSON with the lists",
    ),
    "img2dataset without parts": Refused(files("img2dataset"), "faces", "found: nothing", "expected: 00000.tar"),
    "paths that lead out": Refused(
        all_of(put("datasets.staff.map.images", None), people(photo=lambda i: f"../{i}.jpg")),
        "people.csv, line 2",
        "100.0% of the images",
        RATE,
        "quarantine_rate",
        tuple(f"../{i}.jpg: the path leads out" for i in range(3)),
        27,
    ),
    "photos that are not there": Refused(
        images(None, 9),
        "people.csv, line 2",
        "30.0% of the images",
        RATE,
        "quarantine_rate",
        first_photos("the listed file does not exist"),
        6,
    ),
    "photos that are no images": Refused(
        images(b"<html></html>", 5),
        "people.csv, line 2",
        "found bytes 3c 68",
        "expected JPEG, PNG or WEBP",
        "quarantine_rate",
        first_photos("the content is not an image"),
        2,
    ),
    "photos that are cut": Refused(
        images(b"\xff\xd8\xff" + b"\0" * 100, 5),
        "people.csv, line 2",
        "16.7% of the images",
        RATE,
        "quarantine_rate",
        first_photos("the picture does not decode"),
        2,
    ),
    "photos that are the same": Refused(
        all_of(lambda audit: [(IMAGES / f"{i}.jpg").write_bytes((IMAGES / "9.jpg").read_bytes()) for i in range(9)]),
        "people.csv, line 2",
        "33.3% of the images",
        "one set of labels",
        "quarantine_rate",
        first_photos("the same bytes are listed 10 times with different labels"),
        7,
    ),
    "no photo at all": Refused(
        images(None, 30),
        "people.csv, line 2",
        "100.0% of the images",
        RATE,
        "quarantine_rate",
        first_photos("the listed file does not exist"),
        27,
    ),
}
"""What only images tell."""

NOT_FINITE = Refused(
    stored(embedding=VECTORS * np.nan, image_path=[f"photos/{i}.jpg" for i in range(30)]),
    "images.npz, row 1",
    "30 of 30 stored embeddings hold NaN",
    "finite numbers",
    "",
    ("row 1", "row 2", "row 3"),
    27,
)

WRITTEN = {
    "a key that is unknown": Refused(
        put("statistics.resample", 10),
        "line ",
        "unknown key `resample`",
        "did you mean `resamples`",
        "key statistics.resample",
    ),
    "a number out of its range": Refused(
        put("statistics.confidence", 95), "line ", "95", "less than", "key statistics.confidence"
    ),
    "a range the wrong way": Refused(
        put(SHARE, {"gender": [0.6, 0.4]}),
        "line ",
        "[0.6, 0.4]",
        "0 <= low < high <= 1",
        "key datasets.staff.balance.gender",
    ),
    "a balance of nothing": Refused(
        put(SHARE, {"gendre": [0.4, 0.6]}),
        "line ",
        "gendre",
        "did you mean `gender`",
        "key datasets.staff.balance.gendre",
    ),
    "a reader that is unknown": Refused(
        put("datasets.staff.reader", "foldr"), "line ", "foldr", "did you mean `folder`", "key datasets.staff.reader"
    ),
    "a reader without its map": Refused(
        put("datasets.staff.map", None),
        "line ",
        "found: the keys reader, root, map",
        "folder, listing, counts",
        "key datasets.staff",
    ),
    "a suite that is unknown": Refused(
        put("audit", [{"suites": ["crimes"]}]), "line ", "crimes", "did you mean `crime`", "key audit.0.suites.0"
    ),
    "a dataset that is unknown": Refused(
        put("audit", [{"datasets": ["staf"]}]), "line ", "staf", "did you mean `staff`", "key audit.0.datasets.0"
    ),
    "a dataset without a folder": Refused(
        lambda audit: audit["datasets"]["staff"].pop("root"),
        "line ",
        "nothing",
        "the key `root`",
        "key datasets.staff.root",
    ),
    "bins that do not rise": Refused(
        put("datasets.staff.map.bins", {"gender": [3, 2]}),
        "line ",
        "3",
        "each larger than the one before",
        "key datasets.staff.map.bins.gender",
    ),
    "values of an attribute without column": Refused(
        put("datasets.staff.map.values", {"race": {"a": "b"}}),
        "line ",
        "race",
        "`columns` maps",
        "key datasets.staff.map",
    ),
    "a cross of nothing": Refused(
        put("datasets.staff.map.crosses", [["gender", "shoe"]]),
        "line ",
        "shoe",
        "attributes that are mapped (gender, team)",
        "key datasets.staff.map",
    ),
    "an index that leads out": Refused(
        put("datasets.staff.map.index", "../people.csv"),
        "line ",
        "../people.csv",
        "below the dataset's root",
        "key datasets.staff.map.index",
    ),
    "an address of no commit": Refused(
        put("encoders.mine.address", "hf-hub:org/model@main"),
        "line ",
        "hf-hub:org/model@main",
        "40 hexadecimal digits",
        "key encoders.mine.address",
    ),
    "an encoder that is not there": Refused(
        put("encoders.mine.address", "local-dir:nowhere"),
        "/nowhere",
        "no config.json",
        "the files of local-dir:",
        "encoder `mine`",
    ),
    "no audit file of another": Refused(put("based_on", "other.yaml"), "other.yaml", "audit file", "other.yaml"),
    "a suite with an unknown category": Refused(
        suite("events: {", "events: {odd: [nowhere], "), "line ", "nowhere", "some of the categories", "key events.odd"
    ),
    "a suite that is not there": Refused(
        put("audit", [{"suites": ["./gone.yaml"]}]),
        "gone.yaml",
        "No such file",
        "cannot be read",
        "key audit.0.suites.0",
    ),
    "no stored vectors": Refused(
        stored(), "vectors", "found: no table", "a .csv or .parquet file", "correct the path in the audit file"
    ),
    "vectors without names": Refused(
        stored(embedding=VECTORS), "images.npz", "found: embedding", "`image_path` and `embedding`", "embeddings.image"
    ),
    "vectors of other names": Refused(
        stored(embedding=VECTORS, image_path=[f"other/{i}.jpg" for i in range(100, 130)]),
        "images.npz, column `image_path`",
        "30 rows, such as ['other/100.jpg']",
        "a row for every accepted image",
        "",
        ("photos/0.jpg", "photos/1.jpg", "photos/2.jpg"),
        27,
    ),
    "vectors that are not finite": NOT_FINITE,
    "vectors of images that are not on this disk": replace(
        NOT_FINITE, change=all_of(NOT_FINITE.change, put("datasets.staff.reader", "listing"))
    ),
    "predictions of another suite": Refused(
        predictions("image,agency\nphotos/0.jpg,leader\n"), "mine.csv", "columns image, agency", "a column `crime`"
    ),
    "images without a prediction": Refused(
        predictions("photo,crime\nphotos/0.jpg,a photo of a thief\n"),
        "mine.csv",
        "29 of 30 images",
        "a row for every accepted image",
        "",
        ("photos/1.jpg", "photos/2.jpg", "photos/3.jpg"),
        26,
    ),
    "predictions of another dataset": Refused(
        predictions("image,crime\n", name="others.csv"), "predicted", "found: others.csv", "staff.csv or staff.parquet"
    ),
}
"""What the audit file and the files that it names say."""

ENTRY = {"metrics": {"first": {"function": "mine:first", "suites": ["crime"]}}}
OWN = {
    "a metric of other arguments": Refused(
        own("def first(scores):\n    return 1\n", **ENTRY),
        "mine.py, line 1",
        "found: (scores)",
        "expected: a function of (scores, event, codes, groups)",
        "`metrics.first.function`",
    ),
    "a metric that is not there": Refused(
        own("a = b = c = d = e = 1\n", **ENTRY),
        "mine.py",
        "found: a; b; c",
        "expected: mine:first",
        "`metrics.first.function`",
        ("a", "b", "c"),
        2,
    ),
    "a metric that fails": Refused(
        own("def first(s, e, c, g):\n    return 1 / 0\n", **ENTRY),
        "mine.py, line 2",
        "ZeroDivisionError",
        "called with",
        "`metrics.first.function`",
    ),
    "a scorer of other scores": Refused(
        own(
            "def first(texts):\n    return [{'insult': 0.5} for t in texts]\n",
            scorers={"mine": {"kind": "own", "function": "mine:first"}},
        ),
        "mine.py, line 1",
        "['insult']",
        "a mapping with toxicity",
        "`scorers.mine.function`",
    ),
    "a reader without methods": Refused(
        own("class Mine:\n    pass\n", datasets={"staff": {"reader": "mine:Mine", "root": "staff"}}),
        "mine.py",
        "nothing",
        "an attribute `declaration`",
        "`datasets.staff.reader`",
    ),
    "code that is no Python": Refused(
        own("def first(:\n", **ENTRY), "mine.py", "line 1", "not Python", "`metrics.first.function`"
    ),
}
"""What code of one's own must keep."""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Return a home that is shared: the sizes of the model are looked up once."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def said(here, checkpoint, home, monkeypatch):
    """Return a function from a row and a command to what the command says, on one line."""
    monkeypatch.setenv("PLUMBLINE_HOME", str(home))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(own_code, "_FOLDERS", {})

    def say(row, *command):
        audit = {
            "datasets": {
                "staff": {
                    "reader": "folder",
                    "root": "staff",
                    "map": {
                        "index": "people.csv",
                        "path": "photo",
                        "images": "photos",
                        "columns": {"gender": "sex", "team": "team"},
                    },
                }
            },
            "encoders": {"mine": {"address": f"local-dir:{checkpoint}"}},
            "audit": [{"suites": ["crime"]}],
        }
        if not Path("audit.yaml").exists():
            row.change(audit)
            Path("audit.yaml").write_text(yaml.safe_dump(audit, sort_keys=False))
        ran = CliRunner().invoke(app, [*command, "--config", "audit.yaml"])
        assert ran.exit_code, f"nothing was refused: {ran.output}"
        if ran.exception is not None and not isinstance(ran.exception, SystemExit):
            assert isinstance(ran.exception, PlumblineError), ran.exception
            return " ".join(str(ran.exception).split())
        return " ".join(ran.output.split())

    yield say
    sys.modules.pop("mine", None)


def lacking(row, text):
    wanted = [row.place, row.found, row.limit, row.key, *row.examples]
    wanted += [FEW.format(row.more)] if row.more else []
    return [each for each in wanted if each not in text]


ROWS = {**LABELS, **SEEN, **WRITTEN, **OWN}


@pytest.mark.parametrize("name", ROWS)
def test_check_says_place_found_limit_key_and_examples(name, said):
    row = ROWS[name]
    assert (len(row.examples), row.more > 0) in ((0, False), (3, True)), "three examples, and how many more"
    text = said(row, "check")
    assert lacking(row, text) == [], text


@pytest.mark.parametrize("name", LABELS)
def test_an_audit_stops_in_the_same_words_before_it_embeds(name, said):
    text = said(LABELS[name], "audit")
    assert lacking(LABELS[name], text) == [], text
    assert "nothing was embedded" in text


PLACED_BY_THEIR_READERS = {"extended.py", "preview.py", "records.py", "registry.py", "sources.py", "unpacking.py"}
"""Whose refusals get their place from who asks: the line and key of the audit file, the archive, or the dataset."""


def test_every_refusal_of_a_dataset_in_the_code_names_place_and_what_was_found_or_is_expected():
    """So that a refusal which the table above does not have yet is no bare sentence."""
    bare, seen = [], 0
    for path in sorted((PROJECT / "plumbline" / "datasets").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not (isinstance(node, ast.Call) and getattr(node.func, "id", None) == "DatasetError"):
                continue
            given, seen = {keyword.arg for keyword in node.keywords}, seen + 1
            if path.name not in PLACED_BY_THEIR_READERS and not ("where" in given and given & {"found", "expected"}):
                bare.append(f"{path.name}, line {node.lineno}")
    assert seen > 40 and bare == []
