"""Frames by what is known of them: the groups that figures and tables tell apart."""

import numpy as np

from recap_steam.dataset.episodes import Episodes


def frame_groups(dataset_type: str, episodes: Episodes) -> dict[str, np.ndarray]:
    """Disjoint (F,) bool masks by group of frames: demonstrations; or interventions, and the other frames of successes and of failures."""
    if dataset_type == "sft":
        return {"demonstration": np.ones(episodes.num_frames, bool)}
    success, intervention = episodes.row_success(), episodes.interventions()
    groups = {"success": success & ~intervention, "failure": ~success & ~intervention, "intervention": intervention}
    return {group: mask for group, mask in groups.items() if mask.any()}
