"""Published results are what the stored outputs give: printed digits alike, numbers of figures to 1e-5."""

from __future__ import annotations

import json
import re
import warnings
import zipfile
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from published import claims_page, headline, index_page, limits, publish, run_page, store
from published.claims import CLAIMS, verdict
from published.evidence import POINTS, Estimate, Evidence
from published.learners import LEARNERS, STORED_SEEDS, load_learners, seed_record
from published.learners_page import learners_data, learners_page
from published.runs import RUNS, compute

import equable
from equable.benchmark.methods import METHODS
from equable.benchmark.run_folder import OUTPUT_FILES, RunFolder, outputs_digest
from equable.benchmark.score_method import StepTestRows, score_method
from equable.benchmark.task_outputs import load_step
from equable.errors import ConfigError, ConvergenceWarning
from equable.files import read_json, sha256_of, write_json, write_sealed, write_text
from equable.outputs import Outputs
from equable.scenarios import ValidationSet
from run_fixtures import finished_run, tiny_config, tiny_run  # noqa: F401

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
PAGES = ROOT / "docs" / "results"
STORED = [name for name in RUNS if (RESULTS / name).is_dir()]
#: Computed anew, however many runs are stored: one run of real images whole, and one seed of a large run.
WHOLE = next((n for n in ("skinlesions-resnet32", "skinlesions-slim") if n in STORED), STORED[0])
ONE_SEED = "cifar10-slim"
MOST_BYTES = 200_000_000
MACHINE_PATH = re.compile(r"(?<![\w.~-])/(?:work|home|root|tmp|Users|private|mnt|scratch|data)/|[A-Z]:\\\\")

pytest.importorskip("matplotlib")


def text_of(name: str) -> str:
    return (PAGES / name).read_text(encoding="utf-8")


def headers(path: Path) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """Shape and type of the arrays of an npz file, which are not unpacked."""
    found = {}
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            with archive.open(name) as stream:
                np.lib.format.read_magic(stream)
                shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
                found[name.removesuffix(".npy")] = shape, dtype
    return found


class TestWhatIsStored:
    def test_is_small(self):
        assert sum(path.stat().st_size for path in RESULTS.rglob("*") if path.is_file()) <= MOST_BYTES

    def test_is_among_the_runs_we_know(self):
        assert {path.name for path in RESULTS.iterdir() if path.is_dir()} == {*STORED, *LEARNERS}
        assert STORED

    def test_holds_nothing_but_outputs_and_facts(self):
        kinds = {path.name for path in RESULTS.rglob("*") if path.is_file()}
        assert kinds == {
            *OUTPUT_FILES, "done.json", "config.toml", "settings.json", "environment.json", "seconds.json",
            "README.md", "pts.safetensors", "scores.json", "unknown.npz",
        }  # fmt: skip

    def test_holds_no_images(self):
        known = {"schema", "logits", "labels", "features", "tasks"}
        for path in RESULTS.rglob("*.npz"):
            arrays = headers(path)
            assert ("in_calibration_buffer" in arrays) == (path.name == "validation.npz")
            arrays.pop("in_calibration_buffer", None)
            assert set(arrays) <= known, path
            assert max(len(shape) for shape, _ in arrays.values()) <= 2, path
            assert {arrays[name][1] for name in ("logits", "features")} == {np.dtype(np.float16)}, path

    def test_names_no_path_of_a_machine(self):
        texts = [
            *RESULTS.rglob("*.json"),
            *RESULTS.rglob("*.toml"),
            *PAGES.rglob("*.md"),
            *PAGES.rglob("*.json"),
        ]
        assert not [path for path in texts if MACHINE_PATH.search(path.read_text(encoding="utf-8"))]

    @pytest.mark.parametrize("name", STORED)
    def test_is_whole(self, name):
        steps = [path.parent for path in (RESULTS / name).glob("seed-*/task-*/done.json")]
        assert sorted(RunFolder(RESULTS / name).config().seeds) == sorted(
            int(step.parent.name.removeprefix("seed-")) for step in steps
        )
        for step in steps:
            outputs_digest(step)  # raises if a file differs from its SHA-256 in done.json


