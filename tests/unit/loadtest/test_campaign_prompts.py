"""Prompts: exactly so many tokens, and equal where their chains are."""

from pathlib import Path

import pytest
from tiny_tokenizer import make_tokenizer

from prfaas.errors import ConfigError
from prfaas_loadtest.workloads import IdPrompts, Request, load_text_prompts


def request(index: int, tokens: int, *chain: tuple[int, int], workload: int = 0) -> Request:
    return Request(index, 0.0, tokens, 1, workload, "", chain)


def test_prompts_share_exactly_what_their_chains_share() -> None:
    prompts = IdPrompts(3, 500, salt=1)
    first = prompts.ids(request(0, 1100, (1, 512), (2, 1024))).tolist()
    second = prompts.ids(request(1, 1030, (1, 512), (2, 1024))).tolist()
    third = prompts.ids(request(2, 600, (1, 512))).tolist()
    assert [len(ids) for ids in (first, second, third)] == [1100, 1030, 600]
    assert first[:1024] == second[:1024]
    assert first[1024:1030] != second[1024:]
    assert third[:512] == first[:512]
    assert third[512:] != first[512:600]
    assert min(first) >= 3
    assert max(first) < 500


def test_other_tenants_and_other_runs_share_nothing() -> None:
    own = request(0, 200, (1, 100))
    found = [
        IdPrompts(3, 500, salt=1).ids(own).tolist(),
        IdPrompts(3, 500, salt=1).ids(request(0, 200, (1, 100), workload=1)).tolist(),
        IdPrompts(3, 500, salt=2).ids(own).tolist(),
    ]
    assert len({tuple(ids[:20]) for ids in found}) == 3
    assert IdPrompts(3, 500, salt=1).ids(own).tolist() == found[0]


@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize("tokens", [40, 1000])
def test_a_text_has_exactly_its_tokens_in_the_served_tokenizer(
    tmp_path: Path, tokens: int, chat: bool
) -> None:
    prompts = load_text_prompts(make_tokenizer(tmp_path), chat=chat, salt=1)
    text = prompts.text(request(0, tokens, (1, 20)))
    assert prompts.count(text) == tokens
    other = prompts.text(request(1, tokens, (1, 20)))
    assert text != other
    assert text.split()[:20] == other.split()[:20]


def test_a_chat_shorter_than_its_template_is_refused(tmp_path: Path) -> None:
    prompts = load_text_prompts(make_tokenizer(tmp_path), chat=True, salt=1)
    with pytest.raises(ConfigError, match="prompt of 2 tokens: 3 are the template's alone"):
        prompts.text(request(0, 2))


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="tokenizer: "):
        load_text_prompts(tmp_path, chat=False, salt=1)
