"""``python -m recap_steam.serving.value --critic-dir DIR --ensemble-dir DIR``: serves what critics say of an episode under way."""

from pathlib import Path
from typing import Any

import numpy as np

from recap_steam.errors import UserError, run_main
from recap_steam.serving import observation as check
from recap_steam.serving.command import make_parser
from recap_steam.serving.live import Judge, LiveCritic, LiveScore, LiveValue
from recap_steam.serving.server import serve_forever

NO_VALUE_KEYS = "this is a value server, it judges frames; actions come from a policy server"


class ValueService:
    """A value critic, an ensemble of progress critics, or both behind a server.

    Raises:
        UserError: neither is given, or a folder is incomplete or of another kind.
    """

    kind = "value"

    def __init__(self, critic_dir: Path | None, ensemble_dir: Path | None):
        folders = {"value": (critic_dir, LiveValue), "score": (ensemble_dir, LiveScore)}
        self._critics: dict[str, LiveCritic] = {name: load(folder) for name, (folder, load) in folders.items() if folder is not None}
        if not self._critics:
            raise UserError("value server: no critic; give --critic-dir (values), --ensemble-dir (scores) or both")
        self._cameras = list(dict.fromkeys(camera for critic in self._critics.values() for camera in critic.card.cameras))
        answers = {name: {"cameras": critic.card.cameras, **critic.metadata} for name, critic in self._critics.items()}
        self.metadata = {"cameras": self._cameras, "answers": answers}

    def session(self) -> "ValueSession":
        return ValueSession(self._cameras, [critic.follow() for critic in self._critics.values()])

    def example(self) -> dict[str, Any]:
        size = max(critic.card.image_size for critic in self._critics.values())
        return {**dict.fromkeys(self._cameras, np.zeros((size, size, 3), np.uint8)), "prompt": "move", "frame": 0}


class ValueSession:
    """The frames of one client."""

    def __init__(self, cameras: list[str], judges: list[Judge]):
        self._cameras, self._judges = cameras, judges

    def infer(self, observation: dict[str, Any]) -> dict[str, Any]:
        """What every critic says about this frame (see ``live``).

        Raises:
            UserError: the observation is wrong.
        """
        check.check_keys(observation, [*self._cameras, "prompt", "frame"], [], NO_VALUE_KEYS)
        images = check.images_of(observation, self._cameras)
        prompt, frame = check.text(observation, "prompt"), check.frame(observation, "frame")
        return {name: number for judge in self._judges for name, number in judge(images, prompt, frame).items()}


def main() -> None:
    parser = make_parser("recap_steam.serving.value", __doc__)
    parser.add_argument("--critic-dir", type=Path, help="a value critic (RECAP), results/<experiment>/critics/<tag>")
    parser.add_argument("--ensemble-dir", type=Path, help="an ensemble of progress critics (STEAM), results/<experiment>/critics/<tag>")
    arguments = parser.parse_args()
    service = ValueService(arguments.critic_dir, arguments.ensemble_dir)
    serve_forever(service, arguments.host, arguments.port, arguments.until_stdin_ends)


if __name__ == "__main__":
    run_main(main)
