"""The plug-in against the real Avalanche, in an environment of its own: ``make test-avalanche``."""

# ruff: noqa: E402 - Avalanche is imported first, with care, or everything here is skipped
from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
from speed.avalanche_import import import_avalanche
from torch import nn
from torch.utils.data import TensorDataset

import equable
from equable.errors import InputError

try:
    import_avalanche()
except ImportError as error:
    pytest.skip(
        f"Avalanche cannot be imported here ({error}); `make test-avalanche` runs these tests in an "
        "environment of their own",
        allow_module_level=True,
    )

from avalanche.benchmarks import benchmark_with_validation_stream, nc_benchmark
from avalanche.evaluation.metrics import accuracy_metrics
from avalanche.logging import BaseLogger, InteractiveLogger, TextLogger
from avalanche.models import IncrementalClassifier
from avalanche.training import Naive, Replay
from avalanche.training.plugins import EvaluationPlugin, SupervisedPlugin

from equable.integrations.avalanche import CalibrationPlugin, stratified_split
from equable.metrics import accuracy, expected_calibration_error, negative_log_likelihood
from messages import raises_naming
from test_documents import run_page

# Warnings of Avalanche about its own code.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:stream generator will be converted to a list"),
]
ROOT = Path(__file__).parents[2]
STREAM = "eval_phase/test_stream"
N_CLASSES, N_FEATURES = 6, 12


