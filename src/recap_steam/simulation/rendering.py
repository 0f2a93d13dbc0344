"""One offscreen renderer shared by all environments of a process.

A MuJoCo renderer holds the meshes and textures of a model and takes 0.4 s to make; environments of one task differ only in positions,
which are not part of it. Shadows, multisampling and reflections are off: on a software rasteriser they cost ten times the rest.
"""

import os

# Both are read when the GL libraries load. A job is given one core, and Mesa's rasteriser would start a thread per core.
os.environ.setdefault("MUJOCO_GL", "egl")
os.environ.setdefault("LP_NUM_THREADS", "1")

import numpy as np

from recap_steam.errors import UserError

MISSING_GL = "cannot render offscreen ({}): install Mesa's EGL (Debian: apt-get install libegl1 libegl-mesa0 libgl1-mesa-dri)"


def import_mujoco():
    """The mujoco module, which loads the GL libraries as it is imported.

    Raises:
        UserError: when the GL libraries are missing, naming the packages.
    """
    try:
        import mujoco
    except ModuleNotFoundError:
        raise
    except (ImportError, AttributeError, OSError) as error:
        raise UserError(MISSING_GL.format(str(error).strip().split("\n")[0])) from error
    return mujoco


class Renderer:
    """Square RGB pictures of (model, data) pairs that share the geometry of ``model``. Close it: it holds a GL context."""

    def __init__(self, model, image_size: int):
        self._mujoco = mujoco = import_mujoco()
        model.vis.quality.shadowsize = model.vis.quality.offsamples = 0
        model.vis.global_.offwidth = model.vis.global_.offheight = image_size
        self._gl = _make_context(mujoco, image_size)
        self._gl.make_current()
        self._scene = mujoco.MjvScene(model, maxgeom=1000)
        self._scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = False
        self._scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = False
        self._context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._context)
        self._option = mujoco.MjvOption()
        self._viewport = mujoco.MjrRect(0, 0, image_size, image_size)

    def render(self, model, data, camera: int) -> np.ndarray:
        """Picture (S, S, 3) uint8 of camera number ``camera``, upright: OpenGL's bottom row first is undone."""
        mujoco = self._mujoco
        view = mujoco.MjvCamera()
        view.type, view.fixedcamid = mujoco.mjtCamera.mjCAMERA_FIXED, camera
        self._gl.make_current()
        mujoco.mjv_updateScene(model, data, self._option, None, view, mujoco.mjtCatBit.mjCAT_ALL, self._scene)
        mujoco.mjr_render(self._viewport, self._scene, self._context)
        picture = np.empty((self._viewport.height, self._viewport.width, 3), np.uint8)
        mujoco.mjr_readPixels(picture, None, self._viewport, self._context)
        return picture[::-1]

    def close(self) -> None:
        """Free the GL context; left to interpreter exit, its destructor runs after EGL is gone and prints a traceback."""
        self._gl.make_current()
        self._context.free()
        self._gl.free()


def _make_context(mujoco, image_size: int):
    class Context(mujoco.GLContext):
        _context = None  # lets the destructor survive a failed constructor, so that the error stays one line

    try:
        return Context(image_size, image_size)
    except (ImportError, RuntimeError) as error:
        raise UserError(MISSING_GL.format(str(error).split(".")[0])) from error
