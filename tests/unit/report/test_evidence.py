"""Replicates pooled: counts that can be checked by hand, what is missing, and pages of a finished experiment."""

import contextlib
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from recap_steam.config import arm_name, load_experiment
from recap_steam.errors import UserError
from recap_steam.replicates import as_replicate
from recap_steam.report.evidence import evidence_stage, panels
from recap_steam.report.study import Study, compare, comparisons, read_studies, round_numbers
from recap_steam.report.study_guidance import guidance_table
from recap_steam.report.study_tables import arms_table, comparisons_table, ledger_table
from recap_steam.report.tables import MISSING, Table
from recap_steam.schema import read_file
from recap_steam.simulation.statistics import mcnemar_exact
from tests.changes import with_changes
from tests.experiments import small_config, write_rows

STATES = 50
SHUFFLED = "control: the same share of positive labels, on frames drawn by chance"
START, FILTERED, RECAP = ("start", None), ("filtered", None), ("recap", 2.0)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def experiment_file(changes: dict[str, Any] | None = None) -> Path:
    path, experiment = Path("small.yaml"), with_changes(small_config(), changes or {})
    del experiment["datasets"]["rollouts"]["path"]  # collected, by each replicate into its own
    path.write_text(yaml.safe_dump(experiment))
    return path


def write(
    seed: int,
    key: tuple[str, float | None],
    solved: range,
    first_state: int | None = None,
    evaluation: str = "paired",
    weights: str = "0" * 64,
    **changes: str,
) -> None:
    """An arm of a replicate that solved the given of its 50 initial states, in 20 frames; failures take 40."""
    path = Path(f"results/small_seed{seed}/evaluations/{evaluation}/{arm_name(*key)}.parquet")
    success = np.isin(np.arange(STATES), solved)
    state = np.arange(STATES) + (9000 + 1_000_000 * seed if first_state is None else first_state)
    columns = {"episode": np.arange(STATES), "seed": state, "success": success, "num_frames": np.where(success, 20, 40)}
    write_rows(path, columns, evaluation, key[0], weights, **changes)


def write_two_replicates() -> None:
    """In the first, RECAP alone solves 10 states; in the second it alone solves 5 and the start alone 10. A third is not there."""
    write(0, START, range(20))
    write(0, RECAP, range(30))
    write(1, START, range(5, 35))
    write(1, RECAP, range(25))
    write(1, FILTERED, range(40))


def study(seeds: list[int], changes: dict[str, Any] | None = None) -> Study:
    (found,) = read_studies([experiment_file(changes)], seeds)
    return found


def rows(table: Table) -> dict[str, dict[str, str]]:
    return {row[0]: dict(zip(table.head, row, strict=True)) for row in table.rows}


def test_pairs_of_all_replicates_are_one_sample(here: Path) -> None:
    write_two_replicates()
    found = compare(study([0, 1]), RECAP, START, "")
    assert (found.only_arm, found.only_other) == (15, 10)
    coins = np.arange(25) < 15
    assert found.test.p_value == mcnemar_exact(~coins, coins) == pytest.approx(0.4244, abs=1e-4)
    assert found.test.difference.estimate == pytest.approx(0.05)
    assert found.by_seed == {0: pytest.approx(0.2), 1: pytest.approx(-0.1)}
    assert found.agreeing == 1
    assert len(np.unique(found.arm.seed)) == 2 * STATES


def test_a_comparison_is_over_the_replicates_that_have_both_arms(here: Path) -> None:
    write_two_replicates()
    found = compare(study([0, 1, 2]), RECAP, FILTERED, "")
    assert list(found.by_seed) == [1] and (found.only_arm, found.only_other) == (0, 15)
    assert compare(study([0, 2]), RECAP, FILTERED, "") is None


