"""Read the results of a run from its folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from equable.benchmark import batching, unknown
from equable.benchmark.methods import METHODS
from equable.benchmark.run_folder import changes
from equable.benchmark.score_record import Score
from equable.benchmark.settings_layers import parse_toml
from equable.errors import FileFormatError
from equable.files import read_json, read_sealed
from equable.reports.results.results import Record, Results


def load_results(folder: Path) -> Results:
    """Read the scores of a run folder; everything else where it exists."""
    scores = {}
    noise = {}
    for path in sorted((folder / "scores").glob("seed-*_task-*.json")):
        if path.stem.endswith("_noise_floor"):
            record = read_sealed(path)
            noise[int(record["seed"]), int(record["task"])] = record
        else:
            score = Score.load(path)
            scores[score.seed, score.task, score.method] = score
    if not scores:
        raise FileFormatError(f"{folder}/scores must hold scores; it holds none. Run: equable score {folder}")
    _require_one_setting(folder, scores)
    last = max(task for _, task, _ in scores)
    outputs = {score.outputs for (_, task, _), score in scores.items() if task == last}
    arrivals = list(_measured(folder / "arrivals", outputs, batching.SCHEMA))
    unknowns = _measured(folder / "unknown", outputs, unknown.SCHEMA)
    settings = folder / "config.toml"
    config = parse_toml(settings.read_text(encoding="utf-8", errors="replace"), str(settings))
    methods = config.get("methods", {})
    return Results(
        name=folder.resolve().name,
        config=config,
        environment=read_json(folder / "environment.json"),
        scores=scores,
        noise=noise,
        ablations=_ablations(folder / "ablations", outputs),
        arrivals=tuple(record for stored in arrivals for record in stored["records"]),
        decisions=tuple(record for stored in arrivals for record in stored.get("decisions", [])),
        unknown=tuple(record for stored in unknowns for record in stored["records"]),
        labels={name: str(own.get("label", name)) for name, own in methods.items() if name not in METHODS},
    )


def _require_one_setting(folder: Path, scores: Mapping[tuple[int, int, str], Score]) -> None:
    """Refuse scores of different settings, which no table may compare."""
    first, *others = scores.items()
    for key, score in others:
        changed = changes(first[1].made_with, score.made_with)
        if changed:
            names = ["seed-{}_task-{}_{}.json".format(*found) for found in (first[0], key)]
            raise FileFormatError(
                f"{folder}/scores must be made with the same settings; {names[0]} and {names[1]} differ in "
                f"{'; '.join(changed)}. Run: equable score {folder}"
            )


def _ablations(folder: Path, outputs: set[str]) -> tuple[Record, ...]:
    """The records of these outputs; ``<name>_rc`` is RC in the ablation <name>."""
    records: list[Record] = []
    for path in sorted(folder.glob("*.json")):
        found = read_json(path)
        if not isinstance(found, list) or not all(isinstance(r, dict) and "ablation" in r for r in found):
            raise FileFormatError(f"{path} must hold ablations; it holds something else. Delete it")
        records += [record for record in found if record.get("outputs") in outputs]
    split = [(r, *str(r["ablation"]).partition("_rc")[:2]) for r in records]
    return tuple({**r, "ablation": name, "method": "rc" if rc else "dats"} for r, name, rc in split)


def _measured(folder: Path, outputs: set[str], schema: int) -> Iterator[Record]:
    """What was measured on these outputs; the rest is outdated."""
    for path in sorted(folder.glob("seed-*.json")):
        value = read_sealed(path)
        if not isinstance(value, dict) or not {"outputs", "records"} <= set(value):
            raise FileFormatError(f"{path} must hold records; it holds other keys. Delete it")
        if value.get("schema") == schema and value["outputs"] in outputs:
            yield value
