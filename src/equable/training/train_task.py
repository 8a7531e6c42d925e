"""Experience replay on one task, with early stopping, checkpoints and resumption to the same bits.

Each step minimises the cross-entropy over the classes seen so far on b rows of the current task and
b rows drawn (with replacement) from the replay memory, which then holds earlier tasks only. After each
epoch batch norm's statistics are averaged anew with the weights fixed (`ReplaySettings.settle_batch_norm`).

Which epoch's weights a task keeps (`ReplaySettings.early_stopping`):

``"balanced"``  the mean over all seen *classes* of their accuracy: current classes on the current task's
                validation rows, earlier classes on the rows of the replay memory. Those rows are trained
                on, so the value flatters; but it falls when old classes are being overwritten, which the
                current task's rows cannot show. The calibration buffer stays untouched.
``"current"``   accuracy on the current task's validation rows (the paper's rule). On a last task with few
                rows it prefers a network that has forgotten everything else.
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
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from tqdm import tqdm

from equable.arrays import IntArray
from equable.errors import ConfigError, FileFormatError
from equable.scenarios.tasks import Scenario
from equable.training.checkpoint import load_tensors, load_weights, prefixed, save_tensors, under
from equable.training.images import Images
from equable.training.networks import seen_logits
from equable.training.settings import ReplaySettings
from equable.training.sgd import SGD

EVALUATION_BATCH = 256
# Batches over which batch norm's statistics are averaged after each epoch.
SETTLING_BATCHES = 10


@dataclass(frozen=True)
class Epoch:
    """What one epoch came to; `score` decides about early stopping."""

    loss: float
    current_accuracy: float
    memory_accuracy: float
    score: float
    seconds: float
    images_per_second: float


@dataclass
class Progress:
    """How far a task has come, as it goes into the checkpoint."""

    epochs: list[Epoch] = field(default_factory=list)
    best_epoch: int = -1
    best_weights: dict[str, Tensor] = field(default_factory=dict)

    def record(self, epoch: Epoch, network: nn.Module) -> None:
        """Append an epoch; keep its weights if its score is the highest so far."""
        self.epochs.append(epoch)
        if self.best_epoch < 0 or epoch.score > self.epochs[self.best_epoch].score:
            self.best_epoch = len(self.epochs) - 1
            self.best_weights = {name: value.clone() for name, value in network.state_dict().items()}

    def finished(self, settings: ReplaySettings) -> bool:
        """Whether the epochs or the patience are used up."""
        waited = len(self.epochs) - 1 - self.best_epoch
        return len(self.epochs) >= settings.max_epochs or (bool(self.epochs) and waited >= settings.patience)


class TaskTrainer:
    """Network, optimiser, generator and data of one task; `train_task` drives it."""

    def __init__(
        self,
        network: nn.Module,
        images: Images,
        scenario: Scenario,
        index: int,
        memory_rows: IntArray,
        settings: ReplaySettings,
        seed: int,
    ) -> None:
        self.network, self.images, self.settings, self.seed = network, images, settings, seed
        self.task, self.n_seen = scenario[index], scenario.n_seen(index)
        self.labels = torch.from_numpy(scenario.labels)
        self.train_rows = torch.from_numpy(self.task.train)
        self.memory_rows = torch.from_numpy(memory_rows)
        self.progress = Progress()
        self.generator = torch.Generator().manual_seed(task_seed(seed, index))
        self.optimiser = SGD(
            list(network.parameters()), settings.learning_rate, settings.momentum, settings.weight_decay
        )

    def run_epoch(self, bar: Any) -> None:
        """One pass over the current task's training rows, then the score."""
        start = time.perf_counter()
        self.network.train()
        # The sum stays on the device: no wait for each step's loss.
        total, n_images = torch.zeros((), device=self.images.device), 0
        # Dropout and the like draw from the global generator: it starts each epoch from ours.
        torch.manual_seed(int(torch.randint(2**62, (), generator=self.generator)))
        batches = self._batches()
        for rows in batches:
            total += self._step(rows) * len(rows)
            n_images += len(rows)
            bar.update(len(rows))
        rate = n_images / (time.perf_counter() - start)
        self._require_finite(float(total))
        if self.settings.settle_batch_norm:
            self._settle_batch_norm(batches[:SETTLING_BATCHES])
        current, memory, score = self._scores()
        epoch = Epoch(
            loss=float(total) / n_images,
            current_accuracy=current,
            memory_accuracy=memory,
            score=score,
            seconds=time.perf_counter() - start,
            images_per_second=rate,
        )
        self.progress.record(epoch, self.network)
        bar.set_postfix_str(f"loss {epoch.loss:.3f}, validation {current:.1%}", refresh=False)

    def _require_finite(self, loss: float) -> None:
        """Stop where training has diverged: no later epoch could mend it."""
        if math.isfinite(loss) and all(bool(p.isfinite().all()) for p in self.network.parameters()):
            return
        where = f"epoch {len(self.progress.epochs) + 1} of task {self.task.index}, seed {self.seed}"
        rate, decay = self.settings.learning_rate, self.settings.weight_decay
        raise ConfigError(
            f"training must keep its numbers finite; it diverged in {where}: lower learning_rate or "
            f"weight_decay; got {rate:g} and {decay:g}"
        )

    def images_per_epoch(self) -> int:
        """Rows that pass through the network in one epoch, replayed ones included."""
        b, n = self.settings.batch_size, len(self.train_rows)
        steps, rest = divmod(n, b)
        steps += rest > self._too_small()
        return steps * b * bool(len(self.memory_rows)) + n - (rest if rest <= self._too_small() else 0)

    def _too_small(self) -> int:
        """Batch norm cannot learn from one row alone: such a last batch is left out."""
        return 0 if len(self.memory_rows) else 1

    def _batches(self) -> list[Tensor]:
        b = self.settings.batch_size
        shuffled = self.train_rows[torch.randperm(len(self.train_rows), generator=self.generator)]
        return [
            rows for rows in map(self._with_memory, torch.split(shuffled, b)) if len(rows) > self._too_small()
        ]

    def _with_memory(self, rows: Tensor) -> Tensor:
        if not len(self.memory_rows):
            return rows
        drawn = torch.randint(len(self.memory_rows), (self.settings.batch_size,), generator=self.generator)
        return torch.cat([rows, self.memory_rows[drawn]])

    def _step(self, rows: Tensor) -> Tensor:
        x = self.images.augmented_batch(rows, self.settings.augmentation, self.generator)
        logits = seen_logits(self.network, x, self.n_seen)
        loss = F.cross_entropy(logits, self.labels[rows].to(self.images.device))
        self.optimiser.step(torch.autograd.grad(loss, self.optimiser.parameters, materialize_grads=True))
        return loss.detach()

    def _settle_batch_norm(self, batches: list[Tensor]) -> None:
        """Replace running statistics by their means over some batches, with the weights fixed.

        Running averages lag behind weights that move fast, as they do at a learning rate of 0.1: with the
        same weights, 10 % of a task's validation rows were right under the one and 79 % under the other.
        """
        norms = [
            module
            for module in self.network.modules()
            # a layer that a network of one's own keeps in eval mode has statistics of its own
            if isinstance(module, _BatchNorm) and module.track_running_stats and module.training
        ]
        momenta = [norm.momentum for norm in norms]
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # torch's way to ask for the plain mean
        with torch.no_grad():
            for rows in batches if norms else ():
                x = self.images.augmented_batch(rows, self.settings.augmentation, self.generator)
                seen_logits(self.network, x, self.n_seen)
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum

    def _scores(self) -> tuple[float, float, float]:
        """Accuracy on the current validation rows, on the replay memory, and the score of the rule."""
        current_y, current_hit = self._hits(torch.from_numpy(self.task.validation))
        memory_y, memory_hit = self._hits(self.memory_rows)
        current, memory = float(current_hit.mean()), float(memory_hit.mean()) if len(memory_hit) else 1.0
        if self.settings.early_stopping == "current":
            return current, memory, current
        classes, which = np.unique(np.concatenate([current_y, memory_y]), return_inverse=True)
        hits = np.bincount(which, np.concatenate([current_hit, memory_hit]), minlength=len(classes))
        return current, memory, float(np.mean(hits / np.bincount(which)))

    def _hits(self, rows: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """True classes of the rows and 1.0 where the network names them, in eval mode."""
        self.network.eval()
        y = self.labels[rows]
        found = [torch.empty(0, dtype=torch.int64)]
        with torch.inference_mode():
            for part in torch.split(rows, EVALUATION_BATCH) if len(rows) else ():
                logits = seen_logits(self.network, self.images.batch(part), self.n_seen)
                found.append(logits.argmax(1).cpu())
        return y.numpy(), (torch.cat(found) == y).double().numpy()

    def save(self, path: Path, stamp: str) -> None:
        """Write everything the next epoch depends on."""
        tensors = {
            **prefixed("network", self.network.state_dict()),
            **prefixed("best", self.progress.best_weights),
            **prefixed("velocity", {str(i): v for i, v in enumerate(self.optimiser.velocity)}),
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
        load_weights(self.network, under("network", tensors), path)
        epochs = [Epoch(**values) for values in facts["epochs"]]
        self.progress = Progress(epochs, facts["best_epoch"], under("best", tensors))
        self.generator.set_state(tensors["generator"])
        velocity = under("velocity", tensors)
        for position, value in enumerate(self.optimiser.velocity):
            value.copy_(velocity[str(position)])


def task_seed(seed: int, index: int) -> int:
    """A seed of its own for each task of a run, so that a run can resume at any task."""
    return int(np.random.SeedSequence([seed, index]).generate_state(1, np.uint64)[0] >> 1)


def train_task(
    network: nn.Module,
    images: Images,
    scenario: Scenario,
    index: int,
    memory_rows: IntArray,
    settings: ReplaySettings,
    *,
    seed: int,
    checkpoint: Path | None = None,
    stamp: str = "",
    progress: bool | None = None,
) -> Progress:
    """Train `network` in place on task `index` and leave it with the best epoch's weights, in eval mode.

    With a `checkpoint` path the state is written there after every epoch and taken up from there if the
    file exists; the same seed then gives the same bits, interrupted or not (same machine and threads).
    `stamp` identifies the experiment a checkpoint belongs to. `progress`: None shows a bar on a terminal.
    """
    trainer = TaskTrainer(network, images, scenario, index, memory_rows, settings, seed)
    if checkpoint is not None and checkpoint.exists():
        with suppress(FileFormatError):  # a damaged one costs its epochs, to the same bits
            trainer.restore(checkpoint, stamp)
    per_epoch, done = trainer.images_per_epoch(), len(trainer.progress.epochs)
    bar = tqdm(
        total=settings.max_epochs * per_epoch,
        initial=done * per_epoch,
        desc=f"task {index + 1}/{len(scenario)}",
        unit=" images",
        unit_scale=True,
        disable=None if progress is None else not progress,
    )
    with bar, torch.random.fork_rng():
        while not trainer.progress.finished(settings):
            trainer.run_epoch(bar)
            if checkpoint is not None:
                trainer.save(checkpoint, stamp)
    load_weights(network, trainer.progress.best_weights, "best weights")
    network.eval()
    return trainer.progress