def rows(per_class, seed, first_id=0):
    """Gaussian classes; the last column numbers the rows, so that each can be identified."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(N_CLASSES, N_FEATURES, generator=torch.Generator().manual_seed(9))
    y = torch.arange(N_CLASSES).repeat_interleave(per_class)
    x = 0.5 * centres[y] + torch.randn(len(y), N_FEATURES, generator=generator)
    x[:, -1] = torch.arange(len(y)) + first_id
    dataset = TensorDataset(x, y)
    dataset.targets = y.tolist()
    return dataset


def shifted(x):
    """An augmentation with a large effect on the inputs."""
    return x + 1000.0


def benchmark(**settings):
    train = rows(60, seed=0)
    test = rows(30, seed=1, first_id=5000)
    whole = nc_benchmark(train, test, n_experiences=3, task_labels=False, seed=4, **settings)
    return benchmark_with_validation_stream(whole, split_strategy=stratified_split(30))


class Network(nn.Module):
    """A network that ignores the row numbers; dropout and batch norm show a change of its state."""

    def __init__(self, head=None):
        super().__init__()
        norm = nn.BatchNorm1d(24)
        self.body = nn.Sequential(nn.Linear(N_FEATURES - 1, 24), norm, nn.ReLU(), nn.Dropout(0.2))
        self.head = nn.Linear(24, N_CLASSES) if head is None else head

    def forward(self, x):
        return self.head(self.body(x[:, :-1]))


class Recorder(BaseLogger):
    """A logger that records the metrics it is given."""

    def __init__(self):
        super().__init__()
        self.values = []

    def log_single_metric(self, name, value, x_plot):
        self.values.append((name, value, x_plot))

    def named(self, start):
        return [item for item in self.values if item[0].startswith(start)]


def strategy(model, plugins, loggers=(), kind=Replay, **settings):
    evaluator = EvaluationPlugin(accuracy_metrics(experience=True), loggers=list(loggers) or [Recorder()])
    settings = {"mem_size": 30, **settings} if kind is Replay else settings
    return kind(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.05),
        criterion=nn.CrossEntropyLoss(),
        train_mb_size=16,
        train_epochs=2,
        eval_mb_size=50,
        plugins=list(plugins),
        evaluator=evaluator,
        **settings,
    )


def trained(calibrator, data=None, loggers=(), n=3, **settings):
    torch.manual_seed(0)
    data = data or benchmark()
    plugin = CalibrationPlugin(calibrator, data.valid_stream, **settings)
    learner = strategy(Network(), [plugin], loggers)
    for experience in data.train_stream[:n]:
        learner.train(experience)
    return learner, plugin, data


class TestTheLogs:
    def test_every_value_reaches_the_loggers_and_the_results(self):
        recorder = Recorder()
        text = io.StringIO()
        learner, plugin, data = trained(equable.DATS(), loggers=[recorder, TextLogger(text)])
        results = learner.eval(data.test_stream)
        expected = {
            f"Accuracy_Uncalibrated/{STREAM}": plugin.comparison.accuracy_before,
            f"Accuracy_Calibrated/{STREAM}": plugin.comparison.accuracy,
            f"NLL_Uncalibrated/{STREAM}": plugin.comparison.nll_before,
            f"NLL_Calibrated/{STREAM}": plugin.comparison.nll,
            f"ECE_Uncalibrated/{STREAM}": plugin.comparison.average_ece_before,
            f"ECE_Calibrated/{STREAM}": plugin.comparison.average_ece,
            f"DeltaLECE/{STREAM}": plugin.comparison.delta_last_ece,
            f"MaxDeltaECE/{STREAM}": plugin.comparison.max_delta_ece,
        }
        for task in plugin.comparison.tasks:
            expected[f"ECE_Uncalibrated_Exp/{STREAM}/Exp00{task.task}"] = task.ece_before
            expected[f"ECE_Calibrated_Exp/{STREAM}/Exp00{task.task}"] = task.ece
        logged = {name: value for name, value, _ in recorder.values}
        assert len(expected) == 14
        assert {name: logged[name] for name in expected} == expected
        assert {name: results[name] for name in expected} == expected
        assert all(f"{name} = {value:.4f}" in text.getvalue() for name, value in expected.items())

    def test_experiences_keep_their_own_numbers_in_whatever_order_they_are_learnt(self):
        data = benchmark()
        plugin = CalibrationPlugin(equable.Uncalibrated(), data.valid_stream)
        learner = strategy(Network(), [plugin])
        learner.train(data.train_stream[2])
        learner.train(data.train_stream[0])
        results = learner.eval(data.test_stream)
        learner.model.eval()
        seen = sorted(plugin.calibration.classes)
        for number in (0, 2):
            dataset = data.test_stream[number].dataset
            x = torch.stack([row[0] for row in dataset])
            y = np.array([row[1] for row in dataset])
            with torch.no_grad():
                p = torch.softmax(learner.model(x).double()[:, seen], dim=1).numpy()
            expected = expected_calibration_error(np.searchsorted(seen, y), p)
            found = results[f"ECE_Calibrated_Exp/{STREAM}/Exp00{number}"]
            assert found == pytest.approx(expected, abs=1e-6)
        assert f"ECE_Calibrated_Exp/{STREAM}/Exp001" not in results

    def test_one_class_alone_is_nothing_to_calibrate(self):
        whole = nc_benchmark(
            rows(60, seed=0), rows(30, seed=1), n_experiences=N_CLASSES, task_labels=False, seed=4
        )
        data = benchmark_with_validation_stream(whole, split_strategy=stratified_split(30))
        plugin = CalibrationPlugin(equable.Uncalibrated(), data.valid_stream)
        learner = strategy(Network(), [plugin])
        for number, experience in enumerate(data.train_stream[:2]):
            learner.train(experience)
            results = learner.eval(data.test_stream)
            assert (f"ECE_Calibrated/{STREAM}" in results) == (number > 0)
        assert [task.count for task in plugin.comparison.tasks] == [30, 30]

    def test_the_numbers_are_right(self):
        learner, plugin, data = trained(equable.TemperatureScaling(), loggers=[InteractiveLogger()])
        results = learner.eval(data.test_stream)
        temperature = plugin.calibration.calibrator.temperature_
        found = []
        learner.model.eval()
        for experience in data.test_stream:
            x = torch.stack([row[0] for row in experience.dataset])
            y = np.array([row[1] for row in experience.dataset])
            with torch.no_grad():
                z = learner.model(x).double().numpy()
            sides = [np.exp(z / t) / np.exp(z / t).sum(1, keepdims=True) for t in (1.0, temperature)]
            found.append([metric(y, p) for p in sides for metric in METRICS])
        acc_before, nll_before, ece_before, acc, nll, ece = np.mean(found, axis=0)
        named = {name.split("/")[0]: value for name, value in results.items() if name.endswith("test_stream")}
        assert named["Accuracy_Uncalibrated"] == pytest.approx(acc_before)
        assert named["Accuracy_Calibrated"] == pytest.approx(acc) == pytest.approx(acc_before)
        assert named["NLL_Uncalibrated"] == pytest.approx(nll_before, rel=1e-5)
        assert named["NLL_Calibrated"] == pytest.approx(nll, rel=1e-5)
        assert named["ECE_Uncalibrated"] == pytest.approx(ece_before, abs=1e-5)
        assert named["ECE_Calibrated"] == pytest.approx(ece, abs=1e-5)
        deltas = [row[5] - row[2] for row in found]
        assert named["DeltaLECE"] == pytest.approx(deltas[-1], abs=1e-5)
        assert named["MaxDeltaECE"] == pytest.approx(max(deltas), abs=1e-5)
        avalanche = [v for name, v in results.items() if name.startswith("Top1_Acc_Exp")]
        assert named["Accuracy_Calibrated"] == pytest.approx(np.mean(avalanche))

    def test_experiences_to_come_are_left_out(self):
        learner, plugin, data = trained(equable.ARC(), n=2)
        learner.eval(data.test_stream)
        assert [task.task for task in plugin.comparison.tasks] == [0, 1]
        learner.eval(data.test_stream[2:])  # no class of it is learnt: no metric

    def test_each_experience_is_a_batch_of_its_own(self):
        learner, plugin, data = trained(equable.ARC(), percent=100)
        learner.eval(data.test_stream)
        for task, experience in zip(plugin.comparison.tasks, data.test_stream, strict=True):
            alone = plugin.calibration.evaluate(learner.model, [experience.dataset.eval()]).tasks[0]
            assert alone.ece == pytest.approx(task.ece, abs=1e-12)

    def test_an_evaluation_amid_an_experience_says_nothing(self):
        data = benchmark()
        recorder = Recorder()
        plugin = CalibrationPlugin(equable.ARC(), data.valid_stream)
        learner = strategy(Network(), [plugin], [recorder], eval_every=1)
        for experience in data.train_stream[:2]:
            learner.train(experience, eval_streams=[data.test_stream])
        evaluated = [x for _, _, x in recorder.named("Top1_Acc_Exp")]
        # Avalanche evaluates once more before it starts on the second: the calibrator fits that model
        assert [x for _, _, x in recorder.named("ECE_Calibrated/")] == [learner.clock.train_iterations // 2]
        assert len(set(evaluated)) > 3


METRICS = (accuracy, negative_log_likelihood, expected_calibration_error)


class TestTheModelIsOnlyRead:
    @pytest.mark.parametrize("kind", [Replay, Naive])
    def test_training_takes_the_same_steps(self, kind):
        weights = []
        states = []
        for with_plugin in (False, True):
            torch.manual_seed(7)
            data = benchmark()
            plugins = [CalibrationPlugin(equable.DATS(), data.valid_stream)] if with_plugin else []
            learner = strategy(Network(), plugins, kind=kind)
            for experience in data.train_stream:
                learner.train(experience)
                learner.eval(data.test_stream)
            weights.append(learner.model.state_dict())
            states.append(torch.get_rng_state())
        assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())
        assert torch.equal(*states)

    def test_it_stays_the_same_object_in_the_same_mode(self):
        seen = []

        class Watch(SupervisedPlugin):
            def after_training_exp(self, strategy, **kwargs):
                modes = [module.training for module in strategy.model.modules()]
                gradients = [p.grad is not None for p in strategy.model.parameters()]
                seen.append((id(strategy.model), modes, gradients, torch.get_rng_state()))

        data = benchmark()
        model = Network()
        learner = strategy(model, [Watch(), CalibrationPlugin(equable.DATS(), data.valid_stream), Watch()])
        learner.train(data.train_stream[0])
        before, after = seen
        assert before[:3] == after[:3]
        assert torch.equal(before[3], after[3])
        assert learner.model is model
        assert all(p.requires_grad for p in model.parameters())


class TestTheCalibrationRows:
    def test_they_are_never_trained_on(self):
        trained_on = set()

        class Watch(SupervisedPlugin):
            def before_forward(self, strategy, **kwargs):
                trained_on.update(strategy.mb_x[:, -1].tolist())

        data = benchmark()
        plugin = CalibrationPlugin(equable.ARC(), data.valid_stream)
        learner = strategy(Network(), [Watch(), plugin])
        for experience in data.train_stream:
            learner.train(experience)
        held_out = {
            float(part.validation[int(row)][0][-1])
            for part in plugin.calibration.calibration_buffer
            for row in range(len(part.validation))
        }
        assert len(held_out) == 6 * 18
        assert len(trained_on) == 6 * 42
        assert not held_out & trained_on

    # trained on rows a thousand away, the network can but guess at these
    @pytest.mark.filterwarnings("ignore::equable.errors.ConvergenceWarning")
    def test_they_are_not_augmented(self):
        data = benchmark(train_transform=shifted)
        _, plugin, _ = trained(equable.ARC(), data)
        assert data.train_stream[0].dataset[0][0].min() > 500
        for part in plugin.calibration.calibration_buffer:
            assert max(part.validation[int(row)][0][:-1].abs().max() for row in part.rows) < 100

    def test_the_split_takes_a_share_of_each_class(self):
        dataset = benchmark().train_stream[0].dataset
        training, validation = stratified_split(25, seed=3)(dataset)
        assert np.unique(validation.targets, return_counts=True)[1].tolist() == [10, 10]
        assert len(training) + len(validation) == len(dataset)
        again = stratified_split(25, seed=3)(dataset)[1]
        assert [float(r[0][-1]) for r in again] == [float(r[0][-1]) for r in validation]


@pytest.mark.parametrize("calibrator", [equable.DATS, equable.ARC, equable.EnsembleTemperatureScaling])
def test_a_head_that_grows(calibrator):
    data = benchmark()
    plugin = CalibrationPlugin(calibrator(), data.valid_stream)
    learner = strategy(Network(IncrementalClassifier(24, initial_out_features=2)), [plugin])
    for n, experience in enumerate(data.train_stream):
        learner.train(experience)
        learner.eval(data.test_stream[: n + 1])
        assert plugin.calibration.calibrator.n_classes_ == 2 * (n + 1)
        assert len(plugin.comparison.tasks) == n + 1
    assert plugin.calibration.classes == list(range(6))


class TestRefusals:
    def test_the_train_stream(self):
        with raises_naming(InputError, "held out of training", "train stream"):
            CalibrationPlugin(equable.ARC(), benchmark().train_stream)

    def test_a_class_without_validation_rows(self):
        data = benchmark()
        swapped = [data.valid_stream[1]]
        swapped[0].current_experience = 0
        learner = strategy(Network(), [CalibrationPlugin(equable.ARC(), swapped)])
        with pytest.raises(InputError, match=r"rows of every class in training; class \d has none"):
            learner.train(data.train_stream[0])

    def test_an_experience_without_validation(self):
        data = benchmark()
        learner = strategy(Network(), [CalibrationPlugin(equable.ARC(), data.valid_stream[:1])])
        learner.train(data.train_stream[0])
        with pytest.raises(InputError, match="it has no 1"):
            learner.train(data.train_stream[1])


def test_the_how_to_page_runs_as_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = ROOT / "docs" / "how-to" / "avalanche.md"
    assert run_page(page.read_text(encoding="utf-8"), page.name) == []