def test_a_row_of_the_arms_says_what_each_replicate_solved_and_all_of_them(here: Path) -> None:
    write_two_replicates()
    found = rows(arms_table(study([0, 1, 2])))
    row = found["recap, guidance 2"]
    assert [row[f"solved, seed {seed}"] for seed in range(3)] == ["30", "25", MISSING]
    assert (row["round"], row["episodes"], row["success rate"], row["to start, points"], row["p"]) == ("1", "100", "55 %", "+5", "0.42")
    assert row["mean frames"] == "29.0"
    assert row["successes per simulated hour"] == f"{3600 * 55 * 16 / 2900:,.0f}"
    assert (found["start"]["round"], found["start"]["to start, points"]) == ("0", MISSING)
    assert set(list(found["steam, guidance 1"].values())[2:]) == {MISSING}


def test_tests_say_how_many_seeds_agree(here: Path) -> None:
    write_two_replicates()
    (beside_start, beside_filtered) = comparisons_table(study([0, 1])).rows
    assert beside_start[:2] == ["recap, guidance 2", "start"] and beside_start[3:6] == ["2", "15", "10"]
    assert beside_start[-2:] == ["+20.0, -10.0", "1 of 2"]
    assert beside_filtered[:2] == ["recap, guidance 2", "filtered"] and beside_filtered[-2:] == [f"{MISSING}, -30.0", "1 of 1"]


def test_what_is_compared_follows_from_the_experiment(here: Path) -> None:
    labels = small_config()["policies"]["recap"]
    plain = {key: item for key, item in labels.items() if key != "advantage_tag"}
    changes = {
        **{"policies.every": labels | {"label_control": "all_positive"}, "policies.everything": plain},
        "rounds.recap": {"count": 2, "dataset": "rollouts", "controls": ["filtered", "shuffled"]},
        "evaluations.paired.policies": ["start", "everything", "filtered", "recap", "steam", "shuffled", "every"],
        "evaluations.paired.cfgrl_guidance_scale": [1.0],
    }
    found = study([0], changes)
    for number, key in enumerate(found.keys):
        write(0, key, range(number))
    pairs = {}
    for comparison in comparisons(study([0], changes)):
        pairs.setdefault(comparison.arm.policy, []).append(comparison.other.policy)
    assert pairs == {
        "recap": ["start", "everything", "filtered", "steam", "shuffled", "every"],
        "steam": ["start", "everything", "filtered", "every"],  # nobody shuffled its labels
        "recap_r2": ["start", "filtered_recap_r2", "shuffled_recap_r2"],
    }
    assert round_numbers(found.experiment) == {
        **{"start": 0, "filtered": 1, "recap": 1, "steam": 1, "shuffled": 1, "every": 1, "everything": 1},
        **{"recap_r2": 2, "filtered_recap_r2": 2, "shuffled_recap_r2": 2},
    }
    ledger = {
        row["round"]: row for row in (dict(zip(table.head, row, strict=True)) for table in [ledger_table(found)] for row in table.rows)
    }
    assert [ledger[number]["arm"] for number in "012"] == ["start", "recap, guidance 1", "recap_r2, guidance 1"]


CONFIRMED = small_config()["evaluations"]["paired"] | {
    **{"policies": ["start", "filtered", "recap"], "cfgrl_guidance_scale": [1.0, 2.0]},
    **{"seed": 9000 + STATES, "num_episodes": STATES},
}


def write_guidance_of_two_replicates(confirmed_state: int = 9000 + STATES, **changes: str) -> None:
    """Guidance 2 solves more of ``paired`` in the first replicate and 1 in the second, and the other way round of ``confirmed``."""
    for seed, (best, worst) in enumerate([(2.0, 1.0), (1.0, 2.0)]):
        state = confirmed_state + 1_000_000 * seed
        write(seed, ("recap", best), range(30))
        write(seed, ("recap", worst), range(20))
        write(seed, ("recap", best), range(12), state, "confirmed", **changes)
        write(seed, ("recap", worst), range(40), state, "confirmed", **changes)
        write(seed, START, range(10), state, "confirmed", **changes)
        write(seed, FILTERED, range(2, 12), state, "confirmed", **changes)


