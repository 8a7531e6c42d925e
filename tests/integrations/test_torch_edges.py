"""Realistic inputs of the torch integration: a correct result or an error, never a silent wrong one."""

import numpy as np
import pytest
from sklearn.base import clone

import equable
from equable.errors import EvidenceWarning, InputError
from planted import make_incremental

DATA = make_incremental(n_per_class=20)
N, K = DATA.logits.shape
D = DATA.features.shape[1]
CALIBRATORS = {
    **{name: kind() for name, kind in equable.CALIBRATORS.items()},
    "dats sample": equable.DATS(distance="sample"),
    "arc": equable.ARC(),
}


@pytest.fixture(params=CALIBRATORS)
def calibrator(request):
    return CALIBRATORS[request.param]


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.fixture
def network(torch):
    """A network that returns the planted logits of its input rows."""

    class Planted(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.head = torch.nn.Linear(D, K, dtype=torch.float64)

        def forward(self, x):
            return self.head(x)

    torch.manual_seed(0)
    return Planted()


def through(torch, network, calibrator, **more):
    from equable.integrations.torch import CalibratedModel

    x = torch.tensor(DATA.features)
    logits = network(x)
    cal = clone(calibrator).fit(logits, DATA.y, features=x, tasks=DATA.tasks)
    return CalibratedModel(network, cal, **more), x, cal, logits


@pytest.mark.filterwarnings("ignore::equable.errors.ConvergenceWarning")
@pytest.mark.parametrize("rows", [1, 2, N])
def test_a_wrapped_model_gives_what_numpy_gives(torch, network, calibrator, rows):
    model, x, cal, logits = through(torch, network, calibrator)
    x = x[:rows].requires_grad_()
    expected = cal.predict_proba(logits[:rows], features=x)
    np.testing.assert_allclose(model(x).detach().numpy(), expected, atol=1e-9)


@pytest.mark.filterwarnings("ignore::equable.errors.ConvergenceWarning")
def test_a_wrapped_model_refuses(torch, network, calibrator):
    from equable.integrations.torch import CalibratedModel

    model, x, cal, _ = through(torch, network, calibrator)
    softened = CalibratedModel(
        torch.nn.Sequential(network, torch.nn.Softmax(dim=1)), cal, features=network.head
    )
    with pytest.raises(InputError, match="before softmax"):
        softened(x)
    with pytest.warns(EvidenceWarning, match="before softmax"):
        softened(x[:1])
    with pytest.raises(InputError, match="at least one row"):
        model(x[:0])
    network.head = torch.nn.Linear(D, K + 1, dtype=torch.float64)
    grown = CalibratedModel(network, cal, features="head")
    with pytest.raises(InputError, match="columns seen at fit"):
        grown(x)


def test_collect(torch, network):
    from equable.integrations.torch import collect

    x = torch.tensor(DATA.features)
    y = torch.tensor(DATA.y)
    expected = collect(network, [(x, y)])
    for labels in (y.float(), y[:, None], y.tolist(), DATA.y):
        again = collect(network, [(x, labels)])
        np.testing.assert_array_equal(again.labels, expected.labels)
        np.testing.assert_array_equal(again.logits, expected.logits)
    ones = collect(network, [(x[i : i + 1], y[i : i + 1]) for i in range(N)])
    np.testing.assert_allclose(ones.logits, expected.logits, atol=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda torch, x, y: [(x, [str(label) for label in y.tolist()])], "labels must be whole numbers"),
        (lambda torch, x, y: [(x, torch.eye(K)[y])], "labels must have shape"),
        (lambda torch, x, y: [(x, y[:-1])], "labels must have shape"),
        (lambda torch, x, y: [(x, y + 1)], "labels must lie in"),
        (lambda torch, x, y: [(x[:0], y[:0])], "at least one row"),
        (lambda torch, x, y: [], "loader must yield at least one batch"),
        (lambda torch, x, y: [(x, y), x], "labels must be given for all rows or for none"),
        (lambda torch, x, y: [(x * torch.nan, y)], "logits must be finite"),
    ],
)
def test_collect_refuses(torch, network, change, message):
    from equable.integrations.torch import collect

    with pytest.raises(InputError, match=message):
        collect(network, change(torch, torch.tensor(DATA.features), torch.tensor(DATA.y)))


def test_collect_finds_the_softmax(torch, network):
    from equable.integrations.torch import collect

    softened = torch.nn.Sequential(network, torch.nn.Softmax(dim=1))
    with pytest.raises(InputError, match="before softmax"):
        collect(softened, [(torch.tensor(DATA.features), torch.tensor(DATA.y))], features=network.head)
