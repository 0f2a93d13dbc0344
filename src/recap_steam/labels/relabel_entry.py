"""What a new label tag says: the entry of the tag that it is derived from, with the options of a command laid over it."""

from typing import Any

from recap_steam.config import load_experiment
from recap_steam.errors import UserError
from recap_steam.labels.decision import LabelConfig
from recap_steam.labels.relabel_source import Source
from recap_steam.steam_checks import check_mode

OPTIONS = {  # of a command, by the method that they are for
    "recap": ("advantage_lookahead_step", "gamma", "positive_quantile", "pool"),
    "steam": ("mode", "positive_threshold", "rollout_quantile", "expert_quantile", "positive_quantile"),
}
RECAP_KEYS = ("advantage_lookahead_step", "discount_next_value", "positive_quantile", "pool", "intervention_positive")
STEAM_KEYS = ("subtract_baseline", "baseline_lookahead", "intervention_positive")
MODE_KEYS = {"threshold": ("positive_threshold",), "quantile": ("rollout_quantile", "expert_quantile")}


def new_entry(sources: list[Source], options: dict[str, Any]) -> dict[str, Any]:
    """Return the entry of ``advantages`` in an experiment that makes the labels; what no option says is as in the source.

    Args:
        options: those that were given, by name.

    Raises:
        UserError: an option that these labels do not have.
    """
    method, other = ("steam", "recap") if sources[0].steam else ("recap", "steam")
    for name in options:
        if name not in OPTIONS[method]:
            raise UserError(f"--{name}: is for labels of method {other}, these are of method {method}; leave it out")
    made = sources[0].parameters
    kept = {"critic": made["critic"], "datasets": [source.episodes.dataset for source in sources]}
    if method == "recap":
        return kept | _known(made | options, RECAP_KEYS)
    return kept | _mode(made, options) | _known(made, STEAM_KEYS)


def _known(parameters: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: parameters[name] for name in names if parameters.get(name) is not None}


def _mode(made: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """Mode and thresholds; those of the other mode only if an option says so, which is an error then."""
    options = dict(options)
    if "positive_quantile" in options:  # the reference's other name
        if "rollout_quantile" in options:
            raise UserError("--positive_quantile: is another name of --rollout_quantile; give one of them")
        options["rollout_quantile"] = options.pop("positive_quantile")
    mode = options.pop("mode", None) or made.get("label_mode")
    if mode is None:
        raise UserError("--mode: the labels do not say how they were made; give threshold or quantile")
    return {"label_mode": mode} | _known(made, MODE_KEYS[mode]) | options


def check_entry(sources: list[Source], tag: str, entry: dict[str, Any]) -> LabelConfig:
    """Return the entry as an experiment would understand it.

    Raises:
        UserError: a value that no experiment may have.
    """
    config = load_experiment({"experiment": "relabel", "advantages": {tag: entry}}).advantages[tag]
    if sources[0].steam:
        check_mode(f"advantages.{tag}", config, {source.type for source in sources})
    elif config.pool == "rollout" and all(source.type == "sft" for source in sources):
        raise UserError("--pool: rollout, but no dataset given is one; give another pool, or add one")
    return config
