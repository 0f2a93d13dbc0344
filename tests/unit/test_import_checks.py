"""What other tools made: it has one source, and nothing replaces it."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recap_steam.config import load_experiment
from recap_steam.errors import UserError
from recap_steam.lineage import METADATA_KEY
from recap_steam.references import check_references
from tests.references import GIVEN, assert_refused, check


def taken(**source: str) -> dict[str, Any]:
    """Returns of a dataset that was there before, imported."""
    return {"datasets.given": GIVEN, "returns.mine": {"imported": source, "datasets": ["given"]}}


SOUND = {
    "an import from a tag that is made here of other datasets only": {
        "datasets.given": GIVEN,
        "advantages.theirs": {"imported": {"sidecar": "n5_q30"}, "datasets": ["given"]},
    },
    "returns and labels from elsewhere": {
        "datasets.given": GIVEN,
        "returns.fail40": {"imported": {"column": "mc_return"}, "datasets": ["given"]},
        "critics.value.datasets": ["given"],
        "critics.value.eval_datasets": [],
        "advantages": {"mine": {"imported": {"sidecar": "N10"}, "datasets": ["given"]}},
        "policies.recap.datasets": ["given", "demonstrations"],
        "policies.recap.advantage_tag": "mine",
    },
    "a sidecar by the same tag beside a read-only dataset": {
        "datasets.given": GIVEN | {"sidecar_root": "sidecars"},
        "returns.mine": {"imported": {"sidecar": "mine"}, "datasets": ["given"]},
    },
}
BROKEN = {
    "import from nowhere": (
        taken(),
        "returns.mine.imported: give either sidecar or column",
    ),
    "import from two places": (
        taken(sidecar="a", column="b"),
        "returns.mine.imported: give either sidecar or column",
    ),
    "import of a collected dataset": (
        {"advantages.mine": {"imported": {"column": "good"}, "datasets": ["rollouts"]}},
        "advantages.mine.datasets: 'rollouts' is collected here, so there is nothing to import; remove it",
    ),
    "import of an own file": (
        taken(sidecar="fail40"),
        "returns.mine.imported.sidecar: returns_fail40.parquet of 'given' is written by this experiment; give the tag here another name",
    ),
    "import over its source": (
        taken(sidecar="mine"),
        "returns.mine.imported.sidecar: returns_mine.parquet of 'given' is written by this experiment",
    ),
    "returns that are not imported everywhere": (
        taken(sidecar="theirs") | {"critics.value.returns_tag": "mine"},
        "critics.value.returns_tag: 'mine' is not imported for 'demonstrations'; add it to returns.mine.datasets",
    ),
}


@pytest.mark.parametrize("case", SOUND)
def test_a_sound_experiment_passes(case: str) -> None:
    check(SOUND[case])


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_one_is_one_line_that_names_the_key_and_the_remedy(case: str) -> None:
    assert_refused(*BROKEN[case])


def test_what_another_tool_made_is_not_replaced(tmp_path: Path) -> None:
    """A file of ours may be made again, and one that no reader could use is no loss."""
    path = tmp_path / "meta/returns_fail300.parquet"
    path.parent.mkdir()
    datasets = {"given": {"path": str(tmp_path), "type": "rollout"}}
    experiment = load_experiment({"experiment": "x", "datasets": datasets, "returns": {"fail300": {"failure_reward": -300}}})
    table = pa.table({"return": [0.0]})
    pq.write_table(table, path)
    with pytest.raises(UserError, match=r"returns\.fail300: .*returns_fail300\.parquet is there, was not made here and would be replaced"):
        check_references(experiment)
    pq.write_table(table.replace_schema_metadata({METADATA_KEY: b"{}"}), path)
    check_references(experiment)
    path.write_bytes(b"")
    check_references(experiment)
