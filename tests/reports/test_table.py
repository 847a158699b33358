from tides.reports.table import Table

TABLE = Table(["model", "Δ=1"], [["a<b", "1.5\n[1–2]"], ["longer", "20"]], "Errors & more")


def test_html_escapes_and_sets_notes_small() -> None:
    text = TABLE.to_html()
    assert "<td>a&lt;b</td>" in text
    assert '<td>1.5<span class="note">[1–2]</span></td>' in text
    assert "<caption>Errors &amp; more</caption>" in text


def test_csv_keeps_one_line_per_row() -> None:
    assert TABLE.to_csv() == "model,Δ=1\na<b,1.5 [1–2]\nlonger,20\n"


def test_text_aligns_numbers_and_puts_notes_below() -> None:
    assert TABLE.to_text().splitlines() == ["model     Δ=1", "a<b       1.5", "        [1–2]", "longer     20"]
