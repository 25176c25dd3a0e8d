"""Files that lost or changed bytes: in a finished home, in the sources, and whatever else a user may hand in."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import yaml
from ground import ENCODER, Ground, Result, differences, numbers, shown
from homes import SHARED, Home, edited
from PIL import Image
from written_pictures import encoded

from plumbline.errors import StorageError
from plumbline.world.folders import ensure
from resources.checkout import PROJECT

READERS = (("status",), ("report",), ("plan",), ("audit", "--dry-run"), ("scorecard",))


def damaged(data: bytes, rng: random.Random) -> tuple[bytes, str]:
    """Return the bytes with one bit changed, cut short, emptied or with a part of zeros, and which of these."""
    how = rng.choice(["a bit flipped", "cut short", "emptied", "a part of zeros"]) if data else "emptied"
    at = rng.randrange(len(data)) if data else 0
    if how == "a bit flipped":
        return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :], f"{how} at byte {at}"
    if how == "cut short":
        return data[:at], f"{how} to {at} bytes"
    if how == "a part of zeros":
        return data[:at] + bytes(min(512, len(data) - at)) + data[at + 512 :], f"{how} at byte {at}"
    return b"", how


def in_the_home(ground: Ground, rng: random.Random, name: str, number: int) -> Result:
    """Damage one file of a finished home: it is made again, or named with what to do; no number changes silently."""
    home = ground.copy(name)
    below = home.workspace.home
    areas: dict[str, list[Path]] = {}
    for path in sorted(below.rglob("*")):
        parts = path.relative_to(below).parts
        if path.is_file() and not path.is_symlink() and parts[0] != "world":
            areas.setdefault("/".join(parts[:2]) if parts[0] == "lake" else parts[0], []).append(path)
    path = rng.choice(areas[rng.choice(sorted(areas))])
    data, how = damaged(path.read_bytes(), rng)
    path.write_bytes(data)
    what = f"{path.relative_to(below)}: {how}"

    reader = READERS[number % len(READERS)]
    code, output = ground.run(home, *reader)
    if "Traceback" in output:
        return Result(False, what, f"{' '.join(reader)} ends in a traceback: {shown(output)}")
    code, output = ground.run(home, "audit")
    if "Traceback" in output:
        return Result(False, what, f"audit ends in a traceback: {shown(output)}")
    if code != 0:
        # It may have to be mended by hand, if it says where and how.
        told = path.name in "".join(output.split()) or str(below) in "".join(output.split())
        return Result(told, what, "" if told else f"ends with {code} and names no file: {shown(output)}")
    try:
        numbers(home)
    except StorageError as error:
        # Nothing read it, so nothing met it: who reads it is told which file, and what to do.
        if path.name not in str(error) or "the next audit computes it again" not in str(error):
            return Result(False, what, f"is not named: {error}")
        code, output = ground.run(home, "audit")
        if code or "Traceback" in output:
            return Result(False, what, f"the next audit ends with {code}: {shown(output)}")
    wrong = differences(home, numbers(ground.reference))
    return Result(not wrong, what, wrong)


def in_the_sources(ground: Ground, rng: random.Random, name: str, number: int) -> Result:
    """Damage a few images or rows of a finished home's dataset: its next audit is that of a cold home."""
    faces = ground.folder / f"{name}-faces"
    shutil.rmtree(faces, ignore_errors=True)
    shutil.copytree(ensure("folder", ground.planted), faces)
    entry = yaml.safe_load((ground.reference.folder / "audit.yaml").read_text())["datasets"]["visitors"]
    changes = {"datasets": {"visitors": {**entry, "root": str(faces)}}}
    home, cold = ground.home(name, **changes), ground.home(f"{name}-cold", **changes)
    code, output = ground.run(home, "audit")
    assert code == 0, output
    whats = []
    for path in rng.sample(sorted(p for p in faces.rglob("*") if p.is_file()), k=3):
        data, how = damaged(path.read_bytes(), rng)
        path.write_bytes(data)
        whats.append(f"{path.name}: {how}")
    if number % 2:
        index = faces / "Verzeichnis.csv"
        data, how = damaged(index.read_bytes(), rng)
        index.write_bytes(data)
        whats.append(f"{index.name}: {how}")
    what = "; ".join(whats)
    outputs = [ground.run(one, "audit") for one in (home, cold)]
    shutil.rmtree(faces)
    for _, output in outputs:
        if "Traceback" in output:
            return Result(False, what, f"a traceback: {shown(output)}")
    # A cold audit of nothing but what is refused does not start (2); one of a home fails at the dataset (1).
    if bool(outputs[0][0]) != bool(outputs[1][0]):
        return Result(
            False, what, f"the home ends with {outputs[0][0]}, a cold one with {outputs[1][0]}: {shown(output)}"
        )
    if outputs[0][0] != 0:
        named = all(str(faces) in "".join(output.split()) or "visitors" in output for _, output in outputs)
        return Result(named, what, "" if named else f"names no place: {outputs[0][1][-800:]}")
    wrong = differences(home, numbers(cold)) or _unaccounted(home)
    shutil.rmtree(cold.folder, ignore_errors=True)
    return Result(not wrong, what, wrong)


