"""Parameter counts and feature sizes as published, and the contract for a user's networks."""

from collections import OrderedDict

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from equable.errors import InputError
from equable.training import ReplaySettings, train_scenario
from equable.training.checkpoint import load_tensors
from equable.training.networks import (
    NETWORKS,
    BasicBlock,
    ResNet32,
    SlimResNet18,
    build_network,
    logits_and_features,
    seen_logits,
)
from equable.training.train_task import TaskTrainer
from messages import raises_naming


@pytest.mark.parametrize(
    ("nf", "pixels", "classes", "features", "parameters"),
    [
        (20, 32, 10, 160, 1_094_750),
        (32, 32, 100, 256, 2_820_740),
        (64, 64, 200, 2048, 11_578_632),
        (64, 64, 7, 2048, 11_183_175),
        (20, 28, 8, 160, 1_094_428),
    ],
)
def test_slim_resnet18_has_the_published_size(nf, pixels, classes, features, parameters):
    network = SlimResNet18(classes, (pixels, pixels, 3), nf=nf)
    assert sum(p.numel() for p in network.parameters()) == parameters
    assert network.head.in_features == features


def test_resnet32_has_the_published_size():
    network = ResNet32(100, (32, 32, 3))
    assert sum(p.numel() for p in network.parameters()) == 472_756
    assert network.head.in_features == 64


@pytest.mark.parametrize("name", ["slim_resnet18", "resnet32"])
@pytest.mark.parametrize("shape", [(8, 8, 1), (33, 33, 3)])
def test_shapes_on_any_image_size(name, shape):
    network = NETWORKS[name](5, shape).eval()
    x = torch.randn(2, shape[2], shape[0], shape[1])
    logits, features = network(x)
    assert logits.shape == (2, 5)
    assert features.shape == (2, network.head.in_features)
    torch.testing.assert_close(features, network.features(x))
    torch.testing.assert_close(logits, network.head(features))


def test_resnet32_starts_from_kaiming_fan_out():
    torch.manual_seed(0)
    weight = ResNet32(10, (32, 32, 3)).stages[10].conv1.weight  # 32 → 64 channels
    assert weight.shape == (64, 32, 3, 3)
    assert weight.std().item() == pytest.approx((2 / (64 * 9)) ** 0.5, rel=0.02)


@pytest.mark.parametrize("pixels", [28, 33])
def test_a_strided_block_is_the_textbooks_to_the_bit_and_its_gradient_keeps_the_layout(pixels):
    torch.manual_seed(0)
    block = BasicBlock(20, 40, 2).to(memory_format=torch.channels_last)
    x = torch.randn(4, 20, pixels, pixels).to(memory_format=torch.channels_last).requires_grad_()
    out = block(x)
    (gradient,) = torch.autograd.grad(out.square().sum(), x)

    conv, norm = block.shortcut
    inner = block.conv2(F.relu(block.bn1(block.conv1(x))))
    textbook = F.relu(block.bn2(inner) + norm(F.conv2d(x[:, :, ::2, ::2], conv.weight)))
    (expected,) = torch.autograd.grad(textbook.square().sum(), x)
    assert torch.equal(out, textbook)
    assert torch.equal(gradient, expected)
    assert gradient.is_contiguous(memory_format=torch.channels_last)


def test_initial_weights_follow_the_seed_and_leave_the_global_generator_alone():
    torch.manual_seed(123)
    expected = torch.rand(3)
    torch.manual_seed(123)
    first, again, other = (build_network(SlimResNet18, 4, (8, 8, 1), seed=seed) for seed in (7, 7, 8))
    assert torch.equal(torch.rand(3), expected)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert not torch.equal(first.stem.weight, other.stem.weight)


def test_a_network_without_features_is_refused():
    with pytest.raises(InputError, match=r"must have 'features'.*Linear has none"):
        build_network(lambda n_classes, shape: nn.Linear(2, n_classes), 3, (8, 8, 1), seed=0)


# ---- own networks: logits, or logits and features, come from forward