def guidance_rows(changes: dict[str, Any]) -> list[dict[str, str]]:
    """Of the evaluation ``confirmed``."""
    studies = read_studies([experiment_file({"evaluations.confirmed": CONFIRMED, **changes})], [0, 1, 2])
    table = guidance_table(next(item for item in studies if item.evaluation == "confirmed"), studies)
    return [dict(zip(table.head, row, strict=True)) for row in table.rows]


def test_guidance_is_chosen_on_the_states_of_other_evaluations_and_judged_on_its_own(here: Path) -> None:
    write_guidance_of_two_replicates()
    beside_start, beside_filtered = guidance_rows({})
    assert [beside_start[name] for name in ("policy", "guidance, by seed", "seeds")] == ["recap", f"2, 1, {MISSING}", "2"]
    assert beside_start["solved elsewhere, by seed"] == "of 50 states 20 at 1, 30 at 2; of 50 states 30 at 1, 20 at 2; " + MISSING
    assert (beside_start["compared with"], beside_filtered["compared with"]) == ("start", "filtered")
    only = ("solved by the policy only", "by the other only")
    assert [beside_start[name] for name in only] == ["4", "0"] and [beside_filtered[name] for name in only] == ["4", "0"]
    assert beside_start["p"] == "0.12" and beside_start["by seed, points"] == f"+4.0, +4.0, {MISSING}"


def test_guidance_is_not_chosen_on_states_that_judge_it(here: Path) -> None:
    write_guidance_of_two_replicates(confirmed_state=9000)
    assert guidance_rows({"evaluations.confirmed": CONFIRMED | {"seed": 9000}}) == []


def test_guidance_is_chosen_where_every_scale_was_tried_in_the_same_environment(here: Path) -> None:
    write_guidance_of_two_replicates()
    Path("results/small_seed0/evaluations/paired/recap_w1.parquet").unlink()
    assert {row["guidance, by seed"] for row in guidance_rows({})} == {f"{MISSING}, 1, {MISSING}"}
    other = small_config()["environments"]["drawer"] | {"camera_name": "corner"}
    write_guidance_of_two_replicates(camera_name="corner")
    assert guidance_rows({"environments.other": other, "evaluations.confirmed": CONFIRMED | {"environment": "other"}}) == []


def test_of_equal_scales_the_least_is_chosen(here: Path) -> None:
    write_guidance_of_two_replicates()
    write(0, ("recap", 1.0), range(30))
    assert guidance_rows({})[0]["guidance, by seed"] == f"1, 1, {MISSING}"


def test_results_of_another_experiment_are_refused(here: Path) -> None:
    write(1, START, range(20), first_state=9000)
    with pytest.raises(UserError, match=r"results/small_seed1/evaluations/paired: start has other initial states .*; run the replicate"):
        study([0, 1])


def test_arms_of_other_weights_are_refused(here: Path) -> None:
    """A policy that was trained again is judged anew everywhere, before anything is pooled or chosen."""
    write(0, ("recap", 1.0), range(20))
    write(0, ("recap", 2.0), range(20), weights="1" * 64)
    with pytest.raises(UserError, match=r"paired/recap_w2\.parquet: was run with other weights of 'recap' than another arm; run the repl"):
        study([0])


def test_arms_of_another_environment_are_refused(here: Path) -> None:
    write(0, START, range(20), camera_name="corner3")
    with pytest.raises(UserError, match=r"paired/start_plain\.parquet: was run in another environment than the experiment file says; run"):
        study([0])


def test_a_name_that_is_not_there_is_no_missing_arm(here: Path) -> None:
    with pytest.raises(UserError, match=r"config: evaluations\.paired\.policies: 'strat' is not an entry of policies; did"):
        study([0], {"evaluations.paired.policies": ["strat"]})


def test_arms_that_may_stop_early_are_refused(here: Path) -> None:
    with pytest.raises(UserError, match=r"config: evaluations\.paired\.stop_below: small\.yaml: arms that stop early cannot be pooled"):
        study([0], {"evaluations.paired.stop_below": 0.01})


