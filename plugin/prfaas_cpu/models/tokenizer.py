"""A byte-level BPE tokenizer of 512 tokens, trained on the text beside this file."""

from pathlib import Path
from typing import Any

VOCABULARY = 512
END_OF_TEXT = "<|endoftext|>"
END_OF_TEXT_ID = 0
_SPECIAL = (END_OF_TEXT, "<|im_start|>", "<|im_end|>")
_CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_tokenizer(directory: Path) -> None:
    """Train the tokenizer and save it, with its chat template, into `directory`."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer_class: Any = trainers.BpeTrainer  # its stub has no types
    trainer = trainer_class(
        vocab_size=VOCABULARY,
        special_tokens=list(_SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    corpus = Path(__file__).with_name("corpus.txt").read_text()
    tokenizer.train_from_iterator(corpus.splitlines(keepends=True), trainer)
    if tokenizer.get_vocab_size() != VOCABULARY:
        raise RuntimeError(
            f"corpus.txt yields {tokenizer.get_vocab_size()} tokens, not {VOCABULARY}"
        )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END_OF_TEXT, pad_token=END_OF_TEXT
    )
    fast.chat_template = _CHAT_TEMPLATE
    fast.save_pretrained(directory)