class Body(nn.Module):
    """Batch norm and dropout, so that a second pass in train mode would leave a trace."""

    def __init__(self, n_classes, image_shape):
        super().__init__()
        self.norm = nn.BatchNorm2d(image_shape[2])
        self.layer = nn.Linear(64, 6)
        self.passes = 0
        self.fc = nn.Linear(6, n_classes)

    def body(self, x):
        self.passes += 1
        return F.dropout(torch.tanh(self.layer(self.norm(x).flatten(1))), 0.2, self.training)


class Logits(Body):
    def features(self, x):
        return self.body(x)

    def forward(self, x):
        return self.fc(self.features(x))


class Pair(Logits):
    def forward(self, x):
        features = self.features(x)
        return self.fc(features), features


class Backwards(Body):
    """`features` calls `forward` with an early stop; `forward` does not call `features`."""

    def features(self, x):
        return self(x, stop=True)

    def forward(self, x, stop=False):
        return self.body(x) if stop else self.fc(self.body(x))


class Maps(Logits):
    """Features are maps (N, D, 1, 1)."""

    def features(self, x):
        return super().features(x)[:, :, None, None]

    def forward(self, x):
        return self.fc(self.features(x).flatten(1))


class Layered(nn.Module):
    """Features are a module, as in many published networks."""

    def __init__(self, n_classes, image_shape):
        super().__init__()
        parts = {"norm": nn.BatchNorm2d(image_shape[2]), "flat": nn.Flatten(), "layer": nn.Linear(64, 6)}
        self.features = nn.Sequential(OrderedDict(parts, tanh=nn.Tanh(), dropout=nn.Dropout(0.2)))
        self.fc = nn.Linear(6, n_classes)

    def forward(self, x):
        return self.fc(self.features(x))


OWN = [Logits, Backwards, Maps, Layered]


def trained_with(network, digits, scenario, folder, monkeypatch=None):
    """Train; with a monkeypatch, training is interrupted in the second task and resumed."""
    settings = ReplaySettings(batch_size=32, max_epochs=2, memory_size=12, threads=1)

    def train():
        train_scenario(digits, scenario, network, settings, seed=1, folder=folder, progress=False)

    if monkeypatch is not None:
        step = TaskTrainer.training_step

        def interrupted(self, rows):
            if self.task.index == 1 and len(self.progress.epochs) == 1:
                raise KeyboardInterrupt
            return step(self, rows)

        with monkeypatch.context() as patch:
            patch.setattr(TaskTrainer, "training_step", interrupted)
            with pytest.raises(KeyboardInterrupt):
                train()
    train()
    return folder


@pytest.fixture(scope="module")
def with_pair(digits, scenario, tmp_path_factory):
    return trained_with(Pair, digits, scenario, tmp_path_factory.mktemp("with_pair"))


@pytest.mark.parametrize("network", OWN)
def test_every_form_of_an_own_network_trains_to_the_same_bits(
    network, with_pair, digits, scenario, tmp_path, monkeypatch
):
    folder = trained_with(network, digits, scenario, tmp_path, monkeypatch)
    for task in ("task-0", "task-1", "task-2"):
        weights, expected = (load_tensors(f / task / "model.safetensors")[0] for f in (folder, with_pair))
        for name in ("norm.running_mean", "norm.num_batches_tracked", "layer.weight"):
            own = f"features.{name}" if network is Layered else name
            assert torch.equal(weights[own], expected[name]), name
        assert torch.equal(weights["fc.weight"], expected["fc.weight"])
        for name in ("validation.npz", "test.npz", "perturbed.npz"):
            assert (folder / task / name).read_bytes() == (with_pair / task / name).read_bytes(), name


@pytest.mark.parametrize(("network", "in_eval"), [(Pair, 1), (Logits, 2), (Backwards, 2)])
def test_a_training_step_passes_once(network, in_eval):
    built = build_network(network, 4, (8, 8, 1), seed=0)
    x = torch.randn(5, 1, 8, 8)
    built.train()
    seen_logits(built, x, 3)
    assert (built.passes, int(built.norm.num_batches_tracked)) == (1, 1)
    built.eval()
    before = {name: value.clone() for name, value in built.state_dict().items()}
    logits, features = logits_and_features(built, x, 3)
    assert built.passes == 1 + in_eval
    assert features.shape == (5, 6)
    assert torch.equal(logits, seen_logits(built, x, 3))
    assert built.passes == 2 + in_eval
    assert all(torch.equal(value, before[name]) for name, value in built.state_dict().items())


