"""A large report is drawn in several processes, and is the same to the byte."""

from plumbline.report import drawing_apart, render


def test_a_report_drawn_side_by_side_is_the_same(table, inputs, page, monkeypatch):
    started = []
    pool = drawing_apart.ProcessPoolExecutor
    monkeypatch.setattr(drawing_apart, "LARGE", 0)
    monkeypatch.setattr(drawing_apart, "usable_cores", lambda: 2)
    monkeypatch.setattr(
        drawing_apart, "ProcessPoolExecutor", lambda *a, **k: started.append(a[0]) or pool(*a, **k)
    )
    assert render(table, inputs) == page
    assert started == [2]


def test_a_small_report_starts_no_process(table, inputs, page, monkeypatch):
    monkeypatch.setattr(drawing_apart, "ProcessPoolExecutor", None)
    assert table.height < drawing_apart.LARGE and render(table, inputs) == page
