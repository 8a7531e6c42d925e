"""PyTorch: a model and a loader become Outputs; a model and a calibrator become one module."""

import copy
import subprocess
import sys
from typing import NamedTuple

import numpy as np
import pytest

import equable
from equable.errors import EvidenceWarning, InputError, NotFittedError, UnsupportedError

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'equable[train]'")

from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from equable.integrations.torch import CalibratedModel, collect  # noqa: E402
from messages import raises_naming  # noqa: E402

N, K, D = 50, 4, 6


class Net(nn.Module):
    """Dropout and batch norm, so that a wrong mode shows; an in-place ReLU, so that a stale view shows."""

    def __init__(self, n_classes=K):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(inplace=True))
        self.neck = nn.Sequential(nn.Dropout(0.5), nn.Linear(16, D))
        self.act = nn.ReLU(inplace=True)
        self.head = nn.Linear(D, n_classes)

    def forward(self, x):
        return self.head(self.act(self.neck(self.body(x))))


class Fails(nn.Module):
    def forward(self, x):
        raise RuntimeError("out of memory, say")


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net()


@pytest.fixture
def rows(net):
    """Inputs and labels; the model predicts two thirds of the labels."""
    x = torch.randn(N, 8, generator=torch.Generator().manual_seed(1))
    known = torch.as_tensor(eval_parts(net, x)[0].argmax(axis=1))
    place = torch.arange(N)
    return x, torch.where(place % 3 > 0, known, place % K)


def n_hooks(model):
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())


def eval_parts(net, x):
    """Logits, input of the head and output of the neck, computed by hand in eval mode."""
    copied = copy.deepcopy(net).eval()
    with torch.no_grad():
        neck = copied.neck(copied.body(x)).clone()
        features = torch.relu(neck)
        return copied.head(features).numpy(), features.numpy(), neck.numpy()


