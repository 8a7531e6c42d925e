"""The page of an evaluation: what stands on it, that it is safe, and how it looks in a real browser."""

import re

import numpy as np
import pytest

import equable
from equable.deploy.evaluation import evaluate_files
from equable.deploy.evaluation_page import evaluation_page, write_page
from equable.reports.figures.panels import give_looks
from equable.reports.page import render_page
from planted import make_incremental
from reports import test_page_browser as shown

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")
browser = shown.browser
OUTPUTS = "odd <b>&$x$.npz"


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Tasks, one batch for all, and no calibrator at all."""
    folder = tmp_path_factory.mktemp("pages")
    buffer, test = make_incremental(seed=1), make_incremental(n_per_class=60, seed=2)
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
        "tasks": evaluate_files(folder / OUTPUTS, calibrators, n_bootstrap=50),
        "batches": evaluate_files(folder / "flat.npz", calibrators[2:3], "16", n_bootstrap=0),
        "plain": evaluate_files(folder / "flat.npz", n_bootstrap=40),
    }
    made = {name: evaluation_page(evaluation) for name, evaluation in found.items()}
    for name, page in made.items():
        (folder / f"{name}.html").write_text(render_page(page), encoding="utf-8")
    return folder, found, made


@pytest.mark.parametrize(
    ("which", "sections"),
    [
        ("tasks", ["result", "noise", "tasks", "reliability", "referral", "files", "recompute"]),
        ("batches", ["result", "temperatures", "reliability", "referral", "files", "recompute"]),
        ("plain", ["result", "reliability", "referral", "files", "recompute"]),
    ],
)
def test_sections(pages, which, sections):
    assert [section.key for section in pages[2][which].sections] == sections


def test_a_reliability_figure_for_each_calibrator_and_one_of_referral(pages):
    by_key = {section.key: section for section in pages[2]["tasks"].sections}
    assert len(by_key["reliability"].figures) == 4
    drawn = str(by_key["reliability"].figures[0].svg)
    plain, rc = pages[1]["tasks"].methods[:2]
    for before, after in zip(plain.views, rc.views, strict=True):
        assert f"{before.name}: {100 * before.ece:.1f} → {100 * after.ece:.1f} %" in drawn
    assert len(by_key["referral"].figures) == 1
    # ETS has no temperature to draw
    assert "ETS" not in str(by_key["tasks"].figures[0].svg)


def test_the_page_is_safe_and_the_same_each_time(pages):
    folder, found, _ = pages
    text = (folder / "tasks.html").read_text(encoding="utf-8")
    assert "<b>" not in text
    assert "odd &lt;b&gt;&amp;$x$.npz" in text
    assert not re.search(r'(src|href)="(?!#|data:)', text)
    assert str(folder) not in text
    write_page(found["plain"], folder / "again.html")
    assert (folder / "again.html").read_bytes() == (folder / "plain.html").read_bytes()


def test_receipts_name_files_digests_and_the_command(pages):
    facts, recompute = pages[2]["tasks"].sections[-2:]
    named = dict(facts.facts)
    assert named["rc.safetensors"] == "ts: loss = nll, prior_strength = 0.1"
    assert len(named["outputs, SHA-256"]) == 64
    assert "'odd <b>&$x$.npz'" in recompute.code
    assert "--groups tasks --bins 10 --bootstrap 50 --html page.html" in recompute.code


def test_looks_are_told_apart():
    looks = give_looks(["uncalibrated", "dats", "dats", "dats", "arc", "mine", "mine"])
    assert len(set(looks)) == 7
    assert len({look.color for look in looks}) >= 6
    assert len(give_looks(["mine"] * 50)) == 50


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
        eces = {method.label: method.views[index].ece for method in pages[1]["tasks"].methods}
        assert np.all(np.diff([eces[label] for label in labels]) >= 0)