class TestLearners:
    """The three configurations of CLINC150."""

    def test_the_page_prints_the_stored_scores(self):
        runs = load_learners()
        assert learners_page(runs) == text_of("learners.md")
        assert_same_numbers(
            json.loads(publish.data_text(learners_data(runs))), json.loads(text_of("data/learners.json"))
        )

    def test_learners_are_compared_at_one_commit_on_the_same_seeds(self):
        runs = load_learners()
        assert len({run.environment["commit"] for run in runs}) == 1
        assert len({tuple(record["seed"] for record in run.records) for run in runs}) == 1

    @pytest.mark.parametrize("name", LEARNERS)
    def test_stored_outputs_give_the_stored_scores(self, name):
        folder = RunFolder(RESULTS / name)
        steps = [folder.task(seed, folder.config().n_tasks - 1) for seed in STORED_SEEDS]
        assert all(outputs_digest(step) for step in steps)  # raises where a file is damaged
        chosen = {m: METHODS[m] for m in ("rc", "uncalibrated", "bic")}
        with mock.patch("published.learners.scored_methods", return_value=chosen):
            found = seed_record(load_step(steps[0]), 0, 10, 0)
        stored = next(r for r in load_learners() if r.name == name).records[0]["methods"]
        for method in chosen:
            for measure in ("accuracy", "nll", "average_ece"):  # a change of one task has 450 rows: too noisy
                value = found[method]["batch = task"][measure]
                assert value == pytest.approx(stored[method]["batch = task"][measure], abs=2e-3)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The stored run `WHOLE`, computed again."""
    return compute(RESULTS, tmp_path_factory.mktemp("build"), [WHOLE])[0]


def numbers(value, path=""):
    """(where, number) of everything in a JSON value."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from numbers(part, f"{path}/{key}")
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from numbers(part, f"{path}/{index}")
    else:
        yield path, value


def assert_same_numbers(ours, theirs):
    ours = dict(numbers(ours))
    theirs = dict(numbers(theirs))
    assert set(ours) == set(theirs)
    for where, value in ours.items():
        if isinstance(value, float):
            assert value == pytest.approx(theirs[where], rel=1e-5, abs=1e-5), where
        else:
            assert value == theirs[where], where


class TestOneRunComputedAnew:
    def test_its_page_prints_the_same_digits(self, run):
        assert publish.run_page(run) == text_of(f"{run.name}.md")

    def test_the_numbers_behind_its_figures_are_the_same(self, run):
        data = publish.figure_data(run) | {"limits": publish.limits_data(run)}
        assert_same_numbers(json.loads(publish.data_text(data)), json.loads(text_of(f"data/{run.name}.json")))

    def test_its_figures_are_drawn(self, run):
        names = {f"{plot.name}.svg" for plot in run_page.plots_of(run)}
        assert {path.name for path in (PAGES / "figures" / run.name).iterdir()} == names

    def test_a_figure_is_drawn_alike(self, run):
        import matplotlib

        if f"matplotlib=={matplotlib.__version__}\n" in (ROOT / "constraints.txt").read_text(
            encoding="utf-8"
        ):
            plot = run_page.plots_of(run)[0]
            path = PAGES / "figures" / run.name / f"{plot.name}.svg"
            assert publish.alike(path.name, plot.svg.encode(), path.read_bytes())

    def test_its_part_of_the_common_pages_is_the_same(self, run):
        assert index_page.run_block(run).strip() in text_of("index.md")
        page = text_of("limits.md")
        assert not [name for name, block in limits.run_blocks(run).items() if block.strip() not in page]

    def test_its_evidence_is_the_same(self, run):
        page = text_of("claims.md")
        for claim in CLAIMS:
            for evidence in claim.measure([run]):
                assert claims_page.evidence_line(evidence) in page

    def test_its_columns_of_the_readme_are_the_same(self, run):
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        if run.name in headline.REAL or len(STORED) == 1:
            rows = headline.arrivals_grid([run]).splitlines()[2:]
            assert len(rows) == len(headline.SHOWN)
            assert not [row for row in rows if row not in readme]


@pytest.mark.parametrize("name", [name for name in ("digits", ONE_SEED) if name in STORED])
def test_one_seed_gives_the_numbers_of_its_page(name):
    """Seed 0 after the last task against the numbers beside the page."""
    stored = json.loads(text_of(f"data/{name}.json"))
    folder = RunFolder(RESULTS / name)
    config = folder.config()
    place = stored["seeds"].index(0)
    settings = config.score.model_copy(update={"n_bootstrap": 0})
    rows = StepTestRows(load_step(folder.task(0, config.n_tasks - 1)), 0, settings, "")
    scores = {m: score_method(rows, m, METHODS[m]) for m in ("uncalibrated", "rc", "dats", "arc", "taskmix")}
    for method, score in scores.items():
        assert score.confidence == pytest.approx(stored["confidence"][method][place], rel=1e-5, abs=1e-5)
        if method in stored["temperature"]:
            assert score.temperatures == pytest.approx(stored["temperature"][method][place], rel=1e-5)
    for one, other in (("dats", "rc"), ("arc", "rc"), ("arc", "dats")):
        pair = stored["extras"][place]["pairs"][f"{one}-{other}"]
        for measure in ("nll", "average_ece"):
            change = scores[one].comparison[measure] - scores[other].comparison[measure]
            assert change == pytest.approx(pair[f"{measure}_change"]["change"], rel=1e-5, abs=1e-5)