class TestCollect:
    def test_logits_and_features_are_those_of_eval_mode(self, net, rows):
        outputs = collect(net, DataLoader(TensorDataset(*rows), batch_size=16))
        logits, features, _ = eval_parts(net, rows[0])
        np.testing.assert_allclose(outputs.logits, logits, atol=1e-6)
        np.testing.assert_allclose(outputs.features, features, atol=1e-6)
        assert outputs.labels.tolist() == rows[1].tolist()
        assert outputs.tasks is None

    @pytest.mark.parametrize("by_name", [True, False])
    def test_a_head_gives_its_input_and_another_layer_its_output(self, net, rows, by_name):
        _, features, neck = eval_parts(net, rows[0])
        for layer, expected in (("head", features), ("act", features), ("neck", neck)):
            chosen = layer if by_name else getattr(net, layer)
            outputs = collect(net, [rows], features=chosen)
            np.testing.assert_allclose(outputs.features, expected, atol=1e-6)

    @pytest.mark.parametrize("form", ["tensor", "list of one", "pair", "triple"])
    def test_forms_of_batches(self, net, rows, form):
        x, y = rows
        batch = {"tensor": x, "list of one": [x], "pair": (x, y), "triple": (x, y, y // 2)}[form]
        outputs = collect(net, [batch, batch])
        assert len(outputs) == 2 * N
        assert (outputs.labels is not None) == (form in ("pair", "triple"))
        assert (outputs.tasks is not None) == (form == "triple")

    def test_tasks_for_all_rows_or_by_class(self, net, rows):
        assert collect(net, [rows], tasks=3).tasks.tolist() == [3] * N
        outputs = collect(
            net, DataLoader(TensorDataset(*rows), batch_size=16, shuffle=True), tasks=[0, 0, 1, 1]
        )
        np.testing.assert_array_equal(outputs.tasks, outputs.labels // 2)
        with raises_naming(InputError, "tasks of each class must", "shape (4,)"):
            collect(net, [rows], tasks=[0] * N)
        with pytest.raises(InputError, match="need the rows' labels"):
            collect(net, [rows[0]], tasks=[0, 0, 1, 1])

    def test_modes_weights_and_hooks_are_left_alone(self, net, rows):
        net.train()
        net.body.eval()  # a frozen part keeps its own mode
        before = copy.deepcopy(net.state_dict())
        modes = [module.training for module in net.modules()]
        collect(net, [rows])
        assert [module.training for module in net.modules()] == modes
        assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
        assert n_hooks(net) == 0
        net(rows[0]).sum().backward()  # nothing it keeps is an inference tensor

    def test_an_error_in_the_model_leaves_nothing_behind(self, rows):
        model = nn.Sequential(nn.Linear(8, K), Fails()).train()
        with pytest.raises(RuntimeError, match="out of memory"):
            collect(model, [rows], features="0")
        assert n_hooks(model) == 0
        assert all(module.training for module in model.modules())

    @pytest.mark.parametrize("form", ["pair", "mapping"])
    def test_models_that_return_features(self, rows, form):
        class Own(nn.Module):
            def forward(self, x):
                parts = x[:, :K], x.reshape(len(x), 2, 2, 2)
                return parts if form == "pair" else dict(zip(("logits", "features"), parts, strict=True))

        outputs = collect(Own(), [rows])
        np.testing.assert_array_equal(outputs.features, rows[0])
        np.testing.assert_array_equal(outputs.logits, rows[0][:, :K])

    def test_ambiguous_heads_are_named(self, rows):
        model = nn.ModuleDict({"left": nn.Linear(8, K), "right": nn.Linear(8, K)})
        model.forward = lambda x: model["left"](x) + model["right"](x)
        with raises_naming(InputError, "2 linear layers", "4 outputs", "left (8 → 4)", "right (8 → 4)"):
            collect(model, [rows])
        assert collect(model, [rows], features="left").features.shape == (N, 8)
        assert collect(model, [rows], features=False).features is None

    def test_a_model_without_a_head_names_its_linear_layers(self, rows):
        class Cut(Net):
            def forward(self, x):
                return super().forward(x)[:, :3]  # classes not yet seen are cut off

        words = r"no linear layers have 3 outputs.*body.0 \(8 → 16\), neck.1 \(16 → 6\), head \(6 → 4\)"
        with pytest.raises(InputError, match=words):
            collect(Cut(), [rows[0]])
        assert collect(Cut(), [rows[0]], features="head").features.shape == (N, D)

    def test_unknown_layers_are_refused(self, net, rows):
        with pytest.raises(InputError, match=r"got 'haed'. Layers: body, .* head"):
            collect(net, [rows], features="haed")
        with pytest.raises(InputError, match="another Linear"):
            collect(net, [rows], features=nn.Linear(2, 2))

    def test_a_layer_that_runs_twice_or_never_is_refused(self, rows):
        shared = nn.Linear(8, 8)
        model = nn.Sequential(shared, nn.Sequential(shared), nn.Linear(8, K))
        with pytest.raises(InputError, match="'0' ran 2 times"):
            collect(model, [rows], features="0")
        model.register_module("spare", nn.Identity())
        model.forward = lambda x: model[2](x)
        with pytest.raises(InputError, match="'spare' ran 0 times"):
            collect(model, [rows], features="spare")

    @pytest.mark.parametrize(
        ("loader", "words"),
        [
            ([], "at least one batch"),
            ([{"x": 1}], "got a dict"),
            ([(1, 2, 3, 4)], "got a tuple of length 4"),
            ([(torch.zeros(2, 8), ("cat", "dog"))], "labels must be whole numbers; got .*cat"),
            ([(torch.zeros(2, 8), torch.tensor([0, 4]))], "labels must lie in 0 … 3"),
            (
                [torch.zeros(2, 8), (torch.zeros(2, 8), torch.tensor([0, 1]))],
                "labels must be given for all rows or for none",
            ),
            ([torch.full((2, 8), torch.nan)], "logits must be finite"),
        ],
    )
    def test_bad_loaders_are_refused(self, net, loader, words):
        with pytest.raises(InputError, match=words):
            collect(net, loader)

    def test_inputs_may_be_named_tuples(self, rows):
        class Pair(NamedTuple):
            image: torch.Tensor
            age: torch.Tensor

        class Both(nn.Module):
            def __init__(self):
                super().__init__()
                self.head = nn.Linear(8, K)

            def forward(self, pair):
                return self.head(pair.image + pair.age)

        x, y = rows[:2]
        model = Both()
        found = collect(model, [(Pair(x, 0 * x), y)])
        np.testing.assert_array_equal(found.logits, model.head(x).detach().numpy())

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
    def test_other_float_types(self, rows, dtype):
        model = nn.Linear(8, K).to(dtype)
        assert collect(model, [(rows[0].to(dtype), rows[1])]).features.shape == (N, 8)

    def test_a_softmax_at_the_end_is_refused(self, net, rows):
        with pytest.raises(InputError, match="scores before softmax"):
            collect(nn.Sequential(net, nn.Softmax(dim=1)), [rows])

    def test_a_log_softmax_at_the_end_is_harmless(self, net, rows):
        plain, logged = (collect(model, [rows]) for model in (net, nn.Sequential(net, nn.LogSoftmax(dim=1))))
        temperatures = [
            equable.TemperatureScaling().fit(o.logits, o.labels).temperature_ for o in (plain, logged)
        ]
        assert temperatures[0] == pytest.approx(temperatures[1], rel=1e-4)


class TestCalibratedModel:
    @pytest.fixture
    def dats(self, net, rows):
        outputs = collect(net, [rows], tasks=[0, 0, 1, 1])
        return equable.DATS().fit(
            outputs.logits, outputs.labels, features=outputs.features, tasks=outputs.tasks
        )

    @pytest.mark.parametrize("features", [None, "head", "act"])
    def test_finds_the_features_as_collect_does(self, net, rows, dats, features):
        outputs = collect(net, [rows[0]])
        found = CalibratedModel(net, dats, features)(rows[0]).detach()
        expected = dats.predict_proba(outputs.logits, features=outputs.features)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)

    def test_features_that_the_model_returns_go_first(self, rows, dats):
        class Own(nn.Module):
            def __init__(self):
                super().__init__()
                self.head = nn.Linear(8, K)

            def forward(self, x):
                return self.head(x), x[:, :D]  # the head's input has another width

        assert collect(Own(), [rows]).features.shape == (N, D)
        assert CalibratedModel(Own(), dats)(rows[0]).shape == (N, K)

    def test_features_of_another_layer_differ_in_width(self, net, rows, dats):
        with raises_naming(InputError, "features must", "6 columns", "got 16"):
            CalibratedModel(net, dats, "body")(rows[0])

    def test_the_model_is_untouched(self, net, rows, dats):
        net.train()
        net.body.eval()
        before = copy.deepcopy(net.state_dict())
        modes = [module.training for module in net.modules()]
        model = CalibratedModel(net, dats, net.act)
        model(rows[0])
        assert model.model is net
        assert [module.training for module in net.modules()] == modes
        assert n_hooks(net) == 0
        after = net.state_dict()
        assert all(torch.equal(value, before[name]) for name, value in after.items())
        assert list(model.state_dict()) == [f"model.{name}" for name in after]
        assert sum(1 for _ in model.parameters()) == sum(1 for _ in net.parameters())

    def test_no_batch_leaves_a_trace(self, net, rows, dats):
        model = CalibratedModel(net, dats)
        first = model(rows[0][:5])
        model(rows[0][30:])
        assert torch.equal(model(rows[0][:5]), first)

    def test_inference_mode_and_a_single_row(self, net, rows, dats):
        with torch.inference_mode():
            p = CalibratedModel(net, dats)(rows[0][:1])
        assert p.shape == (1, K)
        assert p.sum().item() == pytest.approx(1, abs=1e-12)

    def test_the_whole_model_exports(self, net, rows, dats):
        model = CalibratedModel(net, dats).eval()
        batch = torch.export.Dim("batch", min=1)
        program = torch.export.export(
            model, (rows[0],), dynamic_shapes={"inputs": ({0: batch},)}, strict=False
        )
        for size in (1, 7, N):
            found = program.module()(rows[0][:size])
            expected = model(rows[0][:size])
            np.testing.assert_allclose(found.detach(), expected.detach(), rtol=0, atol=1e-6)
        assert n_hooks(net) == 0

    def test_a_stream_keeps_its_window(self, net, rows, dats):
        stream = equable.Stream(dats, window=8)
        twin = equable.Stream(dats, window=8)
        model = CalibratedModel(net, stream)
        outputs = collect(net, [rows[0]])
        for start in range(0, 20, 5):
            found = model(rows[0][start : start + 5])
            piece = outputs[start : start + 5]
            np.testing.assert_allclose(found, twin.update(piece.logits, piece.features), rtol=0, atol=1e-6)
        assert len(stream) == 8
        with pytest.raises(UnsupportedError, match="probabilities alone"):
            model(rows[0], return_temperature=True)

    def test_a_stream_cannot_be_exported(self, net, rows, dats):
        stream = equable.Stream(dats)
        with pytest.raises(UnsupportedError, match="Stream cannot be exported"):
            torch.export.export(CalibratedModel(net, stream), (rows[0],), strict=False)
        assert len(stream) == 0
        assert n_hooks(net) == 0

    def test_a_calibrator_of_ones_own_runs_in_numpy(self, net, rows):
        class Custom(equable.TemperatureScaling):
            def _temperatures(self, rows):
                return np.full(len(rows), 7.0)

        outputs = collect(net, [rows])
        custom = Custom().fit(outputs.logits, outputs.labels)
        p, temperature = CalibratedModel(net, custom)(rows[0], return_temperature=True)
        assert set(temperature.tolist()) == {7.0}
        np.testing.assert_allclose(p, custom.predict_proba(outputs.logits), atol=1e-6)

    def test_a_head_that_grew_is_refused(self, rows, dats):
        with raises_naming(InputError, "shape (n, 4)", "got (50, 5)", "Fit again"):
            CalibratedModel(Net(n_classes=5), dats, "head")(rows[0])

    def test_a_softmax_is_refused(self, net, rows, dats):
        with pytest.raises(InputError, match="before softmax"):
            CalibratedModel(nn.Sequential(net, nn.Softmax(dim=1)), dats, "0.head")(rows[0])

    def test_few_rows_that_sum_to_one_by_chance_are_served_with_a_warning(self, net, rows):
        outputs = collect(net, [rows])
        calibrator = equable.TemperatureScaling().fit(outputs.logits, outputs.labels)
        lucky = torch.tensor([[0.5, 0.2, 0.2, 0.1]])
        with pytest.warns(EvidenceWarning, match="before softmax"):
            assert CalibratedModel(nn.Identity(), calibrator)(lucky).shape == (1, K)

    def test_nan_is_refused(self, net, rows, dats):
        with pytest.raises(InputError, match="must be finite"):
            CalibratedModel(net, dats)(torch.full((3, 8), torch.nan))

    def test_missing_features_are_explained(self, rows, dats):
        class Cut(Net):
            def forward(self, x):
                return super().forward(x)[:, :K]

        with raises_naming(InputError, "no linear layers", "4 outputs", "head (6 → 9)"):
            CalibratedModel(Cut(n_classes=9), dats)(rows[0])

    def test_an_unfitted_calibrator_is_refused(self, net):
        with pytest.raises(NotFittedError, match="DATS must be fitted"):
            CalibratedModel(net, equable.DATS())
        with pytest.raises(InputError, match="got str"):
            CalibratedModel(net, "dats")


def test_without_torch_the_error_names_the_extra():
    code = """
import sys
sys.modules["torch"] = None
from equable.errors import MissingExtraError
try:
    import equable.integrations.torch
except MissingExtraError as error:
    print(error)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'equable[train]'" in result.stdout
