"""Parsers between foreign bytes and the process, fuzzed: whatever the bytes, they are read or refused in words.

Examples are valid files with changes: bits, bytes and runs of them, pieces of another file, words that parsers stumble
over, a structure repeated or nested. The seed gives the examples. What once broke a parser lies in `corpus/PARSER/` and
is read again each time.
"""

import io
import itertools
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import traceback
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import yaml
from ground import audit_file

from plumbline.errors import PlumblineError
from resources.checkout import PROJECT

CORPUS = Path(__file__).with_name("corpus")
LONGEST_S = 10
"""What takes longer than this hangs."""

WORDS: tuple[bytes, ...] = (
    b"", b"null", b"~", b"-1", b"0", b"1e999", b"nan", b"inf", b"9" * 400, b"0x1p1023", b"true", b"[]", b"{}",
    b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\\ud800", b"\r", b"\n", b"\r\n", b'"', b"'", b",",
    b";", b"\t", b": ", b"- ", b"&a ", b"*a", b"<<: *a", b"!!python/object:os.system", b"!!int 'x'", b"%YAML 9.9",
    b"!!timestamp 9999-99-99", b"../../etc/passwd", b"/etc/passwd", b"~root", b"C:\\", b"file:///", b"=cmd()",
    b"http://169.254.169.254/", b"<script>", b"\x1b[2J", b"\xe2\x80\xae", b"{" * 300, b"[" * 300, b"(" * 300, b"{{",
    b"{word}", b"{0.__class__}", b"%s%n", b"a" * 70_000, b"\x7f" * 9, b"PK\x03\x04", b"PAR1",
)  # fmt: skip


def mutated(seeds: list[bytes], rng: random.Random) -> bytes:
    """Return a seed with one to six changes."""
    data = rng.choice(seeds)
    for _ in range(rng.choice([1, 1, 1, 2, 3, 6])):
        at = rng.randrange(len(data) + 1)
        end = min(len(data), at + rng.choice([1, 1, 2, 4, 16, 200]))
        match rng.randrange(8):
            case 0 if data:
                at = min(at, len(data) - 1)
                data = data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
            case 1:
                data = data[:at] + rng.randbytes(end - at) + data[end:]
            case 2:
                data = data[:at] + data[end:]
            case 3:
                data = data[:at] + rng.choice(WORDS) + data[at:]
            case 4:
                data = data[:at] + rng.choice(WORDS) + data[end:]
            case 5:
                data = data[:end] + data[at:end] * rng.choice([1, 2, 50]) + data[end:]
            case 6:
                other = rng.choice(seeds)
                data = data[:at] + other[rng.randrange(len(other) + 1) :]
            case _:
                data = data[:at]
    return data


@dataclass(frozen=True)
class Parser:
    """A parser, and files that it reads well.

    Attributes
    ----------
    read : callable
        Takes the bytes and a folder of its own; whatever it raises besides `PlumblineError` is a defect.
    seeds : callable
        Gives well-formed files.
    """

    read: Callable[[bytes, Path], object]
    seeds: Callable[[], list[bytes]]


