"""The ledger of rounds as a view over the catalogue's other views."""

from recap_steam.report import ledger
from recap_steam.report.catalogue_sql import View, text
from recap_steam.report.results import Results


def ledger_view(results: Results) -> View:
    """From the other views, which the catalogue has by then."""
    selects = {
        f"round {entry.number} of {loop}": _round(results, entry)
        for loop in results.experiment.rounds
        for entry in ledger.rounds(results.experiment, loop)
    }
    columns = {"loop": "VARCHAR", "round": "BIGINT", **dict.fromkeys(("policy", "collected_by", "new_data"), "VARCHAR")}
    columns |= {"episodes": "BIGINT", "frames": "BIGINT", "solved_there": "DOUBLE", "learns_from": "VARCHAR[]"}
    columns |= dict.fromkeys(("critic", "critic_metric", "labels", "evaluation"), "VARCHAR")
    columns |= dict.fromkeys(("critic_held_out", "positive_rate", "guidance_scale"), "DOUBLE")
    columns |= {"successes": "BIGINT", "evaluated": "BIGINT"}
    comment = (
        "a row a round of a policy (loop) and arm of an evaluation: what was collected for it, what it learned from, its critic on "
        "held-out data, the positive rate of its labels over rollouts, and how many initial states it solved"
    )
    return View(comment, columns, selects)


def _round(results: Results, entry: ledger.Round) -> str:
    metric = ledger.held_out_metric(results, entry.critic) if entry.critic else None
    constants = {"loop": entry.loop, "policy": entry.policy, "collected_by": entry.collector, "new_data": entry.collected}
    constants |= {"critic": entry.critic, "critic_metric": metric, "labels": entry.labels}
    named = {name: "NULL::VARCHAR" if value is None else text(value) for name, value in constants.items()}
    new = f"FROM episodes WHERE dataset = {named['new_data']}"
    return (
        f"SELECT {', '.join(f'{value} AS {name}' for name, value in named.items())}, {entry.number}::BIGINT AS round, "
        f"nullif((SELECT count(*) {new}), 0) AS episodes, (SELECT sum(length)::BIGINT {new}) AS frames, "
        f"(SELECT avg(success::INT) {new}) AS solved_there, [{', '.join(map(text, entry.data))}]::VARCHAR[] AS learns_from, "
        f"(SELECT any_value(value) FROM critic_evaluations WHERE tag = {named['critic']} AND predictor = 'eval' "
        f"AND metric = {named['critic_metric']} AND part IS NULL AND member IS NULL) AS critic_held_out, "
        f"(SELECT avg(advantage::INT) FROM advantages JOIN datasets USING (dataset) WHERE tag = {named['labels']} AND type = 'rollout') "
        "AS positive_rate, evaluation, guidance_scale, successes, evaluated FROM (SELECT 1) LEFT JOIN (SELECT tag AS evaluation, "
        f"guidance_scale, count(*) FILTER (success) AS successes, count(*) AS evaluated FROM evaluations WHERE policy = {named['policy']} "
        "GROUP BY ALL) ON true"
    )
