import contextlib
import itertools
import json
import math
import os

import pytest
import torch
from safetensors.torch import load_file
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from recap_steam import devices
from recap_steam.errors import UserError
from recap_steam.lineage import Lineage, digest_file
from recap_steam.training.batches import BatchPlan
from recap_steam.training.loop import Trainer, train
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


@pytest.mark.parametrize(
    ("measured", "exported"), [([3, 2, 4], 2), ([math.nan, 2, 4], 2), ([3, math.nan, 4], 3), ([math.nan] * 3, math.nan)]
)
def test_a_metric_that_is_no_number_never_wins(tmp_path, measured, exported):
    """A rank correlation with a constant is none; where it never is one, the last checkpoint counts, as without held-out data."""
    toy, values = Toy(selection=("eval/mae", "min")), iter(measured)
    toy.evaluate = lambda: {"eval/mae": next(values)}
    output = run(tmp_path, toy)
    assert json.loads((output / "evaluation.json").read_text())["eval/mae"] == pytest.approx(exported, nan_ok=True)
    last = torch.equal(load_file(output / "model.safetensors")["0.weight"], toy.model.state_dict()["0.weight"])
    assert last == math.isnan(exported)


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


def test_weights_that_are_not_finite_are_not_exported(tmp_path):
    """A broken start of a run that is shorter than the patience."""
    toy = Toy()
    with torch.no_grad():
        next(toy.model.parameters()).fill_(torch.nan)
    with pytest.raises(UserError, match=r"weights \S+ are not finite, nothing is exported; look at the weights that it started from"):
        run(tmp_path, toy, ToyConfig(max_steps=2))
    assert not (tmp_path / "output/model.safetensors").exists()


def test_a_metric_of_nothing_is_null_not_zero(tmp_path):
    toy, zero = Toy(), torch.tensor(0.0)
    loss = toy.loss
    toy.loss = lambda batch: (loss(batch)[0], {"absent_branch": (zero, zero)})
    assert {row["train/absent_branch"] for row in rows(run(tmp_path, toy, ToyConfig(max_steps=2)))} == {None}


def test_a_sum_without_count_is_a_total_over_the_global_batch(tmp_path):
    toy = Toy()
    loss = toy.loss
    toy.loss = lambda batch: (loss(batch)[0], {"count_samples": (torch.tensor(float(len(batch["x"]))), None)})
    output = run(tmp_path, toy, ToyConfig(max_steps=2, micro_batch_size=2))
    assert [row["train/count_samples"] for row in rows(output)] == [8.0, 8.0]