def test_an_experiment_that_evaluates_nothing_is_refused(here: Path) -> None:
    with pytest.raises(UserError, match=r"config: evaluations: small\.yaml: there are none, .*; add one"):
        read_studies([experiment_file({"evaluations": {}})], [0])


def test_what_is_missing_is_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_two_replicates()
    evidence_stage([experiment_file()], [1, 2], Path("out"))
    page = Path("out/tables.md").read_text()
    absent = ["recap, guidance 1", "steam, guidance 1", "steam, guidance 2", "shuffled, guidance 1", "shuffled, guidance 2"]
    missing = f"**Missing:** seed 1: {', '.join(f'`{name}`' for name in absent)}; seed 2: every arm."
    assert missing in page and f"small, evaluation paired: {missing}" in capsys.readouterr().out
    assert "| steam, guidance 2" in page


def test_every_evaluation_of_an_experiment_has_a_panel(here: Path) -> None:
    write(0, START, range(20))
    shutil.copytree("results/small_seed0/evaluations/paired", "results/small_seed0/evaluations/guidance")
    file = experiment_file({"evaluations.guidance": small_config()["evaluations"]["paired"]})
    titles = {title.split(": ")[0] for title in panels(read_studies([file], [0]))}
    assert titles == {"small, evaluation paired", "small, evaluation guidance"}


def test_another_folder_of_results_replaces_no_pages(here: Path) -> None:
    write(0, START, range(20))
    Path("elsewhere").mkdir()
    file = experiment_file().resolve()
    with contextlib.chdir("elsewhere"), pytest.raises(UserError, match="results: no arm of any replicate is here; run make evidence, or"):
        evidence_stage([file], [0], Path("out"))
    assert not Path("elsewhere/out").exists()


@pytest.fixture
def finished_replicate(finished: Path, here: Path) -> Path:
    """The small finished experiment as the first of two replicates."""
    shutil.copytree(finished, here, dirs_exist_ok=True)
    Path("results/small").rename("results/small_seed0")
    Path("data/small_seed0").mkdir()
    Path("data/rollouts").rename("data/small_seed0/rollouts")
    return experiment_file()


def test_a_finished_experiment_has_every_table(finished_replicate: Path) -> None:
    evidence_stage([finished_replicate], [0, 1], Path("out"))
    page = Path("out/tables.md").read_text()
    titles = [f"{title}, small, evaluation paired" for title in ("Arms", "Tests", "Rounds")]
    titles += ["Value critics, small", "Progress critics, small"]
    assert [line.removeprefix("### ") for line in page.splitlines() if line.startswith("### ")] == titles
    assert f"| 0.081 (mae), {MISSING} " in page  # the ledger
    assert "| mean of the members, held out " in page and SHUFFLED in page
    episodes = pq.read_table("out/episodes.parquet")
    assert episodes.num_rows == 8 * STATES and set(episodes["seed"].to_pylist()) == {0}
    (recap,) = (row for row in page.splitlines() if row.startswith("| recap, guidance 2 ") and "| start " not in row and "%" in row)
    solved = sum(
        row["success"] for row in episodes.to_pylist() if (row["policy"], row["guidance_scale"], row["round"]) == ("recap", 2.0, 1)
    )
    assert recap.split("|")[3].strip() == str(solved) and solved > 0


def test_equal_results_give_equal_bytes(finished_replicate: Path) -> None:
    for folder in ("one", "two"):
        evidence_stage([finished_replicate], [0, 1], Path(folder))
    for name in ("episodes.parquet", "tables.md", "success_paired.png"):
        assert Path("one", name).read_bytes() == Path("two", name).read_bytes()


def test_replicates_are_where_the_workflow_puts_them() -> None:
    repository = Path(__file__).parents[3]
    assert "--config experiment=evidence_$${task}_seed$$seed seed=$$seed" in (repository / "Makefile").read_text()
    assert as_replicate({}, "evidence_drawer", 1) == {"experiment": "evidence_drawer_seed1", "seed": 1}
    files = (repository / "config/experiments").glob("evidence_*.yaml")
    assert [file.name for file in files if load_experiment(read_file(file)).experiment != file.stem] == []
