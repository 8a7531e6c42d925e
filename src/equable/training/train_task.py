"""Training on one task, with early stopping and checkpoints; a resumed training gives the same bits.

The learner of the settings (`equable.training.learners`) composes each batch and defines its loss; the replay
memory holds rows of earlier tasks only. After each epoch batch norm's statistics are replaced by means with
the weights fixed (`ReplaySettings.settle_batch_norm`).

A task keeps the weights of the epoch with the highest score (`ReplaySettings.early_stopping`):

``"balanced"``  the mean over all seen *classes* of their accuracy: current classes on the current task's
                validation rows, earlier classes on the rows of the replay memory. Those rows are trained
                on, so the value is too high; but it falls when old classes are forgotten, which the
                current task's rows cannot show. The calibration buffer is not used.
``"current"``   accuracy on the current task's validation rows (the paper's rule). On a last task with few
                rows it selects a network that has forgotten everything else.
"""

from __future__ import annotations

import math
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from tqdm import tqdm

from equable.arrays import IntArray
from equable.errors import ConfigError, FileFormatError
from equable.scenarios.tasks import Scenario
from equable.training.checkpoint import add_prefix, load_tensors, load_weights, save_tensors, with_prefix
from equable.training.collect import forward_rows
from equable.training.exemplars import make_exemplars
from equable.training.learners import load_learner
from equable.training.networks import seen_logits
from equable.training.settings import TrainingSettings
from equable.training.sgd import SGD
from equable.training.vectors import Inputs

# Batches over which batch norm's statistics are averaged after each epoch.
SETTLING_BATCHES = 10


@dataclass(frozen=True)
class Epoch:
    """Results of one epoch; `score` determines early stopping."""

    loss: float
    current_accuracy: float
    score: float
    seconds: float


@dataclass
class Progress:
    """The state of early stopping, part of the checkpoint."""

    epochs: list[Epoch] = field(default_factory=list)
    best_epoch: int = -1
    best_weights: dict[str, Tensor] = field(default_factory=dict)

    def record(self, epoch: Epoch, network: nn.Module) -> None:
        """Append an epoch; keep its weights if its score is the highest so far."""
        self.epochs.append(epoch)
        if self.best_epoch < 0 or epoch.score > self.epochs[self.best_epoch].score:
            self.best_epoch = len(self.epochs) - 1
            self.best_weights = {name: value.clone() for name, value in network.state_dict().items()}

    def finished(self, settings: TrainingSettings) -> bool:
        """Whether the epochs or the patience are used up."""
        if not self.epochs:
            return False
        waited = len(self.epochs) - 1 - self.best_epoch
        return len(self.epochs) >= settings.max_epochs or waited >= settings.patience


