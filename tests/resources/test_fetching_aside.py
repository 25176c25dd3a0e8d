"""Folders that are built aside: resumed by commit, cleared of others, in their place whole or not at all."""

import pytest

from resources.fetching_aside import built_aside, settle

FIRST, SECOND = "a" * 40, "b" * 40


def build(folder, commit, name, *, fails=False):
    with built_aside(folder, commit) as made:
        (made / name).write_text(commit)
        if fails:
            raise KeyboardInterrupt


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_an_interrupted_commit_is_gone_on_with_and_another_one_starts_afresh(tmp_path):
    folder = tmp_path / "n"
    for commit, expected in ((FIRST, ["one", "two"]), (SECOND, ["two"])):
        with pytest.raises(KeyboardInterrupt):
            build(folder, FIRST, "one", fails=True)
        build(folder, commit, "two")
        assert names(folder) == expected
        assert names(tmp_path) == ["n"]


def test_leftovers_of_other_folders_stay(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "n.m", FIRST, "one", fails=True)
    build(tmp_path / "n", SECOND, "two")
    assert names(tmp_path) == [f".n.m.{FIRST}.unfinished", "n"]


def test_the_notes_of_the_hubs_client_do_not_come_along(tmp_path):
    with built_aside(tmp_path / "n", FIRST) as made:
        (made / ".cache" / "huggingface").mkdir(parents=True)
        (made / "one").write_text("")
    assert names(tmp_path / "n") == ["one"]


@pytest.mark.parametrize(
    ("there", "expected"), [([], []), (["n"], ["n"]), ([".n.replaced"], ["n"]), (["n", ".n.replaced"], ["n"])]
)
def test_a_swap_that_was_broken_off_is_finished_or_undone(tmp_path, there, expected):
    for name in there:
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_text("")
    settle(tmp_path / "n")
    assert names(tmp_path) == expected
    assert not expected or names(tmp_path / "n") == there[:1]
