from tides.reports import zoo
from tides.reports.page import Image, picture
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


def test_markdown_and_latex() -> None:
    table = Table(["model", "a_b"], [["TIDES_Λ", "1.0 ± 0.1\n5 % | rest"]], "Caption & all.")
    assert table.to_markdown() == (
        "Caption & all.\n\n| model | a_b |\n| --- | --- |\n| TIDES_Λ | 1.0 ± 0.1<br>5 % \\| rest |\n"
    )
    latex = table.to_latex()
    assert r"\caption{Caption \& all.}" in latex
    assert r"model & a\_b \\" in latex
    assert r"TIDES\_$\Lambda$ & 1.0 $\pm$ 0.1 {\scriptsize 5 \% | rest} \\" in latex
    assert latex.count(r"\begin{") == latex.count(r"\end{") == 2


def test_words_between_backticks_are_code() -> None:
    table = Table(["a"], [["1.0\n`walker` splits"]], "On `r<s` splits.")
    assert "<caption>On <code>r&lt;s</code> splits.</caption>" in table.to_html()
    assert '<span class="note"><code>walker</code> splits</span>' in table.to_html()
    assert r"{\scriptsize \texttt{walker} splits}" in table.to_latex()
    assert "<figcaption>In <code>steps</code></figcaption>" in picture(Image("data:", 5.0), "a", "In `steps`")
    assert "<td>a`b</td>" in Table(["a"], [["a`b"]]).to_html()


def test_latex_knows_every_letter_of_the_tables() -> None:
    """What `inputenc` does not: Greek and mathematics."""
    rows = [[fact["what"], fact["when"]] for fact in zoo.facts()]
    latex = Table(["error ÷ best", "Δ √ ≈ →"], rows, "λ = exp(−e^ν + ie^θ), δ, Λ, …").to_latex()
    assert not {letter for letter in latex if ord(letter) > 0xFF}
