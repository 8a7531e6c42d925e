"""The index page of the results."""

from __future__ import annotations

from collections.abc import Sequence

from equable.reports.figures import Plot, worst_plot
from equable.reports.tables.main import seeds_note
from published.blocks import figure, headless, lines, runs_table, summary_table
from published.claims_page import table
from published.paper_tables import paper_table
from published.runs import RUNS, Published

INTRODUCTION = """# Results

These pages show the effect of calibration on class-incremental networks on real images, and which claims of the DATS paper hold
there. `make results` writes every number and figure in a few minutes, without a network, from the outputs of the final step in
`results/` (logits, features, labels and tasks in float16; no images); `make results RUN=cifar10-slim` writes one page. A test repeats the
computation for some runs.

CIFAR-10, CIFAR-100 and TinyImageNet are the images of the paper, from public copies without the official checksum ("unofficial copy").
Training is shorter than in the paper, the network on CIFAR-100 and TinyImageNet is narrower, and TinyImageNet is resized to 32 px: each
table names what differs. The runs are `equable run cifar10-reduced`, `cifar100-reduced` and `tinyimagenet-reduced`.

BloodCell (rebuilt) and SkinLesions (rebuilt) were created from the source images of BloodMNIST and DermaMNIST, at 28 px and, for
SkinLesions, also at 64 px, the size in the paper. They are **not** the files of the paper: the pixels differ, BloodCell has another
split, and the network on SkinLesions is narrower. Values of the paper are labelled "paper, other pixels". Digits (1,797 images of
8 × 8 pixels from scikit-learn) is a small example with ten seeds. Task order, replay memory and inclusion are those of the paper
([reproduction notes](../reproduction.md))."""

TINYIMAGENET = """TinyImageNet ends far below the accuracy in the paper (22.8 %). Its network distinguishes the classes of one task, but gives most rows of
earlier tasks to the last one: 1,000 images of 200 classes are replayed, five per class. Others report similar values for this setting: experience
replay of 500 images with ResNet18 reached 9.99 ± 0.29 %, and 48.64 ± 0.46 % within the task (Buzzega et al., NeurIPS 2020, as listed by
Cha et al., ICCV 2021). Width and epochs change little: after nine tasks this network has 11.9 %, one of width 16 with 3 epochs per task, not
stored, had 11.7 %. 64 px, the width of 64 and the patience of 50 in the paper were not tried."""

SETTINGS = """## Selection of settings

No numeric setting was optimised on test rows. However, test results were known when some choices were made; the table states
where. Training is deterministic, so some of these development models are bit-identical to published ones:
SkinLesions (rebuilt) with SlimResNet18, seed 0, and Digits, seeds 0, 1 and 2.

| setting | basis of the selection |
|---|---|
| replay memory, inclusion, task order, learning rate, bins, coverage 0.6 | the paper ([table](../reproduction.md#what-the-paper-fixes)); digits: a memory of 20 and all validation rows, because a task has only 54 |
| batch size, maximum of epochs, patience | the available time on two cores; for the rebuilt datasets fixed after an earlier model of each whose test accuracy was known ([training](../training.md#measured)) |
| CIFAR-10, CIFAR-100: epochs, width, bfloat16 | the available time on two cores, before any of these networks was trained; it was known that an earlier CIFAR-10 model with at most 10 epochs reached 61 % on the test rows |
| TinyImageNet: 32 px, epochs, width, bfloat16 | the available time on two cores; it was known that a model of width 16 with 3 epochs per task reached 11.7 % on the test rows after nine tasks |
| early stopping | validation rows of the current task and the replay memory ([rule](../training.md#when-a-task-stops)); two rules were compared on validation sets of one model of SkinLesions |
| recomputed batch norm | the collapse of validation scores without it; the test accuracy of an earlier BloodCell model without it was known ([training](../training.md#measured)) |
| interpretation of Eq. 7 and 9: a weight for each class, mean of T(d_c) | agreement with the paper on *other* data, ResNet32 models on CIFAR-100 trained by other authors ([DATS](../methods/dats.md)). The test rows of those models were used; none of the runs here was |
| no bound on w_c except through T | test rows of an early model of SkinLesions (rebuilt), trained with other code and not published here. The rejected bound was our own and is not in the paper |
| `prior_strength` of DATS and of temperature scaling, 0.1 rows | weaker than one wrong row; the basis of the value 0.1 is not recorded |
| ARC: prior strength 5, task prior | development draws of the same CIFAR-100 outputs, by a rule fixed in advance ([ARC](../methods/arc.md#results)) |
| ARC: one temperature per batch, no fallback to RC | test rows of the runs here, on which two options of earlier versions did not consistently lower the average ECE ([ARC](../methods/arc.md#results)) |
| PTS, ETS, T-CIL, LaSCal | the settings of their authors ([baselines](../reproduction.md#baselines)). For T-CIL, the runs at 28 px and Digits use perturbed rows of an earlier search with exact fits; only the last temperature is fitted by the SGD of the authors |

All models of a rebuilt dataset share its test images. The other seeds and the ResNet32 runs were trained after all settings except the
last one of ARC were fixed."""


