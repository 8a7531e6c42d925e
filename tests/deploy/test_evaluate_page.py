"""The page of an evaluation: its contents, its safety, and its layout in a real browser."""

import re

import numpy as np
import pytest

import equable
from equable.deploy.evaluate_file import evaluate_file
from equable.reports.page import file_page
from planted import make_incremental
from reports import test_page_browser as shown

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")
browser = shown.browser
OUTPUTS = "odd <b>&$x$.npz"


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Pages of outputs with tasks, of one batch of all rows, and without a calibrator."""
    folder = tmp_path_factory.mktemp("pages")
    buffer = make_incremental(seed=1)
    test = make_incremental(n_per_class=60, seed=2)
    outputs = equable.Outputs(test.logits, test.y, test.features, test.tasks)
    outputs.save(folder / OUTPUTS)
    equable.Outputs(test.logits, test.y, test.features).save(folder / "flat.npz")
    made = {"rc": equable.TemperatureScaling(), "ets": equable.EnsembleTemperatureScaling()}
    made |= {"dats": equable.DATS(), "dats_half_a_very_long_name_of_a_file": equable.DATS(coverage=0.5)}
    for name, calibrator in made.items():
        calibrator.fit(buffer.logits, buffer.y, features=buffer.features, tasks=buffer.tasks)
        calibrator.save(folder / f"{name}.safetensors")
    calibrators = [folder / f"{name}.safetensors" for name in made]
    found = {
        "tasks": evaluate_file(folder / OUTPUTS, calibrators, n_bootstrap=50),
        "batches": evaluate_file(folder / "flat.npz", calibrators[2:3], "16", n_bootstrap=0),
        "plain": evaluate_file(folder / "flat.npz", n_bootstrap=40),
    }
    made = {name: file_page(evaluation.results) for name, evaluation in found.items()}
    for name, page in made.items():
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
    return folder, found, made


@pytest.mark.parametrize(
    ("which", "sections"),
    [
        ("tasks", ["result", "noise", "tasks", "reliability", "referral", "files"]),
        ("batches", ["result", "reliability", "referral", "files"]),
        ("plain", ["result", "noise", "reliability", "referral", "files"]),
    ],
)
def test_sections(pages, which, sections):
    assert re.findall(r'<section id="([^"]+)"', pages[2][which]) == sections


def section_of(page, key):
    return page.split(f'<section id="{key}"')[1].split("</section>")[0]


def test_a_reliability_figure_for_each_calibrator_and_one_of_referral(pages):
    page = pages[2]["tasks"]
    reliability = section_of(page, "reliability")
    assert reliability.count("<figure>") == 4
    plain, rc, *_ = pages[1]["tasks"].to_dict()["methods"]
    for before, after in zip(plain["views"], rc["views"], strict=True):
        assert f"{before['name']}: {100 * before['ece']:.1f} → {100 * after['ece']:.1f} %" in reliability
    assert section_of(page, "referral").count("<figure>") == 1
    figure = section_of(page, "tasks").split("<figure>")[1]
    assert "DATS (dats)" in figure
    assert "ETS" not in figure  # it has no temperature to draw


def test_the_page_is_safe_and_the_same_each_time(pages):
    folder, found, made = pages
    text = made["tasks"]
    assert "<b>" not in text
    assert "odd &lt;b&gt;&amp;$x$.npz" in text
    assert not re.search(r'(src|href)="(?!#|data:)', text)
    assert str(folder) not in text
    assert file_page(found["plain"].results) == made["plain"]


def test_sentences_of_a_run_are_not_on_the_page_of_a_file(pages):
    for text in pages[2].values():
        plain = re.sub(r"<svg.*?</svg>|<style>.*?</style>|<script.*?</script>", "", text, flags=re.DOTALL)
        assert not re.search(r"\bseeds?\b|\bpaper", plain)
    assert "Intervals are for one task alone" in section_of(pages[2]["tasks"], "tasks")
    assert "Intervals are for one task alone" not in pages[2]["plain"]


def test_receipts_name_files_and_digests(pages):
    files = section_of(pages[2]["tasks"], "files")
    assert "ts, loss = nll, prior_strength = 0.1" in files
    assert pages[1]["tasks"].facts["sha256"] in files
    assert "odd &lt;b&gt;&amp;$x$.npz" in files


@pytest.mark.browser
@pytest.mark.parametrize("which", ["tasks", "batches", "plain"])
@pytest.mark.parametrize("width", [320, 400, 1200])
def test_it_is_quiet_and_nothing_overflows(browser, pages, which, width):
    shown.show(browser, pages[0] / f"{which}.html", width)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.execute_script(shown.OUTSIDE) == []
    assert browser.get_log("browser") == []
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0


@pytest.mark.browser
def test_sorting_stays_within_a_task(browser, pages):
    shown.show(browser, pages[0] / "tasks.html")
    cells = browser.find_elements("css selector", "#table-tasks thead th")
    button = next(c for c in cells if c.text.startswith("ECE")).find_element("tag name", "button")
    browser.execute_script("arguments[0].click()", button)
    order = browser.execute_script(shown.FIRST_COLUMN.replace("#table-main", "#table-tasks"))
    for index, labels in enumerate(order):
        methods = pages[1]["tasks"].to_dict()["methods"]
        eces = {method["method"]: method["views"][index]["ece"] for method in methods}
        assert np.all(np.diff([eces[label] for label in labels]) >= 0)