def _unaccounted(home: Home) -> str:
    """Return which datasets have listed rows that are neither accepted nor quarantined."""
    lake, lost = home.workspace.lake, []
    for name in home.workspace.audit.datasets:
        if (records := lake.committed("records", partition=name)) is not None:
            parts = [lake.read_table(table, partition=name).height for table in ("records", "quarantine")]
            listed = records.details["listed"]
            lost += [f"{name}: {listed} listed, {sum(parts)} accepted or quarantined"] * (sum(parts) != listed)
    return "; ".join(lost)


# --- whatever a user may hand in

Handed = Callable[[Home, random.Random], str]


def _setting(path: tuple[str | int, ...], values: tuple[object, ...]) -> Handed:
    def change(home: Home, rng: random.Random) -> str:
        content = yaml.safe_load(home.workspace.audit_path.read_text())
        place, value = content, rng.choice(values)
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        home.workspace.audit_path.write_text(yaml.safe_dump(content, sort_keys=False))
        return f"{'.'.join(map(str, path))}: {str(value)[:60]!r}"

    return change


def _checkpoint(file: str, change: Callable[[bytes, random.Random], bytes]) -> Handed:
    def change_it(home: Home, rng: random.Random) -> str:
        folder = home.folder / "checkpoint"
        shutil.copytree(PROJECT / "plumbline/world/checkpoints" / ENCODER, folder)
        path = folder / file
        path.write_bytes(change(path.read_bytes(), rng))
        edited(home, encoders={ENCODER: {"address": f"local-dir:{folder}"}})
        return f"checkpoint's {file}: {change.__name__}"

    return change_it


def emptied(data: bytes, rng: random.Random) -> bytes:
    return b""