PAPER_NETWORK = "SlimResNet18"  # of Tables 1 and 2


def index_plots(runs: Sequence[Published]) -> list[Plot]:
    """Figure 1 of all runs."""
    return [worst_plot([run.results for run in runs])]


def missing(runs: Sequence[Published]) -> str:
    """Runs and seeds that are missing in ``results/``."""
    there = {run.name: len(run.results.seeds) for run in runs}
    gaps = [
        f"{expected.title} ({'not yet stored' if not there.get(name) else f'{there[name]} of {expected.seeds} seeds'})"
        for name, expected in RUNS.items()
        if there.get(name, 0) < expected.seeds
    ]
    return f"**Missing:** {'; '.join(gaps)}." if gaps else ""


def run_block(run: Published) -> str:
    """The main table of one run."""
    return lines(f"### {run.title}", headless(summary_table(run.results)), seeds_note(run.results))


def index_page(runs: Sequence[Published]) -> str:
    """The index page."""
    (worst,) = index_plots(runs)
    return lines(
        INTRODUCTION,
        missing(runs),
        "## Runs",
        runs_table(runs),
        "Accuracy of the uncalibrated network, mean ± standard deviation over seeds. *Within the task*: the class with the largest logit "
        "among those of the row's own task. *Earlier rows given to the last task*: rows of earlier tasks whose predicted class belongs to "
        "the last task.",
        TINYIMAGENET,
        "## After the last task",
        "NLL, average ECE, ΔLECE (change of the ECE of the last task) and maxΔECE (change of the worst task), mean ± standard "
        "deviation over seeds; the best ranked method is in bold. A batch is the test set of one task. The page of each run "
        "contains intervals, the values of the paper and all other results.",
        *(run_block(run) for run in runs),
        "## Tables 1 and 2 of the paper",
        "The seven methods of the paper on its five datasets, ours and as printed. ΔLECE is the change of the ECE of the last task.",
        *(paper_table(run) for run in runs if run.expected.paper and run.expected.network == PAPER_NETWORK),
        figure(f"figures/{worst.name}.svg", worst.alt, worst.caption),
        "## Claims of the paper",
        "The verdicts follow from fixed rules: [rules, intervals and explanations](claims.md).",
        table(runs),
        "## Limits of DATS",
        "Few calibration rows per class, a current task without errors, mixed batches, and distances whose size has no effect: "
        "[measurements of DATS, RC and ARC](limits.md).",
        SETTINGS,
        "## Learners and text",
        "Two learners and a linear head on sentence embeddings of CLINC150, ten seeds each: [learners and methods](learners.md).",
        "```{toctree}\n:glob:\n:hidden:\n\nclaims\nlimits\nlearners\n*\n```",
    )
