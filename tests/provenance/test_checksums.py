"""The checksum file of an exported audit: what it notices, and that other programs read it."""

import os
import shutil
import subprocess

import pytest
from typer.testing import CliRunner

from orchestration.command_line import app
from plumbline.errors import StorageError
from plumbline.provenance.forms import CHECKSUMS, verify_folder, write_checksums


@pytest.fixture
def bundle(tmp_path):
    folder = tmp_path / "bundle"
    (folder / "cards").mkdir(parents=True)
    (folder / "table.csv").write_bytes(b"a,b\n1,2\n")
    (folder / "cards" / "clip b32.md").write_text("# card")
    write_checksums(folder)
    return folder


def test_an_untouched_bundle_passes_also_when_it_is_moved(bundle, tmp_path):
    moved = bundle.rename(tmp_path / "elsewhere")
    verdict = verify_folder(moved)
    assert verdict.passed and verdict.sound == 2


def test_a_flipped_bit_is_noticed(bundle):
    data = bytearray((bundle / "table.csv").read_bytes())
    data[3] ^= 1
    (bundle / "table.csv").write_bytes(data)
    verdict = verify_folder(bundle)
    assert verdict.changed == ("table.csv",) and not verdict.missing and not verdict.extra and not verdict.passed


def test_missing_and_extra_files_are_named(bundle):
    (bundle / "cards" / "clip b32.md").unlink()
    (bundle / "cards" / "more.md").write_text("new")
    verdict = verify_folder(bundle)
    assert verdict.missing == ("cards/clip b32.md",) and verdict.extra == ("cards/more.md",)
    assert verdict.sound == 1 and not verdict.passed


@pytest.mark.parametrize(
    "line", ["nonsense", f"{'0' * 64}  ../outside", f"{'0' * 64}  /etc/passwd", f"{'0' * 63}  short"]
)
def test_a_line_that_is_none_is_refused(bundle, line):
    with (bundle / CHECKSUMS).open("a") as file:
        file.write(line + "\n")
    with pytest.raises(StorageError, match="no line of a checksum file"):
        verify_folder(bundle)


@pytest.mark.parametrize("make", [lambda path: path.symlink_to("/dev/zero"), os.mkfifo], ids=["link", "pipe"])
def test_what_is_no_file_is_refused_and_never_read(bundle, make):
    make(bundle / "cards" / "z")
    with (bundle / CHECKSUMS).open("a") as file:
        file.write(f"{'0' * 64}  cards/z\n")
    with pytest.raises(StorageError, match=r"no plain file: 'cards/z'"):
        verify_folder(bundle)


@pytest.mark.parametrize("make", [lambda path: path.symlink_to("/dev/zero"), os.mkfifo], ids=["link", "pipe"])
def test_a_checksum_file_that_is_none_is_never_read(bundle, make):
    (bundle / CHECKSUMS).unlink()
    make(bundle / CHECKSUMS)
    with pytest.raises(StorageError, match=rf"no plain file: '{CHECKSUMS}'"):
        verify_folder(bundle)


def test_a_folder_without_checksums_is_refused(tmp_path):
    with pytest.raises(StorageError, match="no checksum file"):
        verify_folder(tmp_path)


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="no sha256sum here")
def test_sha256sum_reads_it(bundle):
    checked = ["sha256sum", "--check", "--strict", CHECKSUMS]
    assert subprocess.run(checked, cwd=bundle, capture_output=True).returncode == 0
    (bundle / "table.csv").write_bytes(b"other")
    assert subprocess.run(checked, cwd=bundle, capture_output=True).returncode == 1


def test_the_command_puts_its_verdict_on_stdout(bundle):
    ran = CliRunner().invoke(app, ["verify", str(bundle)])
    assert (ran.exit_code, ran.stdout) == (0, "As it was exported: 2 file(s) are the same.\n")
    (bundle / "table.csv").write_text("another")
    (bundle / "[red]more").touch()
    ran = CliRunner().invoke(app, ["verify", str(bundle)])
    assert ran.exit_code == 1 and not ran.stderr
    assert ran.stdout.splitlines() == [
        "changed: table.csv",
        "extra: [red]more",
        "Not as it was exported, 1 changed, 1 extra: 1 file(s) are the same.",
    ]


def test_a_folder_of_any_depth_is_compared(bundle):
    here = os.open(bundle, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(1200):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY | os.O_DIRECTORY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("deep", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)
    try:
        assert verify_folder(bundle).extra == ("d/" * 1200 + "deep",)
    finally:
        subprocess.run(["rm", "-r", bundle], check=True)  # shutil.rmtree, as pytest cleans up, ends at this depth


def test_a_file_that_is_named_twice_is_refused(bundle):
    listed = (bundle / CHECKSUMS).read_text()
    (bundle / CHECKSUMS).write_text(listed.replace(listed[:64], "0" * 64, 1) + listed)
    with pytest.raises(StorageError, match=r"names a file twice[\s\S]*SHA256SUMS:3"):
        verify_folder(bundle)


def test_a_list_of_no_file_is_refused(tmp_path):
    (tmp_path / CHECKSUMS).touch()
    with pytest.raises(StorageError, match="names no file"):
        verify_folder(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root lists every folder")
def test_a_folder_that_cannot_be_listed_is_not_taken_for_an_empty_one(bundle):
    (bundle / "shut").mkdir(mode=0)
    with pytest.raises(StorageError, match="cannot be listed"):
        verify_folder(bundle)
