"""A video of an evaluated episode: its pictures above, the value below with a marker at the frame that is shown."""

import numpy as np

from recap_steam.report import videos
from recap_steam.report.evaluation_videos import ValueTrace, compose, draw_canvas

TRACE = ValueTrace("paired, recap_w2: episode 0 (seed 9000), success", "open the drawer", 16, np.array([-0.9, -0.5, -0.1]), (-1.0, 0.0))
IMAGES = np.stack([np.full((16, 16, 3), level, np.uint8) for level in (40, 120, 200)])


def test_every_frame_shows_its_picture_and_marks_its_value():
    pictures, canvas = list(compose(TRACE, {"camera": IMAGES})), draw_canvas(TRACE, [(16, 16)])
    top, height = canvas.cameras
    assert [picture[top + height // 2, videos.WIDTH // 2, 0] for picture in pictures] == [40, 120, 200]
    assert canvas.across[0] < canvas.across[1] < canvas.across[2]
    assert canvas.up[0][0] > canvas.up[0][1] > canvas.up[0][2]  # rows count from the top
    for step, picture in enumerate(pictures):
        changed = np.abs(picture.astype(int) - canvas.picture).sum(2) > 0
        rows = canvas.rows[0]
        columns = np.flatnonzero(changed[rows].any(0))
        assert abs(columns.mean() - canvas.across[step]) < 2
        assert picture.shape[0] % 2 == picture.shape[1] % 2 == 0
