"""Columns of every kind of sidecar, and the rule that writes it."""

from collections.abc import Collection

import pyarrow as pa

from recap_steam.dataset.columns import KEY_COLUMNS

_KEY_FIELDS = dict.fromkeys(KEY_COLUMNS, pa.int64())
_TEXT = pa.dictionary(pa.int32(), pa.string())
_BY_MEMBER = pa.list_(pa.field("element", pa.float64()))  # one number for each member of an ensemble
_SCORES = {  # the reference's columns of STEAM in its order
    "ensemble_signed_score": pa.float64(),
    "p_progress_mean": pa.float64(),
    "p_progress_min": pa.float64(),
    "p_progress_variance": pa.float64(),
    "member_values": _BY_MEMBER,
    "expected_stride_normalized": pa.float64(),
    "entropy_aggregated": pa.float64(),
    "entropy_member_mean": pa.float64(),
    "entropy_member_variance": pa.float64(),
}
SCHEMAS: dict[str, pa.Schema] = {
    "returns": pa.schema({**_KEY_FIELDS, "return": pa.float32(), "reward": pa.float32(), "prompt": _TEXT}),
    "values": pa.schema({**_KEY_FIELDS, "value": pa.float32(), "value_std": pa.float32(), "value_entropy": pa.float32()}),
    "scores": pa.schema({**_KEY_FIELDS, **_SCORES, "member_expected_bins": _BY_MEMBER, "look_ahead": pa.int64()}),
    "advantages": pa.schema(  # of RECAP: the reference's columns in its order, so that its tools read ours
        {
            **_KEY_FIELDS,
            "advantage_continuous": pa.float64(),
            "return": pa.float64(),
            "value_current": pa.float64(),
            "value_next": pa.float64(),
            "reward_sum": pa.float64(),
            "reward_sum_raw": pa.float64(),
            "num_valid_rewards": pa.int64(),
            "dataset_name": pa.string(),
            "advantage": pa.bool_(),
        }
    ),
}
STEAM_ADVANTAGES = pa.schema({**_KEY_FIELDS, "advantage": pa.bool_(), "advantage_continuous": pa.float64(), **_SCORES})
LABELS = pa.schema({**_KEY_FIELDS, "advantage": pa.bool_()})  # that are imported without what they were drawn from
RULES = {kind: f"compute_{kind}" for kind in SCHEMAS}


def schema_of(kind: str, names: Collection[str]) -> pa.Schema:
    """The schema of a sidecar with columns ``names``: advantages are laid out by the method that they come from, as in the reference."""
    if kind == "advantages" and {*names, *KEY_COLUMNS} == {*LABELS.names}:
        return LABELS
    return STEAM_ADVANTAGES if kind == "advantages" and "ensemble_signed_score" in names else SCHEMAS[kind]
