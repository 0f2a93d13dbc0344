"""Camera images kept in Parquet (feature dtype ``image``): a struct of encoded bytes and a path, one per frame."""

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from recap_steam.dataset.episode_table import Episodes
from recap_steam.dataset.layout import Dataset
from recap_steam.dataset.vectors import read_rows
from recap_steam.errors import UserError

BATCH_ROWS = 256  # encoded images held at once


def read_stills(dataset: Dataset, episodes: Episodes, camera: str) -> Iterator[np.ndarray]:
    """All frames of an image camera, (H, W, 3) uint8 RGB, in row order.

    Images that come before their turn wait in encoded form, so memory grows only where files are out of order.

    Raises:
        UserError: missing or unreadable image; the message names file, episode and frame.
    """
    waiting: dict[int, tuple[Path, dict | None]] = {}
    turn = 0
    for path, table, rows in read_rows(dataset, episodes, [camera], batch_rows=BATCH_ROWS):
        kind = table.schema.field(camera).type
        if not pa.types.is_struct(kind) or not {"bytes", "path"} <= {field.name for field in kind}:
            raise UserError(f"{path}: column '{camera}' is {kind}, expected a struct of bytes and path; rewrite the column with lerobot")
        waiting |= {row: (path, item) for row, item in zip(rows.tolist(), table[camera].to_pylist(), strict=True)}
        while turn in waiting:
            yield decode_still(dataset, episodes, camera, turn, *waiting.pop(turn))
            turn += 1


def decode_still(dataset: Dataset, episodes: Episodes, camera: str, row: int, path: Path, item: dict | None) -> np.ndarray:
    """The image of row ``row`` from its cell ``item`` in the file ``path``, (H, W, 3) uint8 RGB.

    Raises:
        UserError: missing or unreadable image; the message names file, episode and frame.
    """
    from PIL import Image

    item = item or {"bytes": None, "path": None}
    try:
        if item["bytes"] is None:
            path = dataset.root / (item["path"] or "")
            source = path.open("rb") if item["path"] else None
        else:
            source = io.BytesIO(item["bytes"])
        if source is None:
            raise ValueError("neither bytes nor path")
        with source, Image.open(source) as image:
            return np.asarray(image.convert("RGB"))
    except (OSError, ValueError, SyntaxError) as error:
        episode, frame = (int(key[0]) for key in episodes.frame_keys(row, row + 1))
        reason = str(error).splitlines()[0]
        raise UserError(f"{path}: episode {episode}, frame {frame}: image of '{camera}' is not readable ({reason}); restore it") from None