def test_defect_24_no_plan_leaves_out_a_sample(monkeypatch):
    """Every size is refused, or the processes' micro batches cover the global batch exactly once."""
    covered = 0
    for world, total, micro in itertools.product(range(1, 5), range(1, 13), (None, *range(1, 13))):
        monkeypatch.setattr(devices, "world_size", lambda world=world: world)
        try:
            plans = []
            for rank in range(world):
                monkeypatch.setattr(devices, "rank", lambda rank=rank: rank)
                plans.append(BatchPlan.of(ToyConfig(global_batch_size=total, micro_batch_size=micro)))
        except UserError:
            assert total % ((micro or max(1, total // world)) * world)
            continue
        covered += 1
        assert [position for plan in plans for part in plan.micro_batches for position in part] == list(range(total))
        assert all(plan.micro_batches for plan in plans)
    assert covered > 50


def test_defect_30_the_seed_is_all_that_chance_depends_on(tmp_path):
    one, same, other = (
        (run(tmp_path / name, Toy(), ToyConfig(max_steps=6, seed=seed)) / "model.safetensors").read_bytes()
        for name, seed in (("one", 3), ("same", 3), ("other", 4))
    )
    assert one == same != other


def test_defect_31_a_resumed_run_neither_repeats_nor_skips_a_sample(tmp_path):
    whole, halves = Toy(), [Toy(fail_at=13), Toy()]
    run(tmp_path / "whole", whole)
    with pytest.raises(RuntimeError, match="killed"):
        run(tmp_path, halves[0])
    run(tmp_path, halves[1])
    saved = 10  # steps in the last state
    seen = torch.stack(halves[0].seen[:saved] + halves[1].seen)
    assert torch.equal(seen, torch.stack(whole.seen)) and len(seen) == 30


class HostReads(TorchFunctionMode):
    """Counts what makes the host wait for the device."""

    WAITING = (torch.Tensor.item, torch.Tensor.tolist, torch.Tensor.cpu, torch.Tensor.numpy, torch.Tensor.__bool__, torch.Tensor.__float__)

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.count += function in self.WAITING
        return function(*args, **(kwargs or {}))


class ScalarReads(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += function.overloadpacket is torch.ops.aten._local_scalar_dense
        return function(*args, **(kwargs or {}))


def test_defect_45_the_loop_reads_the_device_once_per_step(tmp_path):
    config = ToyConfig(max_steps=5, micro_batch_size=2, eval_interval=100, save_interval=100)
    trainer = Trainer(Toy(), config, tmp_path / "state", tmp_path / "output", lineage())
    with contextlib.closing(trainer._batches()) as batches:
        trainer._step(batches, False)
        with HostReads() as reads, ScalarReads() as scalars:
            trainer._step(batches, False)
    assert (reads.count, scalars.count) == (1, 0)  # one list of numbers, after four micro batches and the update


def test_changed_parameters_start_anew(tmp_path):
    run(tmp_path, Toy(), ToyConfig(max_steps=10))
    output = run(tmp_path, Toy(), ToyConfig(max_steps=10), lineage(lr=2))
    assert [row["step"] for row in rows(output)] == list(range(1, 11))


def test_a_compiled_model_trains_as_it_would_have(tmp_path, monkeypatch):
    losses, graphs = [], []

    def backend(graph, inputs):
        """Receives what any backend does; generating code for it would take minutes."""
        graphs.append(graph)
        return graph.forward

    monkeypatch.setattr(devices, "compile_backend", lambda: backend)
    for compiled in (False, True):
        output = run(tmp_path / str(compiled), Toy(dropout=0.0), ToyConfig(max_steps=4, micro_batch_size=4, compile_model=compiled))
        losses.append([row["train/loss"] for row in rows(output)])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert graphs


def test_a_finished_run_is_exported_again_without_a_step(tmp_path):
    first = run(tmp_path, Toy())
    before = (first / "model.safetensors").read_bytes()
    (first / "model.safetensors").unlink()
    toy = Toy()
    run(tmp_path, toy)
    assert (first / "model.safetensors").read_bytes() == before and toy.losses == []


def test_of_older_runs_only_the_last_keeps_its_state(tmp_path):
    config = ToyConfig(max_steps=2)
    for lr in (1, 2, 3):
        run(tmp_path, Toy(), config, lineage(lr=lr))
        os.utime(max(tmp_path.glob("state/*/"), key=lambda path: path.stat().st_mtime), (lr, lr))
    assert len(list(tmp_path.glob("state/*/"))) == 2
    taken_back = Toy()
    run(tmp_path, taken_back, config, lineage(lr=2))
    assert taken_back.losses == []
    forgotten = Toy()
    run(tmp_path, forgotten, config, lineage(lr=1))
    assert len(forgotten.losses) == 2


def test_only_the_last_state_is_kept(tmp_path):
    run(tmp_path, Toy(selection=("eval/mae", "min")))
    kept = {path.name for path in tmp_path.glob("state/*/*")}
    assert {"metrics.jsonl", "step_000000030"} < kept and len(kept) == 3  # and the weights of the best step


def test_candidates_for_export_do_not_pile_up_between_two_states(tmp_path):
    toy, found = Toy(selection=("eval/mae", "min")), []

    def evaluate() -> dict[str, float]:
        found.append(sorted(int(path.stem.removeprefix("weights_")) for path in tmp_path.glob("state/*/weights_*")))
        return {"eval/mae": 1 / len(found)}  # better every time

    toy.evaluate = evaluate
    run(tmp_path, toy, ToyConfig(eval_interval=5, save_interval=15))
    assert found == [[], [5], [10], [15], [15, 20], [15, 25]]


def test_a_failing_export_leaves_no_output(tmp_path):
    toy = Toy()
    toy.export = lambda *_: (_ for _ in ()).throw(OSError("disk"))
    with pytest.raises(UserError, match=r"output: cannot be written \(disk\); check .* and run again; the last saved state is kept"):
        run(tmp_path, toy)
    assert list((tmp_path / "output").iterdir()) == [tmp_path / "output/tensorboard"]


def test_one_writer_at_a_time(tmp_path):
    with devices.exclusive(tmp_path / "state"), pytest.raises(UserError, match="is writing into this state folder"):
        run(tmp_path, Toy())
