"""Figures: all are drawn, well-formed and deterministic, and show the planted numbers."""

from __future__ import annotations

import re
import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pytest

from equable.benchmark.methods import METHODS
from equable.reports.figures import build_plots, worst_plot
from equable.reports.figures.reliability import mean_referral, pooled_reliability
from equable.reports.figures.style import (
    DARK,
    OTHER_STYLE,
    PAPER,
    STYLES,
    drawing,
    new_figure,
    styles_of,
    temperature_axis,
    to_svg,
)
from equable.reports.figures.tasks import draw_confidence, draw_learned_temperature, draw_worst
from equable.reports.results import load_results
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
    return {plot.name: plot.svg for plot in build_plots(run)}


def test_every_figure_is_there(drawn):
    assert set(drawn) == NAMES


def test_the_same_results_give_the_same_bytes(folder, drawn):
    """Drawing is deterministic: two drawings of this test are compared, and none with stored bytes."""
    again = {plot.name: plot.svg for plot in build_plots(load_results(folder))}
    assert again == drawn


@pytest.mark.parametrize("name", ["worst_change", "learned_temperature", "referral", "runtime"])
def test_svg_is_well_formed_text_that_adapts_to_the_dark(drawn, name):
    text = drawn[name]
    root = ElementTree.fromstring(text)
    words = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert words, "text must stay text"
    assert "prefers-color-scheme:dark" in text
    assert "<dc:date>" not in text
    # A colour outside the palette would not be exchanged in the dark.
    body = re.sub(r"<style[^>]*>.*?</style>", "", text, flags=re.DOTALL)
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
    assert hatched == [False, True, True, False]  # harm is shown by a hatch, not by colour alone


def test_confidence_stands_beside_the_accuracy_of_the_same_predictions(run, tmp_path):
    with drawing():
        (axes,) = draw_confidence(run).axes
        (own,) = draw_confidence(load_results(make_run(tmp_path, changes={"taskmix": (-0.25, -0.03)}))).axes
    lines = {line.get_label(): list(line.get_ydata()) for line in axes.lines}
    assert lines["accuracy"] == pytest.approx([60, 65, 70])
    lines = {line.get_label(): list(line.get_ydata()) for line in own.lines}
    assert lines["accuracy, uncalibrated"] == pytest.approx([60, 65, 70])
    assert lines["accuracy, TaskMix"] == pytest.approx([80, 85, 90])
    confidence = {c.get_label(): list(c.lines[0].get_ydata()) for c in own.containers}
    assert confidence["confidence, TaskMix"] == pytest.approx([80, 80, 80])


def test_several_runs_share_one_figure(run, tmp_path):
    other = load_results(make_run(tmp_path, name="Other"))
    plot = worst_plot([run, other])
    text = plot.svg
    assert "Planted" in text
    assert "Other" in text


def test_a_title_cannot_break_a_figure(tmp_path):
    name = "<b>$x_1$ & %"
    runs = [load_results(make_run(tmp_path / c, name=name)) for c in "ab"]
    text = worst_plot(runs).svg
    words = [e.text or "" for e in ElementTree.fromstring(text).iter("{http://www.w3.org/2000/svg}text")]
    assert any(name in word for word in words)


def test_one_seed_and_two_tasks_can_be_drawn(tmp_path):
    run = load_results(make_run(tmp_path, seeds=(0,), tasks=2, half_width=None))
    for plot in build_plots(run):
        assert plot.svg


def test_reliability_pools_seeds_by_their_rows():
    one = make_score(0, 0, "rc")
    two = make_score(1, 0, "rc")
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


def test_ids_and_alt_text_of_a_figure_are_its_own():
    with drawing():
        figure, (axes,) = new_figure(2)
        axes.plot([1, 2], [3, 4], marker="o")
        one, two = (to_svg(figure, name, 'Says "1 < 2".') for name in ("one", "two"))
    assert ElementTree.fromstring(one).get("aria-label") == 'Says "1 < 2".'
    ids = [set(re.findall(r' id="([^"]+)"', text)) for text in (one, two)]
    assert ids[0].isdisjoint(ids[1])
    assert set(re.findall(r"#(one-[\w.]+)", one)) <= ids[0]
    assert "url(#one-" in one


# Looks ----------------------------------------------------------------------------------------------

RANKED = [name for name, method in METHODS.items() if not (method.variant or method.oracle)]
ORACLES = [name for name, method in METHODS.items() if method.oracle]