class TaskTrainer:
    """Network, optimiser, generator and data of task `index`.

    `memory_logits` are the stored logits of the memory rows, for learners that use them. The same seed gives
    the same bits, interrupted or not (same machine and threads).
    """

    def __init__(
        self,
        network: nn.Module,
        images: Inputs,
        scenario: Scenario,
        index: int,
        memory_rows: IntArray,
        settings: TrainingSettings,
        seed: int,
        memory_logits: np.ndarray | None = None,
    ) -> None:
        self.network = network
        self.images = images
        self.settings = settings
        self.seed = seed
        self.task = scenario[index]
        self.title = f"task {index + 1}/{len(scenario)}"
        self.n_seen = scenario.n_seen(index)
        self.labels = torch.from_numpy(scenario.labels)
        self.memory_rows = memory_rows
        memory = make_exemplars(memory_rows, scenario, memory_logits)
        self.learner = load_learner(settings.learner)(network, images, memory, settings)
        self.progress = Progress()
        self.generator = torch.Generator().manual_seed(task_seed(seed, index))
        self.optimiser = SGD(
            list(network.parameters()), settings.learning_rate, settings.momentum, settings.weight_decay
        )

    def train(
        self, checkpoint: Path | None = None, stamp: str = "", progress_bar: bool | None = None
    ) -> Progress:
        """Train the network in place and leave it with the best epoch's weights, in eval mode.

        With a `checkpoint` path the state is written there after every epoch and read from there if the file
        exists; `stamp` identifies its experiment. `progress_bar` None shows a bar on a terminal.
        """
        if checkpoint is not None and checkpoint.exists():
            with suppress(FileFormatError):  # the epochs of a damaged one are trained again
                self.restore(checkpoint, stamp)
        steps = -(-len(self.task.train) // self.settings.batch_size)
        bar = tqdm(
            total=self.settings.max_epochs * steps,
            initial=len(self.progress.epochs) * steps,
            desc=self.title,
            unit=" steps",
            disable=None if progress_bar is None else not progress_bar,
        )
        with bar, torch.random.fork_rng():
            while not self.progress.finished(self.settings):
                self.run_epoch(bar)
                if checkpoint is not None:
                    self.save(checkpoint, stamp)
        load_weights(self.network, self.progress.best_weights, "best weights")
        self.network.eval()
        return self.progress

    def run_epoch(self, bar: Any) -> None:
        """One pass over the current task's training rows, then the score."""
        start = time.perf_counter()
        self.network.train()
        # The sum stays on the device, so that no step waits for its loss.
        total = torch.zeros((), device=self.images.device)
        n_images = 0
        # Dropout draws from the global generator, which is seeded from the task's own each epoch.
        torch.manual_seed(int(torch.randint(2**62, (), generator=self.generator)))
        batches = self.epoch_batches()
        for rows in batches:
            total += self.training_step(rows) * len(rows)
            n_images += len(rows)
            bar.update()
        self._require_finite(float(total))
        if self.settings.settle_batch_norm:
            self._settle_batch_norm(batches[:SETTLING_BATCHES])
        current, score = self._scores()
        epoch = Epoch(
            loss=float(total) / n_images,
            current_accuracy=current,
            score=score,
            seconds=time.perf_counter() - start,
        )
        self.progress.record(epoch, self.network)
        bar.set_postfix_str(f"loss {epoch.loss:.3f}, validation {current:.1%}", refresh=False)

    def _require_finite(self, loss: float) -> None:
        """Raise if training has diverged."""
        if math.isfinite(loss) and all(bool(p.isfinite().all()) for p in self.network.parameters()):
            return
        where = f"epoch {len(self.progress.epochs) + 1} of task {self.task.index}, seed {self.seed}"
        given = f"{self.settings.learning_rate:g} and {self.settings.weight_decay:g}"
        raise ConfigError(
            f"training must keep its numbers finite; it diverged in {where}: lower learning_rate or "
            f"weight_decay; got {given}"
        )

    def epoch_batches(self) -> list[Tensor]:
        """All batches of an epoch; one of a single row is left out, as batch norm cannot learn from it."""
        order = torch.randperm(len(self.task.train), generator=self.generator)
        shuffled = torch.from_numpy(self.task.train)[order]
        parts = torch.split(shuffled, self.settings.batch_size)
        batches = [self.learner.batch(rows, self.generator) for rows in parts]
        return [rows for rows in batches if len(rows) > 1]

    def training_step(self, rows: Tensor) -> Tensor:
        """One step of the optimiser on a batch; returns its loss."""
        x = self.images.augmented_batch(rows, self.settings.augmentation, self.generator)
        mixed = self.settings.precision == "bfloat16"
        with torch.autocast(x.device.type, torch.bfloat16, enabled=mixed):
            logits = seen_logits(self.network, x, self.n_seen)
        loss: Tensor = self.learner.loss(logits.float(), self.labels[rows].to(self.images.device), rows)
        self.optimiser.step(torch.autograd.grad(loss, self.optimiser.parameters, materialize_grads=True))
        return loss.detach()

    def _settle_batch_norm(self, batches: list[Tensor]) -> None:
        """Replace running statistics by their means over some batches, with the weights fixed.

        Running averages lag behind weights that move fast, as at a learning rate of 0.1: in one run the same
        weights had a validation accuracy of 10 % with running averages and 79 % with these means.
        """
        norms = [
            module
            for module in self.network.modules()
            # a layer that the network keeps in eval mode has fixed statistics
            if isinstance(module, _BatchNorm) and module.track_running_stats and module.training
        ]
        momenta = [norm.momentum for norm in norms]
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # torch then keeps the plain mean
        with torch.no_grad():
            for rows in batches if norms else ():
                x = self.images.augmented_batch(rows, self.settings.augmentation, self.generator)
                seen_logits(self.network, x, self.n_seen)
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum

    def _scores(self) -> tuple[float, float]:
        """Accuracy on the current validation rows, and the score."""
        current_y, current_hit = self._hits(self.task.validation)
        current = float(current_hit.mean())
        if self.settings.early_stopping == "current":
            return current, current
        memory_y, memory_hit = self._hits(self.memory_rows)
        classes, which = np.unique(np.concatenate([current_y, memory_y]), return_inverse=True)
        hits = np.bincount(which, np.concatenate([current_hit, memory_hit]), minlength=len(classes))
        return current, float(np.mean(hits / np.bincount(which)))

    def _hits(self, rows: IntArray) -> tuple[IntArray, np.ndarray]:
        """True classes of the rows, and 1.0 where the network predicts them, in eval mode."""
        y = self.labels.numpy()[rows]
        if not len(rows):
            return y, np.empty(0)
        logits, _ = forward_rows(self.network, self.images, rows, self.n_seen)
        return y, (logits.argmax(axis=1) == y).astype(np.float64)

    def save(self, path: Path, stamp: str) -> None:
        """Write everything the next epoch depends on."""
        tensors = {
            **add_prefix("network", self.network.state_dict()),
            **add_prefix("best", self.progress.best_weights),
            **add_prefix("velocity", {str(i): v for i, v in enumerate(self.optimiser.velocity)}),
            "generator": self.generator.get_state(),
        }
        facts = {
            "stamp": stamp,
            "best_epoch": self.progress.best_epoch,
            "epochs": [asdict(epoch) for epoch in self.progress.epochs],
        }
        save_tensors(path, tensors, facts)

    def restore(self, path: Path, stamp: str) -> None:
        """Continue from a checkpoint; one of another experiment is refused."""
        tensors, facts = load_tensors(path)
        if facts.get("stamp") != stamp:
            raise ConfigError(
                f"{path} must belong to this experiment; it was written with other data or settings"
            )
        load_weights(self.network, with_prefix("network", tensors), path)
        epochs = [Epoch(**values) for values in facts["epochs"]]
        self.progress = Progress(epochs, facts["best_epoch"], with_prefix("best", tensors))
        self.generator.set_state(tensors["generator"])
        velocity = with_prefix("velocity", tensors)
        for position, value in enumerate(self.optimiser.velocity):
            value.copy_(velocity[str(position)])


def task_seed(seed: int, index: int) -> int:
    """The seed of one task, so that a run can resume at any task."""
    return int(np.random.SeedSequence([seed, index]).generate_state(1, np.uint64)[0] >> 1)