class TestWhatIsWrittenFromAllRuns:
    """Recomputed from the numbers stored beside the pages."""

    DATA = json.loads((PAGES / "data" / "claims.json").read_text(encoding="utf-8"))

    def test_there_are_thirteen_claims(self):
        assert list(self.DATA) == [claim.title for claim in CLAIMS]
        assert len(CLAIMS) == 13

    @pytest.mark.parametrize("index", range(13))
    def test_verdicts_follow_from_the_evidence(self, index):
        claim = CLAIMS[index]
        stored = self.DATA[claim.title]
        evidence = [
            Evidence(e["run"], e["what"], Estimate(e["mean"], 0, 0, e["n"]), POINTS, e["outcome"])
            for e in stored["evidence"]
        ]
        said = verdict(evidence)
        assert stored["verdict"] == said
        line = next(
            line
            for line in text_of("index.md").splitlines()
            if line.startswith(f"| {index + 1}. {claim.title}")
        )
        assert f"| **{said}** |" in line
        assert (
            f"*Verdict.* **{said}**:"
            in text_of("claims.md").partition(f"## {index + 1}. ")[2].partition("\n## ")[0]
        )

    def test_every_stored_run_has_its_page_and_is_named(self):
        index = text_of("index.md")
        for name, expected in RUNS.items():
            assert (name in STORED) == (PAGES / f"{name}.md").is_file()
            assert expected.title in index

    def test_the_readme_shows_them(self):
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        block = readme.partition(headline.BEGIN)[2].partition(headline.END)[0]
        assert "docs/images/headline.svg" in block
        shown = [RUNS[name].dataset for name in headline.REAL if name in STORED] or [
            RUNS[n].dataset for n in STORED
        ]
        assert not [dataset for dataset in shown if f"| {dataset} | TaskMix |" not in block]
        drawn = (ROOT / "docs" / "images" / "headline.svg").read_text(encoding="utf-8")
        assert not [dataset for dataset in shown if f">{dataset}: ECE (%)<" not in drawn]


@pytest.mark.parametrize("name", ["bloodcell-slim", "skinlesions-slim", "digits"])
def test_what_training_says_it_measured_is_stored(name):
    """Accuracy and confidence by task after the last one, seeds 0 / 1 / 2."""
    said = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    for key in ("accuracy", "confidence"):
        seeds = [
            sorted((ROOT / "results" / name / f"seed-{s}").glob("task-*/done.json"))[-1] for s in range(3)
        ]
        values = [[f"{100 * value:.0f}" for value in json.loads(path.read_bytes())[key]] for path in seeds]
        assert " / ".join(", ".join([*v[:-1], f"**{v[-1]}**"]) for v in values) in said


@pytest.mark.parametrize("name", [name for name in ("digits", WHOLE, ONE_SEED) if name in STORED])
def test_a_stored_pts_is_as_good_a_fit_as_one_made_here(name):
    """The network of PTS may differ between processors; its loss agrees within 10 %."""
    (path,) = (RESULTS / name / "seed-0").rglob("pts.safetensors")
    rows = load_step(path.parent).rows(METHODS["pts"].rows)

    def brier(calibrator):
        p = calibrator.predict_proba(rows.logits)
        return np.mean(np.sum((p - np.eye(p.shape[1])[rows.labels]) ** 2, axis=1))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        here = brier(equable.ParametrizedTemperatureScaling().fit(rows.logits, rows.labels))
        one = brier(equable.TemperatureScaling(loss="brier", prior_strength=0).fit(rows.logits, rows.labels))
    assert brier(equable.load(path)) == pytest.approx(here, rel=0.1, abs=0.005)
    assert brier(equable.load(path)) <= one


