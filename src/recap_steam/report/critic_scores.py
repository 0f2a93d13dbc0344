"""What the value critics' evaluation.json say: tables beside the two predictors that see no image, and whether a critic over-fits."""

import numpy as np

from recap_steam.report.results import Results
from recap_steam.report.tables import Table, number
from recap_steam.report.training_figures import CriticCurves

METRICS = {
    "loss": "loss, nats",
    "mae": "MAE, normalised return",
    "spearman": "Spearman",
    "cat_acc_best": "bin accuracy",
    "cat_acc_neighbor": "within a bin",
    "success_auc": "success AUC",
}
PREDICTORS = {
    "eval": "critic, held out",
    "baseline_time": "time only, held out",
    "baseline_constant": "constant, held out",
    "eval_train": "critic, training frames",
}
GROUP_METRICS = {  # what a table by outcome or by task shows; the rest is in evaluation.json
    "loss, nats": "eval/loss",
    "loss, time only": "baseline_time/loss",
    "loss, constant": "baseline_constant/loss",
    "MAE, normalised return": "eval/mae",
    "MAE, time only": "baseline_time/mae",
    "MAE, constant": "baseline_constant/mae",
    "Spearman": "eval/spearman",
    "Spearman, time only": "baseline_time/spearman",
    "within a bin": "eval/cat_acc_neighbor",
}
OVERFIT_SHARE = 0.2  # of the held-out error: a rule of thumb, stated in the page


def critic_table(results: Results) -> Table:
    """Metrics of every critic beside the two predictors that see no image, and on what it learned from."""
    rows = []
    for tag, evaluation in results.evaluations(results.value_critics):
        for source, name in PREDICTORS.items():
            values = [evaluation.get(f"{source}/{metric}") for metric in METRICS]
            if any(value is not None for value in values):
                rows.append([tag, name, *map(number, values)])
    return Table(["critic", "predictor", *METRICS.values()], rows)


def group_table(results: Results, group: str) -> Table:
    """Held-out metrics of every critic for each ``outcome`` or ``task``, one row a value of it, beside the same two predictors."""
    rows = []
    for tag, evaluation in results.evaluations(results.value_critics):
        prefix = f"eval/mae/{group}="
        for value in (key.removeprefix(prefix) for key, mae in evaluation.items() if key.startswith(prefix) and mae is not None):
            rows.append([tag, value, *(number(evaluation.get(f"{metric}/{group}={value}")) for metric in GROUP_METRICS.values())])
    return Table(["critic", group, *GROUP_METRICS], rows)


def gap_sentences(results: Results) -> list[str]:
    """One sentence a critic with held-out data: its errors held out and on training frames, and whether it over-fits."""
    return [
        _gap_sentence(tag, evaluation)
        for tag, evaluation in results.evaluations(results.value_critics)
        if evaluation.get("gap/mae") is not None
    ]


def _gap_sentence(tag: str, evaluation: dict[str, float | None]) -> str:
    held_out, training, gap = (evaluation[name] for name in ("eval/mae", "eval_train/mae", "gap/mae"))
    errors = f"MAE {held_out:.3f} held out, {training:.3f} on training frames"
    share = f"{100 * gap / held_out:.0f} % of the held-out error" if held_out and gap > 0 else "held out no worse"
    judgement = "the critic over-fits" if gap > OVERFIT_SHARE * held_out else "the gap is small"
    return f"{tag}: {errors}, gap {gap:+.3f} ({share}): {judgement}."


def critic_curves(results: Results) -> list[CriticCurves]:
    """Calibration and success AUC over an episode of every critic that was judged on held-out frames."""
    curves = []
    for tag, evaluation in results.evaluations(results.value_critics):
        value, target = (_series(evaluation, f"eval/calibration_{side}/decile") for side in ("value", "return"))
        areas = {PREDICTORS[source]: _series(evaluation, f"{source}/success_auc/time") for source in ("eval", "baseline_time")}
        if np.isfinite(value).any():
            curves.append(CriticCurves(tag, value, target, {name: area for name, area in areas.items() if np.isfinite(area).any()}))
    return curves


def _series(evaluation: dict[str, float | None], name: str) -> np.ndarray:
    """The metrics ``name=0`` to ``name=9``, (10,) float64; NaN where there is none."""
    values = (evaluation.get(f"{name}={place}") for place in range(10))
    return np.array([np.nan if value is None else value for value in values])
