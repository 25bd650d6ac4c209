"""docs/comparison.md and the advice that the package carries, both generated from docs/results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from softnic.experiments import photos, torch_models
from softnic.experiments.compare import advice, link_report, overview
from softnic.experiments.compare.advice import Advice, ComparedModel
from softnic.experiments.compare.check import CHECKED, StepTime
from softnic.experiments.compare.plan import FULL, METHODS, PRESETS, TrainingJob
from softnic.experiments.compare.results import TrainingResult, kept_trainings, kept_units
from softnic.experiments.compare.summary import (
    RATES,
    REFERENCE,
    MethodSummary,
    ModelSummary,
    has_feedback,
    is_ours,
    summaries,
)
from softnic.measure import pages
from softnic.measure.plot import Curves, draw
from softnic.measure.report import milliseconds
from softnic.units import rate_bps, text_rate

RESULTS = Path("docs", "results")
PAGE = Path("docs", "comparison.md")
LONGER = "longer"
"""Directory in RESULTS of exact trainings with more steps."""
_ALLOWED_LOSS, _WANTED_RATIO = 0.002, 8.0
"""Points and ratio that a method with error feedback is to reach on every model."""
_DRAWN = (
    "exact",
    "fp16",
    "powersgd:4",
    "powersgd:4+rht:4",
    "bounded:10",
    "rht:4",
    "feedback:rht:3",
    "feedback:relative:-1",
    "scalecom:0.01",
)
"""Methods in the plots."""
_DRAWN_RATE = "100mbit"


def summarised(directory: Path, models: Iterable[str] = torch_models.NAMES) -> list[ModelSummary]:
    """Return a summary for each model of which the directory has an exact training; all have one schedule.

    Trainings of other schedules or data than the latest exact one are left out. Raises OSError, ValueError.
    """
    found = []
    for model in models:
        kept_pairs = kept_trainings(directory, model)
        exact = [job for job, result in kept_pairs if job.method == REFERENCE and not result.diverged]
        if exact:
            results = [result for job, result in kept_pairs if _same(job, exact[-1])]
            try:
                found.append(_summary(exact[-1], results))
            except (ValueError, LookupError, ArithmeticError) as error:
                raise ValueError(f"the results of {model} in {directory} cannot be compared: {error}") from None
    return found


def _same(job: TrainingJob, other: TrainingJob) -> bool:
    """Return whether two jobs differ in method and seed at most."""
    return (job.training, job.workers, job.data) == (other.training, other.workers, other.data)


def _summary(job: TrainingJob, results: Sequence[TrainingResult]) -> ModelSummary:
    exact = [result for result in results if result.method == REFERENCE]
    text = torch_models.reads_text(job.model)
    return ModelSummary(
        model=job.model,
        data=job.data or ("Python's language reference" if text else "scikit-learn's digits"),
        parameters=_parameters(job),
        compute_s=min(result.last.compute_s for result in exact),
        workers=job.workers,
        batch=job.training.batch,
        steps=job.training.steps,
        took_s=sum(result.took_s for result in results),
        methods=summaries(results, job.model),
    )


def _parameters(job: TrainingJob) -> int:
    if job.learns_photographs:
        return torch_models.parameters(job.model, photos.CHANNELS, photos.CLASSES)
    return torch_models.parameters(job.model)


def regions(directory: Path) -> dict[str, str]:
    """Return the generated regions of docs/comparison.md, from the results of docs/results.

    Raises OSError, ValueError; ImportError without torch.
    """
    models = summarised(directory)
    comparable = [summary for summary in models if summary.is_comparable]
    compared = list(map(advice.compared, comparable))
    return {
        "compare-run": _run(models),
        "compare-longer": _longer(models, summarised(directory / LONGER)),
        "compare-headline": _headline(compared),
        "compare-advice": _advice(compared),
        "compare-losses": _losses(comparable),
        "compare-feedback": _feedback(comparable),
        "compare-tables": "\n\n".join(map(_table, models)) or _NOTHING,
        "compare-check": _check(directory / CHECKED),
    }


def rebuild(root: Path) -> list[Path]:
    """Generate page, plots and advice of a checkout, and the first screen. Returns the files that were written.

    Raises OSError, PageError, ValueError; ImportError without torch.
    """
    directory, page = root / RESULTS, root / PAGE
    models = summarised(directory)
    written = [page, root / "softnic" / "experiments" / "compare" / advice.PUBLISHED.name]
    published = [advice.compared(summary) for summary in models if summary.is_comparable]
    written[1].write_text(advice.content(published), encoding="utf-8")
    for summary in models:
        path = directory / f"compare-{summary.model}.svg"
        _draw(summary, directory, path)
        written.append(path)
    page.write_text(pages.rebuilt(page.read_text(encoding="utf-8"), regions(directory)), encoding="utf-8")
    return written + _first_screen(root, models)


def _first_screen(root: Path, models: Sequence[ModelSummary]) -> list[Path]:
    """Draw the picture at the top of README.md and docs/index.md, and write the table below it. Returns the files."""
    written = []
    if shown := overview.panels(root / RESULTS, models):
        written.append(picture := root / "docs" / "figures" / "overview.svg")
        picture.parent.mkdir(exist_ok=True)
        picture.write_text(overview.svg(shown), encoding="utf-8")
    first = [path for path in (root / "README.md", root / "docs" / "index.md") if path.exists()]
    for path in first:
        text = path.read_text(encoding="utf-8")
        path.write_text(pages.rebuilt(text, {"accuracy": overview.accuracy(models)}), encoding="utf-8")
    return [*written, *first]


_NOTHING = "No results yet."


def _run(models: Sequence[ModelSummary]) -> str:
    """Return what has been run, of what the preset has."""
    seeds = len(PRESETS["full"].seeds)
    rows = []
    for model, training in FULL.items():
        summary = next((each for each in models if each.model == model), None)
        done = [] if summary is None else [len(each.seeds) for each in summary.methods]
        rows.append(
            [
                f"`{model}`",
                "" if summary is None else summary.data,
                f"{training.steps} steps of 4 x {training.batch}",
                f"{sum(done)} of {len(METHODS) * seeds}",
                f"{sum(count == seeds for count in done)} of {len(METHODS)}",
                "" if summary is None else f"{summary.took_s / 60:.0f} min",
            ]
        )
    return pages.table(["model", "data", "training", "trainings run", f"methods with {seeds} seeds", "took"], rows)


def _longer(models: Sequence[ModelSummary], longer: Sequence[ModelSummary]) -> str:
    """Return what exact trainings gain by more steps, by the seeds that have both."""
    usual = {each.model: each for each in models}
    rows = []
    for summary in longer:
        more = summary.of(REFERENCE)
        own = usual[summary.model].of(REFERENCE).only(more.seeds) if summary.model in usual else None
        if own is not None and own.score is not None and more.score is not None:
            score, better = (advice.score(summary.model, each) for each in (own.score, more.score))
            gained = advice.change(summary.model, more.score.less(own.score))
            rows.append(
                [f"`{summary.model}`", str(usual[summary.model].steps), score, str(summary.steps), better, gained]
            )
    return pages.table(["model", "steps", "score", "more steps", "score", "change"], rows) if rows else _NOTHING


def _headline(models: Sequence[ComparedModel]) -> str:
    """Return by how much softnic's best method is sooner than the best of PyTorch's hooks, over all models."""
    cells = []
    for rate in RATES:
        given = [advice.advise(model, rate_bps(rate)) for model in models]
        times = [
            each.peer.seconds / each.ours.seconds for each in given if each.peer is not None and each.ours is not None
        ]
        cells.append(f"{min(times):.2f} to {max(times):.2f}" if times else "")
    headings = ["links", *(text_rate(rate_bps(rate)) for rate in RATES)]
    names = ", ".join(f"`{each.model}`" for each in models)
    return pages.table(headings, [[f"times as soon: {names}", *cells]]) if models else _NOTHING


def _advice(models: Sequence[ComparedModel]) -> str:
    rows = []
    for model in models:
        for rate in RATES:
            given = advice.advise(model, rate_bps(rate))
            rows.append([f"`{model.model}`", text_rate(rate_bps(rate)), *_advised(given)])
    headings = ["model", "links", "soonest", "s to the score", "seeds", "best of fp16, bf16, PowerSGD", "times as soon"]
    return pages.table(headings, rows) if rows else _NOTHING


def _advised(given: Advice) -> list[str]:
    best, peer, ours = given.best, given.peer, given.ours
    cells = [f"`{best.method.method}`", f"{best.seconds:.1f}", str(len(given.model.seeds))]
    if peer is None:
        return [*cells, "never reach it", ""]
    ahead = "" if ours is None else f"{peer.seconds / ours.seconds:.2f}"
    return [*cells, f"`{peer.method.method}`, {peer.seconds:.1f} s", ahead]


def _losses(models: Sequence[ModelSummary]) -> str:
    """Return where softnic's best method is later than the best of PyTorch's hooks, and what never gets there."""
    lines = []
    for summary in models:
        model = advice.compared(summary)
        for rate in RATES:
            given = advice.advise(model, rate_bps(rate))
            if given.best is not given.ours:
                ours = "none of softnic's reaches the score"
                if given.ours is not None:
                    times = given.ours.seconds / given.best.seconds
                    ours = f"softnic's best, `{given.ours.method.method}`, takes {times:.2f} times as long"
                where = f"`{summary.model}` at {text_rate(rate_bps(rate))}"
                lines.append(f"- {where}: `{given.best.method.method}` is first; {ours}.")
        late = [each for each in summary.methods if is_ours(each.method) and each.to_score is None]
        if late:
            names = ", ".join(f"`{each.method}` ({_behind(summary, each)})" for each in late)
            lines.append(f"- `{summary.model}`: these do not reach the score: {names}.")
    return "\n".join(lines) or ("With none of these models and links." if models else _NOTHING)


def _behind(summary: ModelSummary, method: MethodSummary) -> str:
    return link_report.DIVERGED if method.change is None else advice.change(summary.model, method.change)


def _feedback(models: Sequence[ModelSummary]) -> str:
    """Return the best method with error feedback of each model, beside what is wanted of it."""
    rows = []
    for summary in models:
        known = [each for each in summary.methods if has_feedback(each.method) and each.change is not None]
        if known:
            rows.append(_feedback_row(summary, known))
    headings = ["model", "method", "change", "ratio", "seeds", "within 0.2 points at a ratio over 8"]
    return pages.table(headings, rows) if rows else _NOTHING


def _feedback_row(summary: ModelSummary, known: Sequence[MethodSummary]) -> list[str]:
    wide = [each for each in known if each.ratio > _WANTED_RATIO] or known
    text = torch_models.reads_text(summary.model)

    def lost(each: MethodSummary) -> float:
        mean = each.change.mean if each.change is not None else float("nan")
        return mean if text else -mean

    best = min(wide, key=lost)
    reached = best.ratio > _WANTED_RATIO and lost(best) <= (0.01 if text else _ALLOWED_LOSS)
    cells = [f"`{summary.model}`", f"`{best.method}`", advice.change(summary.model, best.change) if best.change else ""]
    return [*cells, f"{best.ratio:.1f}", str(len(best.seeds)), "yes" if reached else "no"]


def _table(summary: ModelSummary) -> str:
    title = (
        f"**{summary.model}, {summary.steps} steps of {summary.workers} x {summary.batch} samples of {summary.data}**"
    )
    method, *columns = link_report.columns(summary.model, RATES)
    times = len(columns) - len(RATES)
    halves = ([method, *columns[:times]], [method, *columns[times:]])
    rows = link_report.rows(summary.methods)
    tables = (
        pages.table([each.heading for each in half], [[each.text(row) for each in half] for row in rows])
        for half in halves
    )
    return "\n\n".join([title, *tables, f"![{summary.model}](results/compare-{summary.model}.svg)"])


def _check(path: Path) -> str:
    found = [StepTime(**unit["value"]) for unit in kept_units(path)]
    if not found:
        return _NOTHING
    rows = [
        [
            f"`{each.model}`",
            f"`{each.method}`",
            text_rate(rate_bps(each.rate)),
            *map(milliseconds, (each.measured_s, each.computed_s, each.cores_s)),
            f"{each.ratio:.2f}",
        ]
        for each in found
    ]
    headings = ["model", "method", "links", "measured ms", "computed ms", "CPU / cores, ms", "measured / larger"]
    return pages.table(headings, rows)


def _limits(summary: ModelSummary, exact: Sequence[tuple[float, float]]) -> tuple[float | None, float | None]:
    """Return the scores to be drawn: those from the exact training's first on, where the methods differ."""
    scores = [score for _, score in exact]
    margin = 0.1 * (max(scores) - min(scores))
    if torch_models.reads_text(summary.model):
        return None, max(scores) + margin
    return min(scores) - margin, None


def _draw(summary: ModelSummary, directory: Path, path: Path) -> None:
    """Draw the score over computed time over links of _DRAWN_RATE, of the first seed's trainings."""
    exact = summary.of(REFERENCE)
    results = [result for _job, result in kept_trainings(directory, summary.model) if result.seed == exact.seeds[0]]
    shown = {result.method: result for result in results if result.method in _DRAWN and not result.diverged}
    unit = "bits per character" if torch_models.reads_text(summary.model) else "accuracy on the test set"
    bps = rate_bps(_DRAWN_RATE)
    curves = {
        method: [(look.host_s + 8 * look.link_bytes / bps, look.score) for look in result.evaluations]
        for method, result in shown.items()
    }
    title = f"links of {text_rate(bps)}, seed {exact.seeds[0]}"
    charts = [Curves(title, "seconds", unit, curves, log=True, limits=_limits(summary, curves[REFERENCE]))]
    draw(summary.model, charts, path)
