import json

import pytest
import torch
from safetensors.torch import load_file

from recap_steam import devices
from recap_steam.errors import UserError
from recap_steam.lineage import Lineage, digest_file
from recap_steam.training.loop import BatchPlan, train
from tests.unit.training.toy import Toy, ToyConfig, lineage


@pytest.fixture(autouse=True)
def group():
    with devices.distributed():
        yield


def run(folder, toy: Toy, config: ToyConfig | None = None, record: Lineage | None = None):
    train(toy, config or ToyConfig(), folder / "state", folder / "output", record or lineage())
    return folder / "output"


def rows(output) -> list[dict]:
    return [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]


def test_defect_25_training_ends_by_itself_and_writes_every_step(tmp_path):
    output = run(tmp_path, Toy())
    assert [row["step"] for row in rows(output)] == list(range(1, 31))
    assert [row["step"] for row in rows(output) if "eval/mae" in row] == [10, 20, 30]
    assert rows(output)[-1]["eval/mae"] < rows(output)[9]["eval/mae"]
    assert {path.name for path in output.iterdir()} == {
        "model.safetensors",
        "evaluation.json",
        "metrics.jsonl",
        "lineage.json",
        "tensorboard",
    }
    found = Lineage.from_json((output / "lineage.json").read_text(), path=output)
    assert found.statistics["digests"] == {"model.safetensors": digest_file(output / "model.safetensors")}


def test_the_best_checkpoint_by_the_held_out_metric_is_exported(tmp_path):
    worst = Toy(selection=("eval/mae", "max"))  # the earliest, as the error falls
    output = run(tmp_path, worst)
    evaluation = json.loads((output / "evaluation.json").read_text())
    assert evaluation["eval/mae"] == max(row["eval/mae"] for row in rows(output) if "eval/mae" in row) != rows(output)[-1]["eval/mae"]
    exported, last = load_file(output / "model.safetensors"), worst.model.state_dict()
    assert not torch.equal(exported["0.weight"], last["0.weight"])
    worst.model.load_state_dict(exported)
    worst.model.eval()
    with torch.no_grad():
        assert worst.evaluate() == evaluation


@pytest.mark.parametrize(("micro", "total"), [(3, 8), (16, 8)])
def test_defect_24_batches_that_do_not_divide_are_refused(micro, total):
    with pytest.raises(UserError, match=f"global_batch_size {total} is not a multiple of micro_batch_size {micro} x 1 processes"):
        BatchPlan.of(ToyConfig(global_batch_size=total, micro_batch_size=micro))


def test_more_processes_than_samples_are_refused(monkeypatch):
    monkeypatch.setattr(devices, "world_size", lambda: 16)
    with pytest.raises(UserError, match="not a multiple of micro_batch_size 1 x 16 processes"):
        BatchPlan.of(ToyConfig())


def test_a_loss_that_stays_non_finite_is_an_error_and_changes_no_weight(tmp_path):
    toy = Toy(nan_from=12)
    with pytest.raises(UserError, match=r"not finite for 3 steps up to step 15; lower optim\.lr"):
        run(tmp_path, toy)
    assert all(torch.isfinite(tensor).all() for tensor in toy.model.state_dict().values())
    assert not (tmp_path / "output/model.safetensors").exists()


def test_a_metric_of_nothing_is_null_not_zero(tmp_path):
    toy, zero = Toy(), torch.tensor(0.0)
    loss = toy.loss
    toy.loss = lambda batch: (loss(batch)[0], {"absent_branch": (zero, zero)})
    assert {row["train/absent_branch"] for row in rows(run(tmp_path, toy, ToyConfig(max_steps=2)))} == {None}


def test_changed_parameters_start_anew(tmp_path):
    run(tmp_path, Toy(), ToyConfig(max_steps=10))
    output = run(tmp_path, Toy(), ToyConfig(max_steps=10), lineage(lr=2))
    assert [row["step"] for row in rows(output)] == list(range(1, 11))


def test_a_finished_run_is_exported_again_without_a_step(tmp_path):
    first = run(tmp_path, Toy())
    before = (first / "model.safetensors").read_bytes()
    (first / "model.safetensors").unlink()
    toy = Toy()
    run(tmp_path, toy)
    assert (first / "model.safetensors").read_bytes() == before and toy.losses == []


def test_only_the_last_state_is_kept(tmp_path):
    run(tmp_path, Toy(selection=("eval/mae", "min")))
    kept = {path.name for path in tmp_path.glob("state/*/*")}
    assert {"metrics.jsonl", "step_000000030"} < kept and len(kept) == 3  # and the weights of the best step


def test_a_failing_export_leaves_no_output(tmp_path):
    toy = Toy()
    toy.export = lambda *_: (_ for _ in ()).throw(OSError("disk"))
    with pytest.raises(UserError, match=r"output: cannot be written \(disk\); check .* and run again; the last saved state is kept"):
        run(tmp_path, toy)
    assert list((tmp_path / "output").iterdir()) == [tmp_path / "output/tensorboard"]


def test_one_writer_at_a_time(tmp_path):
    with devices.exclusive(tmp_path / "state"), pytest.raises(UserError, match="is writing into this state folder"):
        run(tmp_path, Toy())
