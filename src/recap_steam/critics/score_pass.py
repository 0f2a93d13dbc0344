"""The score pass: what an ensemble of progress critics says about every frame of a dataset, written as a sidecar.

Frame t is paired with the frame that lies the look-ahead after it (``pairs.look_ahead``). Every frame is encoded once per member, and its
features serve both pairs that it is part of. A frame whose look-ahead passes the end of its episode has the columns of the last frame of
the episode whose look-ahead does not: of the last window that contains it. In an episode without any full look-ahead nothing is known, so
its frames score -1, the lowest, and their column ``look_ahead`` is 0.
"""

import dataclasses
from pathlib import Path

import numpy as np
import torch
from scipy.special import softmax
from torch import Tensor

from recap_steam import devices, rates
from recap_steam.background import ahead
from recap_steam.config import Experiment, ProgressCriticConfig
from recap_steam.critics.folder import SavedCritic
from recap_steam.critics.frames import CriticFrames, collate_tokens, model_inputs
from recap_steam.critics.group_pass import BATCH_FRAMES, PREFETCHED_BATCHES, Pass, check_folder, critic_frames, known_cameras
from recap_steam.critics.member_scores import certainly_back, ensemble_columns
from recap_steam.critics.pairs import look_ahead
from recap_steam.critics.progress_folder import ProgressCard, load_ensemble
from recap_steam.dataset.episodes import Episodes, load_episodes
from recap_steam.dataset.layout import open_dataset
from recap_steam.errors import config_error
from recap_steam.labels.inputs import ensemble_digest
from recap_steam.lineage import Lineage, code_digest

BATCH_PAIRS = 1024


def scores_stage(
    experiment: Experiment,
    dataset: str,
    tag: str,
    critic_dir: Path | str,
    episodes_path: Path | str,
    frames_path: Path | str,
    state_dir: Path | str,
    output: Path | str,
) -> None:
    """Rule compute_scores: write the sidecar ``scores_{tag}.parquet`` of one dataset. Runs under torchrun.

    Raises:
        UserError: the critic folder is incomplete or another critic's, its k or cameras are not the experiment's or the dataset's, the
            frame cache is of something else, or another job is at it.
    """
    with devices.distributed():
        episodes = load_episodes(episodes_path, open_dataset(dataset, experiment.datasets[dataset].path))
        folder = Path(critic_dir)
        inputs = {"critic": ensemble_digest(folder)}
        check_folder(folder, "merge_ensemble", tag)
        ensemble = load_ensemble(folder)
        check_agreement(tag, experiment.critics[tag], ensemble.card)
        keys = known_cameras(experiment, dataset, ensemble.card)
        frames = critic_frames(ensemble, episodes, frames_path, keys)
        inputs["frames"] = frames.cache.digest
        lineage = Lineage("compute_scores", tag, episodes.fingerprint, _parameters(ensemble.card, keys), inputs, {}, code_digest(__name__))
        scores = Pass(
            kind="scores",
            summary="ensemble_signed_score",
            evaluate=lambda rows: score_rows(ensemble, frames, episodes, rows),
            work=lambda: rates.pass_work(rates.trained_model(folder), len(ensemble.card.cameras), ensemble.card.ensemble_size),
        )
        scores.run(ensemble.model, episodes, lineage, state_dir, output)


def check_agreement(tag: str, config: ProgressCriticConfig, card: ProgressCard) -> None:
    """Raise UserError where the experiment means another look-ahead or other cameras than the critic learned."""
    for key in ("k", "cameras"):
        asked, learned = getattr(config, key), getattr(card, key)
        if asked != learned:
            raise config_error(f"critics.{tag}.{key}", f"{asked}, but the critic learned {learned}; restore that or train the critic again")


def _parameters(card: ProgressCard, keys: dict[str, str | None]) -> dict:
    """What the scores mean."""
    scale = card.length_scale and dataclasses.asdict(card.length_scale)
    sizes = {"k": card.k, "num_bins": card.architecture.num_bins, "ensemble_size": card.ensemble_size}
    return {**sizes, "cameras": keys, "length_scale": scale}


def score_rows(ensemble: SavedCritic, frames: CriticFrames, episodes: Episodes, rows: range) -> dict[str, np.ndarray]:
    """The columns of the sidecar for consecutive rows that are whole episodes."""
    card = ensemble.card
    windows, reach = full_windows(episodes, rows, card)
    starts, place = np.unique(windows, return_inverse=True)  # every window is judged once
    known = starts >= 0
    starts, ends = starts[known], starts[known] + reach[starts[known] - rows.start]
    probabilities = [_probabilities(ensemble, frames, starts, ends)] if len(starts) else []
    unknown = certainly_back(card.ensemble_size, int((~known).sum()), card.architecture.num_bins)  # at most one, and it sorts first
    columns = ensemble_columns(np.concatenate([unknown, *probabilities], 1), card.k)
    return {name: column[place] for name, column in columns.items()} | {"look_ahead": reach}


def full_windows(episodes: Episodes, rows: range, card: ProgressCard) -> tuple[np.ndarray, np.ndarray]:
    """First row of the window that gives each frame's columns (-1: none), and its look-ahead (0: none); both (n,) int64."""
    first, last = np.searchsorted(episodes.offsets, [rows.start, rows.stop])
    lengths, offsets = episodes.length[first:last], episodes.offsets[first:last]
    reach = look_ahead(lengths, card.k, card.length_scale)
    latest = np.repeat(np.where(reach > 0, offsets + lengths - 1 - reach, -1), lengths)
    return np.minimum(np.arange(rows.start, rows.stop), latest), np.repeat(reach, lengths)


def _probabilities(ensemble: SavedCritic, frames: CriticFrames, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Distributions over stride bins of the pairs of rows (``starts``, ``ends``), both (p,); (members, p, num_bins) float64."""
    members = ensemble.model.members
    used, position = np.unique(np.concatenate([starts, ends]), return_inverse=True)
    codes, prompt = np.unique(frames.prompt_codes[starts], return_inverse=True)
    with torch.no_grad(), devices.autocast():
        features = _encode(ensemble, frames, used)
        tokens = devices.to_device(collate_tokens(frames.prompts.take(codes)))
        texts = [member.encode_prompts(tokens["tokens"], tokens["token_mask"]) for member in members]
        first, second, prompt = (torch.from_numpy(part).to(devices.device()) for part in (*np.split(position, 2), prompt))
        logits = [
            torch.cat([member.classify(frame[a], frame[b], text[c]) for a, b, c in _parts(first, second, prompt)])
            for member, frame, text in zip(members, features, texts, strict=True)
        ]
    return softmax(torch.stack(logits).cpu().numpy().astype(np.float64), axis=-1)


def _encode(ensemble: SavedCritic, frames: CriticFrames, rows: np.ndarray) -> list[Tensor]:
    """Features (n, H) of the frames ``rows`` (n,) by each member; every image is read and encoded once per member."""
    batches = (frames.image_batch(rows[start : start + BATCH_FRAMES]) for start in range(0, len(rows), BATCH_FRAMES))
    parts = []
    for batch in ahead(batches, PREFETCHED_BATCHES):
        inputs = model_inputs(devices.to_device(batch), ("places", "camera_mask"))
        parts.append([member.encode_frames(*inputs) for member in ensemble.model.members])
    return [torch.cat(features) for features in zip(*parts, strict=True)]


def _parts(*tensors: Tensor) -> list[tuple[Tensor, ...]]:
    return list(zip(*(tensor.split(BATCH_PAIRS) for tensor in tensors), strict=True))
