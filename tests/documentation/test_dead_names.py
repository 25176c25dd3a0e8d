"""Nothing of the program is dead; a name that is not used anywhere is found, and one that templates use is not."""

import pytest

from documentation import dead_names


def test_a_name_without_a_use_is_dead_and_one_in_a_template_is_not(tmp_path, monkeypatch):
    package = tmp_path / "house"
    package.mkdir()
    (package / "rooms.py").write_text("class Lost: ...\n\n\nclass Found: ...\n\n\nclass Shown:\n    colour = 1\n")
    (package / "doors.py").write_text('TABLE = {"a": "rooms:Found", "b": "Shown"}\nprint(TABLE)\n')
    (tmp_path / "plumbline").mkdir()
    (tmp_path / "plumbline" / "page.jinja").write_text("<p>{{ room.colour }}</p>")
    monkeypatch.setattr(dead_names, "PROJECT", tmp_path)
    monkeypatch.setattr(dead_names, "PACKAGES", ("house",))
    monkeypatch.setattr(dead_names, "ALIVE", {"alive": "called by another program"})
    assert dead_names.dead_names() == ["house/rooms.py:1: unused class 'Lost'"]
    with pytest.raises(
        SystemExit, match=r"unused class 'Lost'\nRemove each name, or list it in ALIVE of documentation/"
    ):
        dead_names.main()
