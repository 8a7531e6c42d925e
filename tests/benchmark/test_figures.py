"""Figures: there, well-formed, the same bytes every time, and honest about what they draw."""

from __future__ import annotations

import re
import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pytest

from equable.benchmark.figures import build_plots, render, worst_plot
from equable.benchmark.figures.curves import mean_referral, pooled_reliability
from equable.benchmark.figures.style import DARK, LOOKS, drawing, label_ends, new_figure, to_svg
from equable.benchmark.figures.tasks import draw_worst
from equable.benchmark.results import load_results
from planted_run import make_run, make_score

NAMES = {
    "worst_change",
    "confidence",
    "ideal_temperature",
    "learned_temperature",
    "reliability_dats",
    "reliability_rc",
    "referral",
    "ablation_coverage",
    "ablation_choices",
    "runtime",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("figures"))


@pytest.fixture(scope="module")
def run(folder):
    return load_results(folder)


@pytest.fixture(scope="module")
def drawn(run):
    return {plot.name: render(plot, "svg") for plot in build_plots(run)}


def test_every_figure_is_there(drawn):
    assert set(drawn) == NAMES


def test_the_same_results_give_the_same_bytes(folder, drawn):
    again = {plot.name: render(plot, "svg") for plot in build_plots(load_results(folder))}
    assert again == drawn


def test_png_too(run):
    plot = worst_plot([run])
    png = render(plot, "png")
    assert png.startswith(b"\x89PNG")
    assert png == render(plot, "png")


@pytest.mark.parametrize("name", sorted(NAMES))
def test_svg_is_well_formed_text_that_adapts_to_the_dark(drawn, name):
    text = drawn[name].decode()
    root = ElementTree.fromstring(text)
    words = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert words, "text must stay text"
    assert "prefers-color-scheme:dark" in text
    assert "<dc:date>" not in text
    # A colour outside the palette would not be exchanged in the dark.
    body = re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL)
    assert set(re.findall(r"#[0-9a-f]{6}\b", body)) <= set(DARK)


def test_words_of_a_figure_hold_its_numbers(run):
    alt = {plot.name: plot.alt for plot in build_plots(run)}
    assert "RC +8.0" in alt["worst_change"]
    assert "DATS −2.0" in alt["worst_change"]
    assert "one for all tasks: 3.00" in alt["ideal_temperature"]
    assert all(plot.caption.endswith(".") for plot in build_plots(run))


def test_worst_change_bars_are_the_planted_numbers(run):
    with drawing():
        (axes,) = draw_worst([run]).axes
    widths = {
        label.get_text(): bar.get_width()
        for label, bar in zip(axes.get_yticklabels(), axes.patches, strict=True)
    }
    assert widths == pytest.approx({"TS": -1.0, "RC": 8.0, "T-CIL": 7.0, "DATS": -2.0})
    hatched = [bool(bar.get_hatch()) for bar in axes.patches]
    assert hatched == [False, True, True, False]  # harm is told by more than colour


def test_several_runs_share_one_figure(run, tmp_path):
    other = load_results(make_run(tmp_path, name="Other"))
    plot = worst_plot([run, other])
    text = render(plot, "svg").decode()
    assert "Planted" in text
    assert "Other" in text


def test_a_title_cannot_break_a_figure(tmp_path):
    name = "<b>$x_1$ & %"
    runs = [load_results(make_run(tmp_path / c, name=name)) for c in "ab"]
    text = render(worst_plot(runs), "svg").decode()
    words = [e.text or "" for e in ElementTree.fromstring(text).iter("{http://www.w3.org/2000/svg}text")]
    assert any(name in word for word in words)


def test_one_seed_and_two_tasks_can_be_drawn(tmp_path):
    run = load_results(make_run(tmp_path, seeds=(0,), tasks=2, half_width=None))
    for plot in build_plots(run):
        assert render(plot, "svg")


def test_reliability_pools_seeds_by_their_rows():
    one, two = make_score(0, 0, "rc"), make_score(1, 0, "rc")
    two.reliability[0]["accuracy"][9] = 0.0
    two.reliability[0]["count"][9] = 300
    count, confidence, accuracy = pooled_reliability([one, two], 0)
    assert count.tolist() == [20, 40, 60, 80, 1200]
    assert confidence[-1] == pytest.approx(0.95)
    assert accuracy[-1] == pytest.approx(0.85 * 900 / 1200)


def test_referral_is_interpolated_and_averaged():
    error = mean_referral([make_score(0, 0, "rc")], -1)
    assert error[-1] == pytest.approx(0.3)
    assert np.all(np.diff(error) >= 0)


def test_labels_at_line_ends_do_not_overlap():
    with drawing():
        figure, (axes,) = new_figure(3)
        axes.set(xlim=(0, 1), ylim=(0, 1))
        label_ends(axes, [(1, 0.5, "a", "#0072b2"), (1, 0.51, "b", "#0072b2"), (1, 0.99, "c", "#0072b2")])
        heights = sorted(text.get_position()[1] for text in axes.texts)
        assert np.diff(heights).min() > 0.07
        assert to_svg(figure)


def test_looks_differ_in_more_than_colour():
    shapes = [(look.marker, look.line) for look in LOOKS.values() if look.color == LOOKS["ts"].color]
    assert len(set(shapes)) == len(shapes)


def test_reporting_imports_neither_torch_nor_matplotlib():
    code = (
        "import sys, equable.benchmark.report\n"
        "loaded = {'torch', 'matplotlib', 'jinja2', 'equable.training'} & set(sys.modules)\n"
        "assert not loaded, loaded"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