def _file(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


# --- the audit file


def _audit(data: bytes, folder: Path) -> None:
    from plumbline.config.file import read_audit

    read_audit(_file(folder, "audit.yaml", data))


def _audit_seeds() -> list[bytes]:
    shipped = [path.read_bytes() for path in (PROJECT / "audit.yaml", *sorted((PROJECT / "studies").glob("*.yaml")))]
    return [yaml.safe_dump(audit_file(), sort_keys=False).encode(), *shipped[:3]]


# --- suites


def _suite(data: bytes, folder: Path) -> None:
    from plumbline.catalog.own_suites import read_own_suite

    read_own_suite(_file(folder, "starter.yaml", data))


def _suite_seeds() -> list[bytes]:
    return [path.read_bytes() for path in sorted((PROJECT / "plumbline/catalog/starters").glob("*.yaml"))]


# --- indexes of datasets


def _csv(data: bytes, folder: Path) -> None:
    from plumbline.datasets.indexes import index_file, read_header, read_rows

    _file(folder, "index.csv", data)
    path = index_file(folder.resolve(), "index.csv")
    read_header(path, name="index.csv")
    list(read_rows(path, name="index.csv", columns=("file", "gender")))


def _csv_seeds() -> list[bytes]:
    plain = b"file,gender,age\n" + b"".join(b"%d.jpg,Male,%d\n" % (i, i) for i in range(12))
    return [plain, b"\xef\xbb\xbf" + plain.replace(b"\n", b"\r\n"), b'file,gender\n"a\nb.jpg","Ma""le"\n' * 3]


def _table(**columns: list) -> bytes:
    import polars as pl

    buffer = io.BytesIO()
    pl.DataFrame(columns).write_parquet(buffer)
    return buffer.getvalue()


def _parquet(data: bytes, folder: Path) -> None:
    from plumbline.datasets.indexes import index_file, read_table_rows, table_schema

    _file(folder, "index.parquet", data)
    path = index_file(folder.resolve(), "index.parquet")
    schema = table_schema(path, name="index.parquet")
    if {"file", "gender"} <= set(schema.names):
        list(read_table_rows(path, name="index.parquet", columns=("file", "gender")))


def _parquet_seeds() -> list[bytes]:
    names = [f"{i}.jpg" for i in range(20)]
    return [_table(file=names, gender=["Male", None] * 10), _table(file=names, gender=[1.0, float("nan")] * 10)]


# --- answers and replies


def _answers(suffix: str) -> Callable[[bytes, Path], None]:
    def read(data: bytes, folder: Path) -> None:
        from plumbline.generators.stored_answers import StoredAnswers, StoredAnswersSettings

        path = _file(folder, f"answers{suffix}", data)
        settings = StoredAnswersSettings.model_validate({"files": [str(path)]})
        len(StoredAnswers(settings, (path,))._rows)

    return read


def _answer_rows() -> dict[str, list]:
    return {"image": ["a.jpg", "b.jpg"], "prompt": ["describe"] * 2, "text": ["A person.", "Somebody, tall."]}


def _answer_lines() -> list[bytes]:
    rows = [dict(zip(_answer_rows(), values, strict=True)) for values in zip(*_answer_rows().values(), strict=True)]
    return [b"\n".join(json.dumps(row).encode() for row in rows)]


def _answer_csv() -> list[bytes]:
    lines = [
        ",".join(_answer_rows()),
        *(",".join(f'"{v}"' for v in row) for row in zip(*_answer_rows().values(), strict=True)),
    ]
    return ["\n".join(lines).encode()]


def _reply(data: bytes, folder: Path) -> None:
    from plumbline.generators.judge import read_word_list
    from plumbline.http.chat import read_reply
    from plumbline.http.client import MalformedReply
    from plumbline.http.settings import EndpointKey

    read_word_list(data.decode("utf-8", "replace"), {"kind", "lazy"})
    with suppress(MalformedReply):
        read_reply(data, most_new_tokens=5, key=EndpointKey(None))


def _reply_seeds() -> list[bytes]:
    from fault_server import completion

    return [
        completion("kind, lazy").body, completion(None, message={"refusal": "no"}).body, b'["kind", "lazy"]',
        b"```json\n[\"kind\"]\n```", b"1. kind\n2. lazy\n", b"[kind, lazy]", b'{"error": {"message": "busy"}}',
    ]  # fmt: skip


def _numbers(data: bytes, folder: Path) -> None:
    from plumbline.language.ratings_and_salaries import read_rating, read_salary

    text = data.decode("utf-8", "replace")
    read_rating(text), read_salary(text)


def _number_seeds() -> list[bytes]:
    return [
        b"I would give her 8 out of 10.",
        b"between $45,000 and $60k a year",
        b"seven and a half",
        b"USD 100.000,00",
    ]


def _scores(data: bytes, folder: Path) -> None:
    from plumbline.scorers.stored import read_stored

    read_stored(_file(folder, "scores.parquet" if data.startswith(b"PAR1") else "scores.csv", data))


def _score_seeds() -> list[bytes]:
    return [
        b"text,TOXICITY,insult_score\nA person,0.5,0.25\nother,,nan\n",
        _table(text=["a", "b"], TOXICITY=[0.1, 0.2]),
    ]


def _sheets(data: bytes, folder: Path) -> None:
    from plumbline.language.user_files import read_annotations, read_dictionaries

    path = _file(folder, "sheet.csv", data)
    for read in (read_annotations, read_dictionaries):
        try:
            read(path)
        except PlumblineError:
            continue


def _sheet_seeds() -> list[bytes]:
    return [
        b"sheet,text_id,annotator,label\npersonality,abc,one,1\njudge,def,two,0\n",
        b"word,Warmth_dict_hi,Warmth_dict_lo,Competence_dict_hi,Competence_dict_lo\nkind,1,0,0,0\nrude,0,1,0,1\nwise,0,0,1,0\n",
    ]


def _counts(data: bytes, folder: Path) -> None:
    from plumbline.datasets.counts import read_counts
    from plumbline.datasets.folder import ColumnMap

    path = _file(folder, "counts.csv", data)
    read_counts(path, ColumnMap.model_validate({"index": path.name, "columns": {"gender": "gender", "race": "race"}}))


def _count_seeds() -> list[bytes]:
    return [b"gender,race,thief,person\nMale,White,3,10\nFemale,Black,2,9\n"]


# --- archives and checkpoints


def _archive(data: bytes, folder: Path) -> None:
    from plumbline.datasets.unpacking import Limits, extract_archive

    path, target = _file(folder, "archive", data), folder / "out"
    before = set(folder.iterdir())
    extract_archive(path, target, limits=Limits(members=200, total_bytes=1 << 20))
    assert set(folder.iterdir()) <= before | {target}, "something was written beside the folder"


def _archive_seeds() -> list[bytes]:
    made = []
    for mode in ("w", "w:gz", "w:bz2"):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode=mode) as tar:
            for name in ("a.jpg", "below/b.jpg", "ümlaut.csv"):
                member = tarfile.TarInfo(name)
                member.size = 300
                tar.addfile(member, io.BytesIO(b"x" * 300))
        made.append(buffer.getvalue())
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        for name in ("a.jpg", "below/b.jpg"):
            packed.writestr(name, b"y" * 300)
    return [*made, buffer.getvalue()]


