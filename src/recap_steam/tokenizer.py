"""Tokenizers of critics and policies: loaded from a local folder, or trained on the experiment's own prompts."""

from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers.tokenization_utils_tokenizers import PreTrainedTokenizerFast

from recap_steam.errors import UserError, config_error

SPECIAL_TOKENS = ["<pad>", "<eos>", "<bos>", "<unk>"]  # ids 0 to 3, in Gemma's order


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE on ``texts``; equal texts, in any order, give an equal tokenizer. Every string can be encoded.

    Raises:
        UserError: ``vocab_size`` is smaller than the special tokens and the 256 bytes.
    """
    smallest = len(SPECIAL_TOKENS) + 256
    if vocab_size < smallest:
        raise UserError(f"config: a tokenizer trained on the prompts needs vocab_size {smallest} or more, not {vocab_size}")
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=SPECIAL_TOKENS, initial_alphabet=sorted(alphabet), show_progress=False
    )
    tokenizer.train_from_iterator(sorted(set(texts)), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", tokenizer.token_to_id("<bos>"))])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", bos_token="<bos>", unk_token="<unk>", padding_side="right"
    )


def load_tokenizer(folder: Path | str) -> PreTrainedTokenizerFast:
    """Load a tokenizer from a local folder; nothing is ever downloaded.

    Raises:
        UserError: the folder has no tokenizer.json, or it is unreadable.
    """
    path = Path(folder) / "tokenizer.json"
    if not path.is_file():
        raise UserError(f"{path}: not found; tokenizer_path must be a local folder with a Hugging Face fast tokenizer")
    from transformers.models.auto.tokenization_auto import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    except Exception as error:  # the tokenizers library raises bare Exception
        raise UserError(f"{folder}: not a readable tokenizer ({str(error).splitlines()[0]}); save it again") from error


def check_vocabulary(tokenizer: PreTrainedTokenizerFast, embedded: int, key: str) -> None:
    """Check that a model which embeds ``embedded`` tokens can read what a tokenizer makes; ``key`` is where its folder was given.

    Tokens that were added to the vocabulary do not count: the published tokenizers of Gemma3 and PaliGemma end with a token for images, for
    which the text models have no row, and which no prompt has.

    Raises:
        UserError: the tokenizer is a larger model's.
    """
    if tokenizer.vocab_size > embedded:
        raise config_error(key, f"the tokenizer has {tokenizer.vocab_size} tokens, but the model embeds {embedded}; give the model's own")
