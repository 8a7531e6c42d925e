"""The calibrators in torch operators give the results of numpy, eager and exported."""

import numpy as np
import pytest

import equable
from equable.errors import EvidenceWarning, UnsupportedError

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'equable[train]'")

from torch import nn  # noqa: E402

from equable.integrations.torch import Calibrated, CalibratedModel  # noqa: E402
from integrations.conftest import NO_TEMPERATURE, hard_batches  # noqa: E402
from planted import make_incremental  # noqa: E402


class Pair(nn.Module):
    """A model that returns its inputs as logits and features."""

    def forward(self, logits, features):
        return logits, features


@pytest.mark.usefixtures("few_rows_are_fine")
class TestArithmetic:
    def test_agrees_with_numpy(self, calibrator, batches):
        model = CalibratedModel(Pair(), calibrator)
        for logits, features in batches:
            found = model(torch.tensor(logits), torch.tensor(features))
            expected = calibrator.predict_proba(logits, features=features)
            assert found.dtype == torch.float64
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)

    @pytest.mark.parametrize("name", ["taskmix", "taskmix newest"])
    def test_rows_that_are_alike_certain_or_masked(self, fitted, unseen_rows, name):
        model = CalibratedModel(nn.Identity(), fitted[name])
        for logits in hard_batches(unseen_rows.logits):
            found = model(torch.tensor(logits))
            np.testing.assert_allclose(found, fitted[name].predict_proba(logits), rtol=0, atol=1e-9)

    def test_the_temperature_comes_along(self, calibrator, batches):
        model = CalibratedModel(Pair(), calibrator)
        logits, features = batches[3]
        arguments = torch.tensor(logits), torch.tensor(features)
        if isinstance(calibrator, NO_TEMPERATURE):
            with pytest.raises(UnsupportedError, match="no single temperature"):
                model(*arguments, return_temperature=True)
            return
        result = model(*arguments, return_temperature=True)
        assert isinstance(result, Calibrated)
        expected = calibrator.temperature(logits, features=features)
        np.testing.assert_allclose(result.temperature, expected, rtol=1e-9)
        assert torch.equal(result.probabilities, model(*arguments))

    @pytest.mark.parametrize("kind", [equable.ARC, equable.DATS, equable.TaskMix])
    def test_agrees_on_many_classes(self, kind):
        data = make_incremental(n_per_class=8, temperatures=(5.0, 3.0, 2.0, 1.0), classes_per_task=10)
        calibrator = kind().fit(data.logits, data.y, features=data.features, tasks=data.tasks)
        model = CalibratedModel(Pair(), calibrator)
        for task in range(4):
            logits = data.logits[data.tasks == task]
            features = data.features[data.tasks == task]
            found = model(torch.tensor(logits), torch.tensor(features))
            expected = calibrator.predict_proba(logits, features=features)
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)

    # the other layers are traced by the tests of the ONNX graphs
    @pytest.mark.parametrize("name", ["ts", "dats"])
    def test_an_exported_graph_agrees_too(self, fitted, batches, name):
        model = CalibratedModel(Pair(), fitted[name])
        example = tuple(map(torch.tensor, batches[3]))
        rows = torch.export.Dim("rows", min=1)
        program = torch.export.export(
            model, example, dynamic_shapes={"inputs": ({0: rows}, {0: rows})}, strict=False
        ).module()
        for logits, features in batches[:5] + batches[-1:]:
            expected = fitted[name].predict_proba(logits, features=features)
            found = program(torch.tensor(logits), torch.tensor(features))
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)
        for bad in (np.nan, np.inf, -np.inf):
            logits, features = (part.clone() for part in example)
            logits[0, 1] = bad
            found = program(logits, features)
            assert bool(found[0].isnan().all())
            assert bool(found[1:].isnan().any()) == name.startswith(("arc", "taskmix"))
            if name.startswith("dats"):
                features[0, 0] = bad
                assert bool(program(example[0], features).isnan().all())

    def test_casting_the_module_casts_no_calibrator(self, fitted, batches):
        model = CalibratedModel(Pair(), fitted["arc"])
        arguments = tuple(map(torch.tensor, batches[3]))
        before = model(*arguments)
        assert torch.equal(model.half()(*arguments), before)


def test_little_evidence_is_said(incremental):
    rare = np.concatenate([np.flatnonzero(incremental.y == c)[: 2 if c < 3 else 40] for c in range(9)])
    calibrator = equable.ARC().fit(incremental.logits[rare], incremental.y[rare])
    batch = 30 * np.eye(9)[[0, 1, 2] * 10]
    with pytest.warns(EvidenceWarning):
        calibrator.predict_proba(batch)
    with pytest.warns(EvidenceWarning, match="fewer than 10"):
        CalibratedModel(nn.Identity(), calibrator)(torch.tensor(batch))