def _weights(data: bytes, folder: Path) -> None:
    from plumbline.checkpoints.folders import require_complete

    require_complete(_file(folder, "model.safetensors", data))


def _weight_seeds() -> list[bytes]:
    import numpy as np
    from safetensors.numpy import save

    return [save({"a.weight": np.ones((3, 4), np.float32), "b": np.zeros(2, np.float16)}, metadata={"format": "pt"})]


def _configuration(data: bytes, folder: Path) -> None:
    from plumbline.checkpoints.folders import read_configuration, refuse_code

    path = _file(folder, "config.json", data)
    read_configuration(path)
    refuse_code(folder)


def _configuration_seeds() -> list[bytes]:
    return [path.read_bytes() for path in sorted((PROJECT / "plumbline/world/checkpoints").glob("*/*config.json"))[:6]]


def _image(data: bytes, folder: Path) -> None:
    from plumbline.images.decoding import check

    check(data)


def _image_seeds() -> list[bytes]:
    from written_pictures import encoded, noise

    return [encoded(noise(), kind) for kind in ("JPEG", "PNG", "WEBP")]


PARSERS = {
    "audit file": Parser(_audit, _audit_seeds),
    "suite": Parser(_suite, _suite_seeds),
    "CSV index": Parser(_csv, _csv_seeds),
    "Parquet index": Parser(_parquet, _parquet_seeds),
    "answers in JSONL": Parser(_answers(".jsonl"), _answer_lines),
    "answers in CSV": Parser(_answers(".csv"), _answer_csv),
    "answers in Parquet": Parser(_answers(".parquet"), lambda: [_table(**_answer_rows())]),
    "replies": Parser(_reply, _reply_seeds),
    "ratings and salaries": Parser(_numbers, _number_seeds),
    "stored scores": Parser(_scores, _score_seeds),
    "sheets and dictionaries": Parser(_sheets, _sheet_seeds),
    "counts": Parser(_counts, _count_seeds),
    "archives": Parser(_archive, _archive_seeds),
    "weights' headers": Parser(_weights, _weight_seeds),
    "configurations": Parser(_configuration, _configuration_seeds),
    "images": Parser(_image, _image_seeds),
}


