"""Training of one task: the rows of a step, and the epoch that early stopping keeps."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from equable.errors import ConfigError
from equable.scenarios import make_scenario
from equable.training.images import Images
from equable.training.networks import SlimResNet18, build_network
from equable.training.settings import ReplaySettings
from equable.training.train_task import Epoch, Progress, TaskTrainer, task_seed

SETTINGS = ReplaySettings(batch_size=32, max_epochs=4, memory_size=24, threads=1)


def changed(settings, **changes):
    return ReplaySettings(**{**settings.model_dump(), **changes})


def small_network(seed=0):
    return build_network(lambda k, shape: SlimResNet18(k, shape, nf=2), 6, (8, 8, 1), seed=seed)


@pytest.fixture
def make_trainer(digits, scenario):
    images = Images(digits.images, scenario[0].train)

    def make(index=1, memory_rows=scenario[0].train[:10], **changes):
        rows = np.asarray(memory_rows, dtype=np.int64)
        return TaskTrainer(
            small_network(), images, scenario, index, rows, changed(SETTINGS, **changes), seed=0
        )

    return make


class Bar:
    def update(self): ...

    def set_postfix_str(self, text, refresh=True): ...


@pytest.mark.parametrize("changes", [{"learning_rate": 1e30}, {"weight_decay": 1e4, "max_epochs": 30}])
def test_training_that_diverges_is_told(make_trainer, changes):
    trainer = make_trainer(**changes)
    with pytest.raises(ConfigError, match=r"diverged in epoch \d+ of task 1, seed 0: lower learning_rate"):
        _ = [trainer.run_epoch(Bar()) for _ in range(30)]


def test_batch_norm_is_settled_only_where_the_settings_say_so(make_trainer):
    """Without settling, running statistics are torch's moving averages of the training batches."""
    settled = make_trainer()
    plain = make_trainer(settle_batch_norm=False)
    by_hand = make_trainer()
    settled.run_epoch(Bar())
    plain.run_epoch(Bar())
    network = by_hand.network.train()
    torch.manual_seed(int(torch.randint(2**62, (), generator=by_hand.generator)))
    for rows in by_hand.epoch_batches():
        by_hand.training_step(rows)
    for name, value in network.state_dict().items():
        torch.testing.assert_close(plain.network.state_dict()[name], value, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(settled.network.bn.running_var, plain.network.bn.running_var, rtol=0.05)


def test_batch_norm_that_a_network_keeps_at_rest_keeps_its_statistics(make_trainer):
    class Rested(SlimResNet18):
        def train(self, mode=True):
            super().train(mode)
            self.bn.eval()
            return self

    trainer = make_trainer()
    trainer.network.__class__ = Rested
    trainer.network.bn.running_mean.fill_(3.0)
    trainer.network.bn.running_var.fill_(25.0)
    trainer.run_epoch(Bar())
    assert set(trainer.network.bn.running_mean.tolist()) == {3.0}
    assert set(trainer.network.bn.running_var.tolist()) == {25.0}
    others = [m for n, m in trainer.network.named_modules() if isinstance(m, nn.BatchNorm2d) and n != "bn"]
    assert all(bool((norm.running_var != 1).any()) for norm in others)


def test_each_step_has_b_current_and_b_memory_rows(make_trainer, scenario):
    trainer = make_trainer()
    batches = [rows.numpy() for rows in trainer.epoch_batches()]
    current = np.concatenate([rows[: -SETTINGS.batch_size] for rows in batches])
    assert np.array_equal(np.sort(current), scenario[1].train), "an epoch passes each current row once"
    for rows in batches:
        assert np.isin(rows[-SETTINGS.batch_size :], scenario[0].train[:10]).all()
        assert len(rows[: -SETTINGS.batch_size]) <= SETTINGS.batch_size


def test_the_first_task_has_no_replay(make_trainer, scenario):
    rows = torch.cat(make_trainer(index=0, memory_rows=[]).epoch_batches())
    assert np.array_equal(np.sort(rows.numpy()), scenario[0].train)


@pytest.mark.parametrize(("replayed", "dropped"), [(0, 1), (1, 0)])
def test_a_lone_last_row_is_left_out_without_replay(make_trainer, scenario, replayed, dropped):
    train = scenario[0].train
    trainer = make_trainer(index=0, memory_rows=train[:replayed], batch_size=len(train) - 1)
    assert len(trainer.epoch_batches()) == 2 - dropped


def test_loss_is_the_cross_entropy_over_seen_classes(make_trainer, scenario):
    """One batch, no augmentation: the reported loss is that of the network before the step."""
    trainer = make_trainer(batch_size=len(scenario[1].train))
    twin = make_trainer(batch_size=len(scenario[1].train))
    (rows,) = twin.epoch_batches()
    trainer.epoch_batches = lambda: [rows]
    twin.network.train()
    logits = twin.network(twin.images.batch(rows))[0][:, :5]
    expected = F.cross_entropy(logits, torch.from_numpy(scenario.labels)[rows])
    head = trainer.network.head.weight.detach().clone()
    trainer.run_epoch(Bar())
    assert trainer.progress.epochs[0].loss == pytest.approx(expected.item(), rel=1e-5)
    moved = (trainer.network.head.weight.detach() != head).any(dim=1)
    assert moved.tolist() == [True] * 5 + [False], "a class not yet seen gets no gradient"


class Told(nn.Module):
    """A network that predicts the class encoded in an image's brightness, whatever its weights."""

    def __init__(self, images):
        super().__init__()
        self.images = images
        self.head = nn.Linear(4, 4)
        nn.init.eye_(self.head.weight)

    def features(self, x):
        return F.one_hot(pixels_of(x, self.images).flatten().long(), 4).float()

    def forward(self, x):
        return self.head(self.features(x))


def pixels_of(x, images):
    """The (n, H, W) pixels that a batch of grey images was made of."""
    return (x.detach() * float(images.std[0]) + float(images.mean[0])).round()[:, 0]


#: Part → class → (rows, rows that are named right); the first task's validation and test rows do not matter.
PLANTED = {
    "train": {0: (4, 1), 1: (1, 1), 2: (4, 1), 3: (4, 1)},
    "validation": {0: (3, 3), 1: (3, 3), 2: (2, 1), 3: (8, 6)},
    "test": {0: (2, 2), 1: (2, 2), 2: (2, 2), 3: (4, 0)},
}


@pytest.mark.parametrize(
    ("rule", "score"), [("current", 7 / 10), ("balanced", (1 / 4 + 1 + 1 / 2 + 6 / 8) / 4)]
)
def test_the_score_is_that_of_validation_rows_and_memory(rule, score):
    """On training rows the current task would have 2/8, on test rows 2/6; the balanced means differ, too."""
    table = [
        (part, c, c if row < right else (c + 1) % 4)
        for part, classes in enumerate(PLANTED.values())
        for c, (rows, right) in classes.items()
        for row in range(rows)
    ]
    split, labels, named = np.array(table).T
    scenario = make_scenario(labels, split, order=range(4), tasks=2)
    images = Images(named.astype(np.uint8).reshape(-1, 1, 1, 1), scenario[0].train)
    settings = changed(SETTINGS, early_stopping=rule, learning_rate=1e-6, max_epochs=1)
    trainer = TaskTrainer(Told(images), images, scenario, 1, scenario[0].train, settings, seed=0)
    found = trainer.train().epochs[0]
    assert (found.current_accuracy, found.score) == pytest.approx((7 / 10, score))


class Recording(nn.Module):
    """A network that records its input images, by mode."""

    def __init__(self, images):
        super().__init__()
        self.images = images
        self.head = nn.Linear(36, 4)
        self.shown = {True: set(), False: set()}

    def features(self, x):
        self.shown[self.training] |= {image.numpy().tobytes() for image in pixels_of(x, self.images)}
        return x.flatten(1)

    def forward(self, x):
        return self.head(self.features(x))


@pytest.mark.parametrize(("augmentation", "n_forms"), [("none", 1), ("flips", 4), ("flip_crop", 2 * 9 * 9)])
def test_training_sees_every_form_of_an_image_and_early_stopping_the_image_itself(augmentation, n_forms):
    """All rows are one image without symmetries, so that its forms can be listed."""
    image = np.arange(1, 37, dtype=np.float32).reshape(6, 6)
    padded = [np.pad(side, 4) for side in (image, image[:, ::-1])]
    forms = {
        "none": [image],
        "flips": [image, image[::-1], image[:, ::-1], image[::-1, ::-1]],
        "flip_crop": [side[i : i + 6, j : j + 6] for side in padded for i in range(9) for j in range(9)],
    }[augmentation]
    scenario = make_scenario(np.repeat(np.arange(4), 60), tasks=2)
    images = Images(np.repeat(image.astype(np.uint8)[None, :, :, None], 240, axis=0), scenario[0].train)
    network = Recording(images)
    settings = changed(SETTINGS, augmentation=augmentation, max_epochs=10, learning_rate=1e-6)
    TaskTrainer(network, images, scenario, 1, scenario[0].train, settings, seed=0).train()
    assert len(network.shown[True]) == n_forms
    assert network.shown[True] == {form.tobytes() for form in forms}
    assert network.shown[False] == {image.tobytes()}


class DtypeRecording(Told):
    """Keeps the type of number in which its head computes, by mode."""

    def __init__(self, images):
        super().__init__(images)
        self.dtypes = {True: set(), False: set()}

    def forward(self, x):
        self.dtypes[self.training].add(F.linear(x.flatten(1), torch.ones(4, x[0].numel())).dtype)
        return super().forward(x)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_precision_is_that_of_training_steps_alone(precision):
    scenario = make_scenario(np.repeat(np.arange(4), 10), tasks=2)
    images = Images(np.zeros((40, 1, 1, 1), dtype=np.uint8), scenario[0].train)
    network = DtypeRecording(images)
    settings = changed(SETTINGS, precision=precision, max_epochs=1)
    TaskTrainer(network, images, scenario, 1, scenario[0].train, settings, seed=0).train()
    assert network.dtypes == {True: {getattr(torch, precision)}, False: {torch.float32}}
    assert {p.dtype for p in network.parameters()} == {torch.float32}


def epoch(score):
    return Epoch(loss=1.0, current_accuracy=score, score=score, seconds=1)


@pytest.mark.parametrize(
    ("scores", "best", "stops_after"),
    [
        ([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], 4, 5),  # better each time: the epochs run out
        ([0.5, 0.4, 0.5, 0.9], 0, 3),  # an equal score is no better: patience runs out
        ([0.5, 0.4, 0.6, 0.5, 0.5, 0.9], 2, 5),
    ],
)
def test_patience_and_best_epoch(scores, best, stops_after):
    network = small_network()
    progress = Progress()
    settings = ReplaySettings(max_epochs=5, patience=2)
    for number, score in enumerate(scores):
        if progress.finished(settings):
            break
        with torch.no_grad():
            network.head.bias.fill_(number)
        progress.record(epoch(score), network)
    assert len(progress.epochs) == stops_after
    assert progress.best_epoch == best
    assert progress.best_weights["head.bias"].unique().tolist() == [best]


def test_the_best_weights_are_restored(digits, scenario, monkeypatch):
    scores = iter([(0.5, 0.5), (0.9, 0.9), (0.2, 0.2), (0.3, 0.3)])
    kept = []

    def record(self):
        kept.append({name: value.clone() for name, value in self.network.state_dict().items()})
        return next(scores)

    monkeypatch.setattr(TaskTrainer, "_scores", record)
    network = small_network()
    images = Images(digits.images, scenario[0].train)
    TaskTrainer(network, images, scenario, 0, np.empty(0, np.int64), SETTINGS, seed=0).train()
    assert len(kept) == 4
    assert all(torch.equal(value, kept[1][name]) for name, value in network.state_dict().items())
    assert not network.training


@pytest.mark.parametrize("augmentation", ["none", "flips", "flip_crop"])
def test_the_same_seed_gives_the_same_bits(digits, scenario, augmentation):
    images = Images(digits.images, scenario[0].train)
    settings = changed(SETTINGS, augmentation=augmentation, max_epochs=1, momentum=0.5)
    weights = []
    for seed in (1, 1, 2):
        network = small_network()
        TaskTrainer(network, images, scenario, 1, scenario[0].train[:10], settings, seed=seed).train()
        weights.append(network.head.weight.detach().clone())
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_batch_norm_is_settled_after_an_epoch(make_trainer, scenario):
    """Its statistics are those of the epoch's batches under the final weights."""
    trainer = make_trainer(batch_size=30)
    batches = trainer.epoch_batches()
    trainer.epoch_batches = lambda: batches
    trainer.run_epoch(Bar())
    network = trainer.network
    images = trainer.images
    assert len(batches) == 3
    with torch.no_grad():
        maps = [network.stem(images.batch(rows)).transpose(0, 1).flatten(1) for rows in batches]
    mean, var = (
        torch.stack(values).mean(0) for values in ([m.mean(1) for m in maps], [m.var(1) for m in maps])
    )
    torch.testing.assert_close(network.bn.running_mean, mean, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(network.bn.running_var, var, rtol=1e-4, atol=1e-5)
    assert network.bn.momentum == 0.1


class Dropping(nn.Module):
    """Draws from torch's global generator at every training step."""

    def __init__(self, n_classes, image_shape):
        super().__init__()
        self.head = nn.Linear(64, n_classes)

    def features(self, x):
        return F.dropout(x.flatten(1), 0.5, self.training)

    def forward(self, x):
        return self.head(self.features(x))


def test_dropout_too_resumes_to_the_same_bits(digits, scenario, tmp_path):
    images = Images(digits.images, scenario[0].train)
    path = tmp_path / "epoch.safetensors"
    weights = []
    for interrupted in (False, True):
        torch.manual_seed(int(interrupted))
        for max_epochs in (1, 2) if interrupted else (2,):
            network = build_network(Dropping, 6, (8, 8, 1), seed=0)
            settings = changed(SETTINGS, max_epochs=max_epochs)
            empty = np.empty(0, dtype=np.int64)
            place = path if interrupted else None
            TaskTrainer(network, images, scenario, 0, empty, settings, seed=0).train(place)
        weights.append(network.head.weight.detach().clone())
    assert torch.equal(*weights)


def test_training_leaves_the_global_generator_alone(digits, scenario):
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    images = Images(digits.images, scenario[0].train)
    settings = changed(SETTINGS, max_epochs=1)
    empty = np.empty(0, dtype=np.int64)
    TaskTrainer(small_network(), images, scenario, 0, empty, settings, seed=0).train()
    assert torch.equal(torch.rand(2), expected)


def test_a_checkpoint_of_another_experiment_is_refused(make_trainer, tmp_path):
    trainer = make_trainer()
    trainer.run_epoch(Bar())
    trainer.save(tmp_path / "epoch.safetensors", "this one")
    with pytest.raises(ConfigError, match="must belong to this experiment"):
        make_trainer().restore(tmp_path / "epoch.safetensors", "another")


def test_task_seeds_differ():
    seeds = {task_seed(seed, index) for seed in range(20) for index in range(20)}
    assert len(seeds) == 400
    assert all(0 <= seed < 2**63 for seed in seeds)


def flip(data):
    return data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 255]) + data[len(data) // 2 + 1 :]


DAMAGE = {"none": lambda data: data, "a byte": flip, "truncated": lambda data: data[: len(data) // 2]}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_task_with_replay_resumes_to_the_same_bits(digits, scenario, tmp_path, damage):
    """A damaged checkpoint costs epochs, but changes no bit."""
    images = Images(digits.images, scenario[0].train)
    memory = scenario[0].train[:10]
    path = tmp_path / "epoch.safetensors"

    def trained(epochs, checkpoint=None):
        network = small_network()
        settings = changed(SETTINGS, max_epochs=epochs, patience=9)
        TaskTrainer(network, images, scenario, 1, memory, settings, seed=0).train(checkpoint)
        return network.state_dict()

    whole = trained(3)
    trained(1, checkpoint=path)
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    resumed = trained(3, checkpoint=path)
    assert all(torch.equal(value, resumed[name]) for name, value in whole.items())