def halved(data: bytes, rng: random.Random) -> bytes:
    return data[: len(data) // 2]


def flipped(data: bytes, rng: random.Random) -> bytes:
    return damaged(data, rng)[0]


def with_a_false_header(data: bytes, rng: random.Random) -> bytes:
    return rng.randbytes(8) + data[8:]


def as_a_list(data: bytes, rng: random.Random) -> bytes:
    return b"[1, 2"


def _image(content: Callable[[random.Random], bytes], what: str) -> Handed:
    def put(home: Home, rng: random.Random) -> str:
        faces = home.folder / "faces"
        shutil.copytree(ensure("folder", SHARED["planted"]()), faces)
        content_ = yaml.safe_load(home.workspace.audit_path.read_text())
        content_["datasets"]["visitors"]["root"] = str(faces)
        home.workspace.audit_path.write_text(yaml.safe_dump(content_, sort_keys=False))
        path = rng.choice(sorted(faces.rglob("*.jpg")))
        path.write_bytes(content(rng))
        return f"image: {what}"

    return put


def _row(change: Callable[[str, random.Random], str], what: str) -> Handed:
    def put(home: Home, rng: random.Random) -> str:
        faces = home.folder / "faces"
        shutil.copytree(ensure("folder", SHARED["planted"]()), faces)
        content = yaml.safe_load(home.workspace.audit_path.read_text())
        content["datasets"]["visitors"]["root"] = str(faces)
        home.workspace.audit_path.write_text(yaml.safe_dump(content, sort_keys=False))
        index = faces / "Verzeichnis.csv"
        lines = index.read_text("utf-8").splitlines()
        at = rng.randrange(1, len(lines))
        lines[at] = change(lines[at], rng)
        index.write_bytes("\n".join(lines).encode("utf-8", "surrogateescape"))
        return f"row {at + 1} of the index: {what}"

    return put


HANDED: tuple[Handed, ...] = (
    *(
        _setting(path, values)
        for path, values in {
            ("title",): ("", "x" * 10_000, "\x1b[31mred", "=cmd()", "<script>alert(1)</script>", None, 5, ["a"]),
            ("labeller",): ("nobody", None, 3, "../..", "a b"),
            ("devices",): (0, -1, 1_000_000, "many", 1.5, None),
            ("storage", "shard_rows"): (0, -5, 10**12, "ten", 1.5),
            ("storage", "root"): ("/proc/nothing", "s3://", "nowhere://x", "", "~nosuchuser/x", "a\0b"),
            ("statistics", "resamples"): (0, -1, 10**9, "x", 1.5, True),
            ("statistics", "permutations"): (0, -1, 10**9, "x"),
            ("statistics",): ({"confidence": 2}, {"confidence": 0}, {"seed": "a"}, {"alpha": 1}, [], "fast"),
            ("datasets", "visitors", "reader"): ("nobody", "", None, "folder ", 4),
            ("datasets", "visitors", "root"): ("/nowhere", "", "planted:nothing", "planted:", "/etc/passwd", None),
            ("datasets", "visitors", "map", "index"): ("nothing.csv", "../../../etc/passwd", "/etc/passwd", "", "."),
            ("datasets", "visitors", "map", "path"): ("Nichts", "", None),
            ("datasets", "visitors", "map", "columns"): ({}, {"race": "Nichts"}, {"nobody": "Datei"}, []),
            ("datasets", "visitors", "balance"): ({"race": [0.9, 0.1]}, {"race": [2, 3]}, {"x": [0, 1]}, {"race": 1}),
            ("encoders", ENCODER, "address"): (
                "local-dir:/nowhere",
                "hub:x",
                "nonsense",
                "",
                "local-dir:/etc",
                "local-dir:",
                "open_clip:nothing/x",
            ),
            ("mitigations", "logit_adjustment", "method"): ("magic", "", None, "orthogonal_projection"),
            ("audit",): ([], [{}], [{"suites": []}], [{"suites": ["nothing"]}], "all", [{"datasets": ["x"]}]),
            ("lvlms", "model", "address"): ("local-dir:/nowhere", "", "http://x", f"local-dir:{PROJECT}/docs"),
            ("generation", "decoding"): ({"max_new_tokens": 0}, {"temperature": -1}, {"nothing": 1}, {"top_p": 5}),
            ("generate",): ([{}], [{"lvlms": ["x"]}], "all", [{"lvlms": ["model"], "datasets": ["nobody"]}]),
        }.items()
    ),
    *(
        _checkpoint(file, change)
        for file, changes in {
            "open_clip_config.json": (emptied, halved, flipped, as_a_list),
            "open_clip_model.safetensors": (emptied, halved, flipped, with_a_false_header),
        }.items()
        for change in changes
    ),
    *(
        _image(content, what)
        for what, content in {
            "empty": lambda rng: b"",
            "text": lambda rng: b"no picture at all",
            "noise after a JPEG's head": lambda rng: b"\xff\xd8\xff\xe0" + rng.randbytes(500),
            "one pixel": lambda rng: encoded(Image.new("RGB", (1, 1)), "PNG"),
            "a page": lambda rng: b"<html><script>alert(1)</script>",
            "a huge size said": lambda rng: (
                b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + b"\x7f\xff\xff\xff" * 2 + b"\x08\x02"
            ),
            "a program": lambda rng: b"\x7fELF" + rng.randbytes(300),
        }.items()
    ),
    *(
        _row(change, what)
        for what, change in {
            "empty": lambda line, rng: "",
            "a quote left open": lambda line, rng: '"' + line,
            "too many fields": lambda line, rng: line + ",x" * 40,
            "too few fields": lambda line, rng: line.split(",")[0],
            "a path that leads out": lambda line, rng: "../../../etc/passwd" + line[line.index(",") :],
            "bytes that are no text": lambda line, rng: "\udcff\udcfe" + line,
            "a formula": lambda line, rng: "=cmd|' /C calc'!A0" + line[line.index(",") :],
            "control characters": lambda line, rng: "\x1b[2J\u202e" + line,
            "a long field": lambda line, rng: "x" * 200_000 + line[line.index(",") :],
            "a doubled row": lambda line, rng: line + "\n" + line,
            "an unknown group": lambda line, rng: line.replace(",", ",unbekannt", 1),
        }.items()
    ),
)
"""Everything that is handed in; each several times, with other values and places."""


def handed_in(ground: Ground, rng: random.Random, name: str, number: int) -> Result:
    """Hand in something wrong: it is refused with its place, or left out with a reason."""
    home = ground.home(name)
    try:
        what = HANDED[number % len(HANDED)](home, rng)
    except KeyError:  # a setting of the other
        home = ground.home(name, which="generator")
        what = HANDED[number % len(HANDED)](home, rng)
    code, output = ground.run(home, "audit")
    plain = "".join(output.split())
    if "Traceback" in output:
        return Result(False, what, f"a traceback: {shown(output)}")
    if code == 0:
        unaccounted = _unaccounted(home)
        return Result(not unaccounted, what, unaccounted)
    if code not in (1, 2):
        return Result(False, what, f"ends with {code}: {shown(output)}")
    names = any(part in plain for part in (str(home.folder), "audit.yaml", "visitors", ENCODER))
    says = "expected" in output or "found" in output
    return Result(
        names and says, what, "" if names and says else f"says no place, or not what it found: {shown(output)}"
    )
