from dataclasses import replace
from pathlib import Path

import pytest
from test_deploy_plan import OPTIONS, PLACE
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from prfaas.errors import ConfigError
from prfaas_cli.chat import _moved, _repeat
from prfaas_cli.observation import Observed


@pytest.fixture
def observed(tmp_path: Path) -> Observed:
    tokenizer = Tokenizer(WordLevel({"[UNK]": 0, "why": 1}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return Observed(PLACE, replace(OPTIONS, model_path=str(tmp_path)), ())


@pytest.mark.parametrize("tokens", [1, 2, 7, 900])
def test_a_prompt_is_repeated_to_a_number_of_tokens(observed: Observed, tokens: int) -> None:
    assert len(_repeat("why so blue", tokens, observed).split()) == tokens


def test_words_of_several_tokens_are_counted(observed: Observed) -> None:
    assert _repeat("why-so", 6, observed) == "why-so why-so"


def test_an_empty_prompt_and_a_missing_tokenizer_are_refused(observed: Observed) -> None:
    with pytest.raises(ConfigError, match="empty"):
        _repeat("  ", 5, observed)
    with pytest.raises(ConfigError, match="deployment"):
        _repeat("why", 5, None)
    nowhere = replace(observed, options=replace(OPTIONS, model_path="/no/such"))
    with pytest.raises(ConfigError, match=r"tokenizer\.json"):
        _repeat("why", 5, nowhere)


def test_counters_that_vanished_are_not_guessed() -> None:
    before = {("wan", "a", "b"): 1, ("payload", "x", "sent"): 2, ("payload", "y", "sent"): 5}
    after = {("wan", "a", "b"): 4, ("payload", "x", "sent"): 2, ("payload", "z", "sent"): 9}
    assert _moved(before, after) == [
        {"what": "wan", "from": "a", "to": "b", "bytes": 3},
        {"what": "payload", "node": "x", "direction": "sent", "bytes": 0},
    ]
