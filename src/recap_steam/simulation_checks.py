"""What the check of an experiment says of simulation: who acts where, and from which initial states."""

import itertools

from recap_steam.config import EXPERT, Experiment, ProgressCriticConfig, evaluation_arms
from recap_steam.errors import config_error
from recap_steam.rounds import of_round
from recap_steam.simulation_config import LEVEL, CollectConfig, EvaluationConfig


def check_simulation(experiment: Experiment) -> None:
    """Check collection and evaluation.

    Raises:
        UserError: naming the key, what is wrong and the remedy.
    """
    _check_arms(experiment)
    _check_stopping(experiment)
    _check_video_critics(experiment)
    _check_seeds(experiment)
    _check_seeds_of_rounds(experiment)


def _check_arms(experiment: Experiment) -> None:
    """Every policy that acts in an environment finds its cameras there; every arm of an evaluation has its own file name."""
    acting = [(f"datasets.{n}.collect", d.collect, [d.collect.policy]) for n, d in experiment.datasets.items() if d.collect]
    acting += [(f"evaluations.{tag}", evaluation, evaluation.policies) for tag, evaluation in experiment.evaluations.items()]
    for key, where, tags in acting:
        environment = experiment.environments[where.environment]
        cameras = "camera" if len(environment.camera_keys) == 1 else "cameras"
        for tag in tags:
            if tag != EXPERT and sorted(experiment.policies[tag].cameras) != sorted(environment.camera_keys):
                rendered = f"environment '{where.environment}' renders: {', '.join(environment.camera_keys)}"
                raise config_error(key, f"policy '{tag}' needs exactly the {cameras} that {rendered}")
        if not environment.has_expert and (EXPERT in tags or getattr(where, "intervention_probability", 0)):
            problem = f"simulator {environment.simulator} of environment '{where.environment}' has no scripted expert"
            raise config_error(key, f"{problem}; let a policy act, without interventions")
    for tag, evaluation in experiment.evaluations.items():
        if len({f"{scale:g}" for scale in evaluation.cfgrl_guidance_scale}) < len(evaluation.cfgrl_guidance_scale):
            raise config_error(f"evaluations.{tag}.cfgrl_guidance_scale", "two scales agree in their first six digits; keep one of them")


def _check_stopping(experiment: Experiment) -> None:
    """No arm stops at a difference that the report would then not call significant."""
    for tag, evaluation in experiment.evaluations.items():
        level = LEVEL / max(len(evaluation_arms(experiment, tag)) - 1, 1)
        if evaluation.stop_below is not None and evaluation.stop_below > level:
            problem = f"{evaluation.stop_below:g} is above the level of the report, {LEVEL:g} over the number of comparisons"
            raise config_error(f"evaluations.{tag}.stop_below", f"{problem}; give less than {level:.2g}")


def _check_video_critics(experiment: Experiment) -> None:
    """A critic that is shown beside an evaluation gives every frame a value, and sees what is rendered there."""
    for tag, evaluation in experiment.evaluations.items():
        if evaluation.video_critic:
            key, critic = f"evaluations.{tag}.video_critic", experiment.critics[evaluation.video_critic]
            rendered = experiment.environments[evaluation.environment].camera_keys
            if isinstance(critic, ProgressCriticConfig):
                raise config_error(key, f"'{evaluation.video_critic}' judges pairs of frames; name a critic of method recap")
            if sorted(critic.cameras) != sorted(rendered):
                cameras = "camera that is" if len(rendered) == 1 else "cameras that are"
                raise config_error(key, f"'{evaluation.video_critic}' needs exactly the {cameras} rendered there: {', '.join(rendered)}")


def _check_seeds(experiment: Experiment) -> None:
    """No initial state of an evaluation was collected from, and none of a held-out dataset is trained on (episode i uses seed + i)."""
    trained_on, held_out = (_collected(experiment, split) for split in ("train", "eval"))
    evaluations = [(f"evaluations.{tag}.seed", evaluation) for tag, evaluation in experiment.evaluations.items()]
    pairs = [*itertools.product(held_out, trained_on), *itertools.product(evaluations, trained_on + held_out)]
    for (key, run), (other_key, other) in pairs:
        if _task(experiment, run) == _task(experiment, other) and _overlap(run, other):
            problem = f"seeds {_span(run)} overlap those of {other_key}, {_span(other)}, on the same task"
            raise config_error(key, f"{problem}; move one of the two ranges")


def _collected(experiment: Experiment, split: str) -> list[tuple[str, CollectConfig]]:
    datasets = experiment.datasets.items()
    return [(f"datasets.{name}.collect.seed", dataset.collect) for name, dataset in datasets if dataset.collect and dataset.split == split]


def _check_seeds_of_rounds(experiment: Experiment) -> None:
    """What a round collects has other seeds than whatever else its policy learns from."""
    for loop, rounds in experiment.rounds.items():
        names = experiment.policies[of_round(loop, loop, rounds.count)].datasets
        further = [of_round(rounds.dataset, loop, number) for number in range(2, rounds.count + 1)]
        runs = {name: experiment.datasets[name].collect for name in names if experiment.datasets[name].collect}
        for name in further:
            for other in (other for other in runs if other != name):
                if _task(experiment, runs[name]) == _task(experiment, runs[other]) and _overlap(runs[name], runs[other]):
                    spans = f"seeds {_span(runs[name])} of '{name}' overlap those of '{other}', {_span(runs[other])}"
                    raise config_error(f"rounds.{loop}", f"{spans}, on the same task; set its seed")


def _task(experiment: Experiment, run: CollectConfig | EvaluationConfig) -> tuple[str, str]:
    environment = experiment.environments[run.environment]
    return environment.simulator, environment.task_name


def _overlap(a: CollectConfig | EvaluationConfig, b: CollectConfig | EvaluationConfig) -> bool:
    """Whether two runs share an initial state: every seed has its own."""
    return a.seed < b.seed + b.num_episodes and b.seed < a.seed + a.num_episodes


def _span(run: CollectConfig | EvaluationConfig) -> str:
    return f"{run.seed} to {run.seed + run.num_episodes - 1}"