@pytest.mark.parametrize("part", ["color", "marker"])
def test_every_method_that_is_drawn_has_a_colour_and_a_marker_of_its_own(part):
    assert set(STYLES) == {*RANKED, *ORACLES}  # variants are in tables alone
    found = [getattr(style, part) for style in (*STYLES.values(), OTHER_STYLE)]
    assert len(set(found)) == len(found)


def test_methods_without_a_style_get_distinct_ones():
    methods = ["uncalibrated", "dats", "DATS 2", "DATS 3", "arc", "mine", "mine 2"]
    found = styles_of(methods, {"DATS 2": "dats", "DATS 3": "dats", "mine 2": "mine"})
    assert len(set(found.values())) == 7
    assert len({style.color for style in found.values()}) == 7
    assert len(styles_of([f"mine {i}" for i in range(50)])) == 50


def linear_light(color):
    """Red, green and blue as amounts of light in [0, 1] (sRGB)."""
    coded = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(coded <= 0.04045, coded / 12.92, ((coded + 0.055) / 1.055) ** 2.4)


def contrast(one, other):
    """WCAG 2: relative luminance plus glare of the lighter over that of the darker."""
    darker, lighter = sorted(linear_light(color) @ (0.2126, 0.7152, 0.0722) + 0.05 for color in (one, other))
    return lighter / darker


def test_contrast_is_that_of_wcag():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#ffffff", "#767676") == pytest.approx(4.54, abs=0.005)  # the known grey of 4.5:1


def test_lines_are_seen_on_both_grounds():
    for style in (*STYLES.values(), OTHER_STYLE):
        assert contrast(style.color, PAPER) >= 3, style
        assert contrast(DARK[style.color], DARK[PAPER]) >= 3, style


#: Linear light as perceived without one kind of cone (Machado, Oliveira and Fernandes 2009).
VISION = {
    "normal": np.eye(3),
    "protanopia": [[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]],
    "deuteranopia": [[0.3673, 0.8606, -0.2280], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]],
    "tritanopia": [[1.2555, -0.0767, -0.1788], [-0.0784, 0.9308, 0.1476], [0.0047, 0.6914, 0.3039]],
}
#: Linear light → cones → OKLab (Ottosson 2020), where equal distances look about equally large.
CONES = [[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.6300]]
OKLAB = [[0.2105, 0.7936, -0.0041], [1.9780, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]]


@pytest.mark.parametrize("ground", ["light", "dark"])
@pytest.mark.parametrize("kind", VISION)
def test_colours_of_one_figure_are_told_apart(kind, ground):
    """0.04 is twice the just noticeable difference; Figure 5 draws only one of the oracles."""
    together = [STYLES[name].color for name in STYLES if name not in {"oracle_single", "oracle_test"}]
    shown = [color if ground == "light" else DARK[color] for color in (*together, OTHER_STYLE.color)]
    seen = np.clip(np.array([linear_light(color) for color in shown]) @ np.transpose(VISION[kind]), 0, 1)
    lab = np.cbrt(seen @ np.transpose(CONES)) @ np.transpose(OKLAB)
    apart = np.linalg.norm(lab[:, None] - lab, axis=2) + np.eye(len(lab))
    assert apart.min() >= (0.08 if kind == "normal" else 0.04)


@pytest.mark.parametrize("low", [0.06, 0.51, 7.0])
def test_temperatures_far_apart_stand_on_a_logarithm_with_ticks(low):
    with drawing():
        for factor, scale in ((4.9, "linear"), (5.1, "log")):
            _, (axes,) = new_figure(3)
            axes.plot([1, 2], [low, factor * low])
            temperature_axis(axes, [low, factor * low])
            bottom, top = axes.get_ylim()
            assert axes.get_yscale() == scale
            assert sum(bottom <= tick <= top for tick in axes.get_yticks()) >= 2


def test_the_legend_of_temperatures_is_in_the_order_of_the_last_task(run, monkeypatch):
    planted = {
        name: np.full((1, run.n_tasks), value) for name, value in (("rc", 1.0), ("dats", 3.0), ("ts", 2.0))
    }
    monkeypatch.setattr(type(run), "temperatures_by_method", lambda _: planted)
    with drawing():
        (legend,) = draw_learned_temperature(run).legends
    assert [text.get_text() for text in legend.get_texts()] == ["DATS", "TS", "RC"]


def test_reporting_imports_neither_torch_nor_matplotlib():
    code = (
        "import sys, equable.reports.report\n"
        "loaded = {'torch', 'matplotlib', 'jinja2'} & set(sys.modules)\n"
        "assert not loaded, loaded"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
