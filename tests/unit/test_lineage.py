"""Digests follow content and code; a lineage that does not fit is one line that says what differs."""

import os

import pytest

from recap_steam import lineage
from recap_steam.errors import UserError
from recap_steam.lineage import Lineage, check_lineage, code_digest, digest_file, digest_json, digest_listing

RECORD = Lineage("compute_returns", "fail40", "a" * 64, {"gamma": 1.0, "nested": {"b": 1}}, {"critic": "c" * 64}, {"mean": -3.5}, "d" * 64)


def test_digest_json_is_of_the_value_not_of_its_text():
    assert digest_json({"a": 1, "b": [1.5, "é"]}) == digest_json({"b": [1.5, "é"], "a": 1})
    assert digest_json({"a": 1}) != digest_json({"a": 2})
    with pytest.raises(ValueError):
        digest_json(float("nan"))


def test_digest_file(tmp_path):
    (tmp_path / "file").write_bytes(b"abc")
    assert digest_file(tmp_path / "file") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    with pytest.raises(UserError, match="absent: not found; run Snakemake again"):
        digest_file(tmp_path / "absent")


def test_digest_listing_notices_changed_new_and_removed_files_of_the_given_kind(tmp_path):
    folder, alone = tmp_path / "folder", tmp_path / "alone.json"
    (folder / "deep").mkdir(parents=True)
    weights, text = folder / "deep/model.safetensors", folder / "README.md"
    for path in (weights, text, alone):
        path.write_text("old")
    (folder / "dangling.json").symlink_to("nowhere")  # as a partial copy leaves it

    def digest():
        return digest_listing([folder, alone, tmp_path / "absent"], (".json", ".safetensors"))

    digests = [digest()]
    text.write_text("another length")
    assert digest() == digests[0] != digest_listing([folder, alone])
    for change in (
        lambda: weights.write_text("another length"),
        lambda: os.utime(weights, ns=(1, 1)),
        lambda: alone.write_text("another length"),
        lambda: (folder / "new.json").touch(),
        lambda: weights.unlink(),
    ):
        change()
        digests.append(digest())
    assert len(set(digests)) == len(digests)


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package like ours: a imports b, b's package and, inside a function, c; d stands alone."""
    sources = {"__init__": "", "a": "from recap_steam.sub.b import x\n", "c": "y = 1\n", "d": "z = 1\n"}
    for name, text in sources.items():
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/__init__.py").write_text("")
    (tmp_path / "sub/b.py").write_text("import os, numpy\ndef f():\n    from .. import c\nx = 1\n")
    monkeypatch.setattr(lineage, "_ROOT", tmp_path)

    def digest(*modules):
        lineage._imports.cache_clear()
        lineage._file_digest.cache_clear()
        return code_digest(*modules)

    yield tmp_path, digest
    digest_cleanup()


def digest_cleanup():
    lineage._imports.cache_clear()
    lineage._file_digest.cache_clear()


@pytest.mark.parametrize(
    ("changed", "matters"), [("a.py", True), ("sub/b.py", True), ("sub/__init__.py", True), ("c.py", True), ("d.py", False)]
)
def test_code_digest_follows_imports(package, changed, matters):
    root, digest = package
    before = digest("recap_steam.a")
    (root / changed).write_text((root / changed).read_text() + "# changed\n")
    assert (digest("recap_steam.a") != before) == matters


def test_code_digest_of_an_unknown_module():
    with pytest.raises(ValueError, match=r"no module recap_steam\.absent"):
        code_digest("recap_steam.absent")


def test_record_round_trip_has_no_timestamp_and_one_form():
    text = RECORD.to_json()
    assert Lineage.from_json(text, path="x") == RECORD and Lineage.from_json(text, path="x").to_json() == text
    assert text == text.strip() and "\n" not in text and "time" not in text


@pytest.mark.parametrize("text", ["{", "[]", '{"stage": "x"}'])
def test_unreadable_record(text):
    with pytest.raises(UserError, match=r"file: its lineage record is unreadable; delete the file"):
        Lineage.from_json(text, path="file")


def test_record_of_another_schema_version():
    with pytest.raises(UserError, match="file: lineage schema version 2, expected 1"):
        Lineage.from_json(RECORD.to_json().replace('"schema_version": 1', '"schema_version": 2'), path="file")


def test_check_passes_on_what_is_expected():
    check_lineage(RECORD, path="f", remedy="run", stage="compute_returns", parameters={"gamma": 1.0}, inputs={"critic": "c" * 64})


@pytest.mark.parametrize(
    ("expected", "message"),
    [
        ({"tag": "other"}, "f: tag is fail40, needed is other; run this"),
        ({"parameters": {"gamma": 0.9}}, r"f: parameters\.gamma is 1\.0, needed is 0\.9; run this"),
        ({"parameters": {"nested": {"b": 2}}}, r'f: parameters\.nested is \{"b": 1\}, needed is \{"b": 2\}'),
        ({"parameters": {"absent": 1}}, r"f: parameters\.absent is absent, needed is 1"),
        ({"inputs": {"critic": "e" * 64}}, r"f: inputs\.critic is cccccccccccc, needed is eeeeeeeeeeee"),
        ({"dataset_fingerprint": None}, r"f: dataset_fingerprint is aaaaaaaaaaaa, needed is null"),
    ],
)
def test_check_says_what_differs(expected, message):
    with pytest.raises(UserError, match=message):
        check_lineage(RECORD, path="f", remedy="run this", **expected)
