"""``python -m recap_steam.simulation.watch``: a policy acts in simulation, and what critics say of each frame is printed while it does.

The live trace of an episode, a line a frame. It asks what the value server asks (``serving.value``), so that a robot's loop sees the same
numbers. The initial states and the denoising noise are those of an evaluation.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from recap_steam.config import EXPERT, read_experiment
from recap_steam.errors import UserError, run_main
from recap_steam.references import check_names
from recap_steam.serving.value import ValueService
from recap_steam.simulation.controllers import open_controller
from recap_steam.simulation.environments import frames_per_second
from recap_steam.simulation.rollout import Episode, Run, roll_out
from recap_steam.simulation_config import EnvironmentConfig

WIDTH = 40  # characters of the bar, from the least return to none left


def watch_episode(
    config: EnvironmentConfig, policy_dir: Path | None, guidance_scale: float | None, seed: int, episode: int, critics: ValueService
) -> Episode:
    """Run one episode of an evaluation from ``seed`` on, alone, and print a line at every frame before the policy acts on it.

    Args:
        policy_dir: folder of the policy; None for the scripted expert.
        guidance_scale: of an advantage-conditioned policy; None for the plain prompt.

    Raises:
        UserError: the policy or a critic does not fit the environment.
    """
    cameras = critics.metadata["cameras"]
    if missing := [camera for camera in cameras if camera not in config.camera_keys]:
        rendered = f"environment {config.task_name} renders {', '.join(config.camera_keys)}"
        raise UserError(f"the critic needs {missing[0]}, {rendered}; use a critic that sees what is rendered there")
    policy = EXPERT if policy_dir is None else policy_dir.name
    with open_controller(policy, policy_dir, config, guidance_scale, through_server=False) as controller:
        only = {"num_episodes": episode + 1, "batch_size": 1, "share": (episode, episode + 1)}
        (found,) = roll_out(config, controller, seed=seed, watch=_printing(critics, cameras, config), **only)
    outcome = "success" if found.success else "failure"
    print(f"episode {episode} (seed {found.seed}): {outcome} after {found.num_frames} frames", flush=True)
    return found


def _printing(critics: ValueService, cameras: list[str], config: EnvironmentConfig) -> Callable[[Run], None]:
    session, fps = critics.session(), frames_per_second(config)
    top = critics.metadata["answers"].get("value", {}).get("offset", 0.0)

    def show(run: Run) -> None:
        seen = {camera: run.images[camera] for camera in cameras}
        answer = session.infer({**seen, "prompt": config.prompt, "frame": run.frame})
        print(f"frame {run.frame:4d} {run.frame / fps:7.2f} s{_words(answer, top)}", flush=True)

    return show


def _words(answer: dict[str, Any], top: float) -> str:
    """``value`` with its place between ``top`` - 1, the least return, and ``top``; the score of an earlier frame."""
    words = ""
    if "value" in answer:
        place = round(min(max(answer["value"] - top + 1, 0.0), 1.0) * (WIDTH - 1))
        words += f"  value {answer['value']:+.3f} |{'o'.rjust(place + 1).ljust(WIDTH)}|"
    if answer.get("score") is not None:
        words += f"  score of frame {answer['score_frame']} {answer['score']:+.3f}"
    return words


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="recap_steam.simulation.watch", description=__doc__, formatter_class=layout)
    parser.add_argument("--config", type=Path, default=Path("config/config.yaml"), help="experiment file (default: %(default)s)")
    parser.add_argument("--evaluation", required=True, help="tag of the evaluation whose environment and initial states are used")
    parser.add_argument("--episode", type=int, default=0, help="number of the initial state (default: %(default)s)")
    parser.add_argument("--policy-dir", type=Path, help="folder of a trained policy; absent: the scripted expert")
    parser.add_argument("--guidance-scale", type=float, help="guidance of an advantage-conditioned policy; absent: its plain prompt")
    parser.add_argument("--critic-dir", type=Path, help="a value critic (RECAP), results/<experiment>/critics/<tag>")
    parser.add_argument("--ensemble-dir", type=Path, help="an ensemble of progress critics (STEAM), results/<experiment>/critics/<tag>")
    args = parser.parse_args()
    experiment = read_experiment(args.config)
    check_names(experiment)
    if args.evaluation not in experiment.evaluations:
        known = ", ".join(experiment.evaluations) or "none"
        raise UserError(f"{args.config}: '{args.evaluation}' is not an entry of evaluations; known: {known}")
    config = experiment.evaluations[args.evaluation]
    if not 0 <= args.episode < config.num_episodes:
        raise UserError(f"--episode {args.episode}: evaluation '{args.evaluation}' has 0 to {config.num_episodes - 1}")
    critics = ValueService(args.critic_dir, args.ensemble_dir)
    watch_episode(experiment.environments[config.environment], args.policy_dir, args.guidance_scale, config.seed, args.episode, critics)


if __name__ == "__main__":
    run_main(main)