def answering(value, **methods):
    """A network that always returns this."""
    members = {"forward": lambda self, x: value, "features": lambda self, x: x.flatten(1), **methods}
    return type("Odd", (nn.Module,), members)().eval()


@pytest.mark.parametrize(
    ("network", "said"),
    [
        (answering(torch.zeros(3, 2)), r"N = 3, K ≥ 4; Odd returned a tensor \(3, 2\)"),
        (answering(torch.zeros(2, 4)), r"Odd returned a tensor \(2, 4\)"),
        (answering(torch.zeros(3, 4, 1)), r"Odd returned a tensor \(3, 4, 1\)"),
        (answering({"logits": 1}), "must return logits .* or a pair .*; Odd returned dict"),
        (answering(None), "Odd returned NoneType"),
        (answering((None, torch.zeros(3, 4))), r"returned tuple of NoneType, a tensor \(3, 4\)"),
        (answering((torch.zeros(3, 4),) * 3), "returned tuple of a tensor"),
        (answering((torch.zeros(3, 4), "x")), r"features must be .*those of Odd are str"),
        (answering((torch.zeros(3, 4), torch.zeros(3))), r"those of Odd are a tensor \(3,\)"),
        (answering(torch.zeros(3, 4), features=lambda self, x: x[:2]), r"those of Odd are a tensor \(2, 1"),
    ],
)
def test_what_a_network_returns_is_checked(network, said):
    with pytest.raises(InputError, match=said):
        logits_and_features(network, torch.zeros(3, 1, 8, 8), 4)


@pytest.mark.parametrize("network", [Pair, Logits])
def test_a_network_with_too_few_outputs_is_refused_before_it_is_trained(
    network, digits, scenario, tmp_path, monkeypatch
):
    monkeypatch.setattr(TaskTrainer, "training_step", lambda *_: pytest.fail("a step was taken"))
    settings = ReplaySettings(batch_size=32, memory_size=12)

    def narrow(n_classes, image_shape):
        return network(n_classes - 1, image_shape)  # enough for the first tasks

    with raises_naming(InputError, "K ≥ 6", "tensor (32, 5)"):
        train_scenario(digits, scenario, narrow, settings, seed=0, folder=tmp_path, progress=False)
    assert not any(tmp_path.iterdir())


def test_trying_a_network_leaves_the_global_generator_and_the_trained_network_alone(
    digits, scenario, tmp_path, monkeypatch
):
    built = []

    class Drawing(Logits):
        """A network that draws random numbers in eval mode, too."""

        def __init__(self, n_classes, image_shape):
            super().__init__(n_classes, image_shape)
            built.append(self)

        def features(self, x):
            return super().features(x) + torch.rand(())

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(TaskTrainer, "run_epoch", interrupted)
    state = torch.get_rng_state()
    settings = ReplaySettings(batch_size=32, memory_size=12, threads=1)
    with pytest.raises(KeyboardInterrupt):
        train_scenario(digits, scenario, Drawing, settings, seed=0, folder=tmp_path, progress=False)
    assert torch.equal(torch.get_rng_state(), state)
    assert [network.passes for network in built] == [2, 0]


@pytest.mark.parametrize("nf", [3, 4, 8, 20])
def test_gradients_are_right_with_few_channels(nf):
    """Strided 1×1 convolutions of few channels are wrong, or worse, in some builds of torch."""
    network = build_network(lambda k, shape: SlimResNet18(k, shape, nf=nf), 4, (8, 8, 1), seed=0).eval()
    exact = SlimResNet18(4, (8, 8, 1), nf=nf).double().eval()
    exact.load_state_dict(network.state_dict())
    x = torch.randn(16, 8, 8, 1, generator=torch.Generator().manual_seed(0)).permute(0, 3, 1, 2)
    gradients = [
        torch.autograd.grad(net(data)[0].square().mean(), list(net.parameters()))
        for net, data in ((network, x), (exact, x.double()))
    ]
    for ours, true in zip(*gradients, strict=True):
        torch.testing.assert_close(ours.double(), true, rtol=1e-3, atol=1e-5 * float(true.abs().max()) + 1e-9)