@dataclass(frozen=True)
class Crash:
    """An example that a parser neither read nor refused."""

    parser: str
    data: bytes
    why: str


class Hang(BaseException):
    """A parser took longer than it may; no parser catches it."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raise `Hang` in the main thread after a time."""

    def ring(*_: object) -> None:
        raise Hang

    # Of processor time, since the machine may be busy; what sleeps is let sleep six times as long.
    before = [signal.signal(number, ring) for number in (signal.SIGPROF, signal.SIGALRM)]
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, 6 * seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in zip((signal.SIGPROF, signal.SIGALRM), before, strict=True):
            signal.signal(number, handler)


def tried(name: str, data: bytes) -> Crash | None:
    """Read one example; must be called in the main thread."""
    folder = Path(tempfile.mkdtemp(prefix="plumbline-fuzz-"))
    try:
        with at_most(LONGEST_S):
            PARSERS[name].read(data, folder)
    except PlumblineError as error:
        if any(ord(mark) < 32 and mark not in "\n\t" for mark in str(error)):
            return Crash(name, data, f"control characters in the message: {str(error)!r}"[:500])
    except Hang:
        return Crash(name, data, f"not read within {LONGEST_S} s")
    except BaseException as error:
        return Crash(name, data, "".join(traceback.format_exception(error)[-4:])[-1500:])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return None


def kept(name: str) -> list[bytes]:
    """Return what once broke a parser."""
    return [path.read_bytes() for path in sorted((CORPUS / name.replace(" ", "-")).glob("*"))]


def examples_of(name: str, seed: str) -> Iterator[bytes]:
    """Give well-formed files, what once broke the parser, and changed ones without end."""
    well, corpus, rng = PARSERS[name].seeds(), kept(name), random.Random(f"{seed} {name}")
    yield from well
    yield from corpus
    while True:
        yield mutated(well + corpus, rng)


_MOST_CRASHES = 20


def fuzz(name: str, seed: str, *, examples: int) -> tuple[int, list[Crash]]:
    """Read so many examples in a process of its own, and go on in another where one ends it.

    A library that aborts the process is a crash as well.

    Returns
    -------
    tuple of int and list of Crash
        How many were tried, and the crashes.
    """
    done, crashes = 0, []
    while done < examples and len(crashes) < _MOST_CRASHES:
        command = [sys.executable, __file__, name, seed, str(done), str(examples)]
        paths = os.pathsep.join(path for path in sys.path if path)
        environment = {**os.environ, "PYTHONPATH": f"{PROJECT}{os.pathsep}{paths}", "LD_PRELOAD": ""}
        ended = subprocess.run(command, capture_output=True, env=environment)
        told = [json.loads(line) for line in ended.stdout.splitlines()]
        tried_now = told[-1]["number"] + 1 if told else done
        why = told[-1].get("why", "") if told else ""
        if not why and tried_now < examples:
            # It began one more, and did not come back.
            assert told, ended.stderr.decode()[-2000:]
            why, tried_now = f"the process ended with {ended.returncode}: {ended.stderr.decode()[:300]}", tried_now + 1
        if why:
            data = next(itertools.islice(examples_of(name, seed), tried_now - 1, None))
            crashes.append(Crash(name, data, why))
        done = tried_now
    return done, crashes


def _main(name: str, seed: str, first: str, end: str) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
    PARSERS[name].seeds()
    for number, data in enumerate(itertools.islice(examples_of(name, seed), int(first), int(end)), int(first)):
        crash = tried(name, data)
        print(json.dumps({"number": number, "why": crash.why if crash else ""}), flush=True)
        if crash:
            return


_MOST_MEMORY = 12 << 30

if __name__ == "__main__":
    _main(*sys.argv[1:])
