import subprocess
import sys

import pytest

from recap_steam.errors import UserError
from recap_steam.tokenizer import load_tokenizer, train_tokenizer

TEXTS = ["Task: open the drawer.", "Task: close the drawer.", "Task: open the door, State: 12 255 0 128;"] * 3


def test_training_is_deterministic_whatever_the_order(tmp_path):
    train_tokenizer(TEXTS, 300).save_pretrained(tmp_path / "here")
    code = (
        "import sys; from recap_steam.tokenizer import train_tokenizer; "
        f"train_tokenizer({TEXTS[::-1]!r}, 300).save_pretrained({str(tmp_path / 'there')!r})"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "here" / name).read_bytes() == (tmp_path / "there" / name).read_bytes()


def test_saved_and_loaded_tokenizers_agree_on_any_string(tmp_path):
    trained = train_tokenizer(TEXTS, 300)
    trained.save_pretrained(tmp_path)
    loaded = load_tokenizer(tmp_path)
    for text in (*TEXTS, "öffne die Schublade 抽屉\n\x00"):
        ids = loaded(text)["input_ids"]
        assert ids == trained(text)["input_ids"] and ids[0] == loaded.bos_token_id == 2
        assert loaded.unk_token_id not in ids
        assert loaded.decode(ids, skip_special_tokens=True) == text
    assert (loaded.pad_token_id, loaded.eos_token_id) == (0, 1) and len(loaded) <= 300


def test_prompts_seen_in_training_are_short():
    tokenizer = train_tokenizer(TEXTS, 512)
    assert len(tokenizer("Task: open the drawer.")["input_ids"]) < 10


def test_missing_and_broken_folders_are_one_line(tmp_path):
    with pytest.raises(UserError, match=r"tokenizer\.json: not found; tokenizer_path must be a local folder"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(UserError, match="not a readable tokenizer"):
        load_tokenizer(tmp_path)


def test_too_small_a_vocabulary_is_refused():
    with pytest.raises(UserError, match="needs vocab_size 260 or more, not 100"):
        train_tokenizer(TEXTS, 100)