@pytest.mark.parametrize(
    ("path", "one", "other", "same"),
    [
        ("a.json", b'{"a": 0.25}', b'{"a": 0.25000000000000006}', True),
        ("a.json", b'{"a": 0.25}', b'{"a": 0.251}', False),
        ("a.json", b'{"a": 0.25}', b'{"b": 0.25}', False),
        ("a.json", b'{"a": [1.0]}', b'{"a": [1.0, 1.0]}', False),
        ("a.svg", b'<use href="#mc781ec7419" y="82.155"/>', b'<use href="#mbe0438a1be" y="82.1551"/>', True),
        ("a.svg", b'<use y="82.1"/>', b'<use y="82.2"/>', False),
        ("a.svg", b"<text>PTS</text>", b"<text>ARC</text>", False),
        ("a.svg", b"fill: #1e9991", b"fill: #1e9992", False),
        ("a.svg", b"ma111111111 mb222222222 ma111111111", b"mc333333333 md444444444 mc333333333", True),
        ("a.svg", b"ma111111111 mb222222222 ma111111111", b"mc333333333 md444444444 md444444444", False),
        ("a.md", b"7.8", b"7.80", False),
    ],
)  # fmt: skip
def test_what_counts_as_the_same_file(path, one, other, same):
    assert publish.alike(path, one, other) == same


def test_storing_keeps_float16_and_its_digests(tmp_path):
    rng = np.random.default_rng(0)
    rows = Outputs(
        rng.normal(size=(20, 3)), rng.integers(0, 3, 20), rng.normal(size=(20, 4)), np.zeros(20, int)
    )
    store.halved(rows).save(tmp_path / "test.npz", compress=True)
    back = Outputs.load(tmp_path / "test.npz")
    assert back.logits.dtype == back.features.dtype == np.float16
    assert np.abs(back.logits - rows.logits).max() < 2e-3
    with pytest.raises(store.InputError, match="65504"):
        store.halved(Outputs([[1e6, 0.0]]))


def test_a_step_is_stored_with_its_pts(tmp_path):
    rng = np.random.default_rng(0)

    def rows(n, **more):
        labels = rng.integers(0, 4, n)
        logits = 3 * rng.normal(size=(n, 4)) + 2 * np.eye(4)[labels]
        return Outputs(logits, labels, rng.normal(size=(n, 3)), labels // 2, **more)

    source = tmp_path / "source"
    target = tmp_path / "target"
    ValidationSet(rows(200), np.tile([True, False], 100)).save(source / "validation.npz")
    for name in ("test.npz", "perturbed.npz"):
        rows(50).save(source / name)
    files = {name: sha256_of(source / name) for name in OUTPUT_FILES}
    write_sealed(source / "done.json", {"task": 1, "seed": 0, "n_seen": 4, "files": files})
    store.store_step(source, target)
    assert {path.name for path in target.iterdir()} == {*OUTPUT_FILES, "done.json", "pts.safetensors"}
    assert outputs_digest(target)
    kept = equable.load(target / "pts.safetensors")
    step = load_step(target)
    fitted = METHODS["pts"].fit(step)
    np.testing.assert_array_equal(kept.parameters_, fitted.parameters_)


def test_a_run_is_stored_seed_by_seed(finished_run, tiny_run, tmp_path):  # noqa: F811
    """Seed 1 is seed 0 under another number, of another machine."""
    target = tmp_path / "stored"
    assert store.store_run(finished_run, target) == [0]
    first = outputs_digest(RunFolder(target).task(0, 2))

    tiny_run.seed(0).rename(tiny_run.seed(1))
    for path in tiny_run.scores.glob("seed-0_*"):
        path.rename(path.with_name(path.name.replace("seed-0_", "seed-1_")))
    config = tiny_run.config().with_seeds([1])
    write_text(tiny_run.config_path, config.to_toml())
    here = read_json(tiny_run.path / "environment.json")
    write_json(tiny_run.path / "environment.json", {**here, "cpu": "another"})

    assert store.store_run(tiny_run.path, target) == [0, 1]
    assert outputs_digest(RunFolder(target).task(0, 2)) == first
    assert RunFolder(target).config().seeds == [0, 1]
    assert [read_json(target / store.SECONDS)[what]["rc"].keys() for what in ("seconds", "average_ece")] == [
        {"0", "1"}
    ] * 2
    stored = read_json(target / "environment.json")
    assert [stored["cpu"], *(place["cpu"] for place in stored["also"])] == [here["cpu"], "another"]

    slower = config.model_copy(update={"training": config.training.model_copy(update={"max_epochs": 9})})
    (tiny_run.path / "settings.json").unlink()
    store.seal_settings(tiny_run.path, slower)
    write_text(tiny_run.config_path, slower.to_toml())
    with pytest.raises(ConfigError, match=r"training\.max_epochs: 2 → 9"):
        store.store_run(tiny_run.path, target)
