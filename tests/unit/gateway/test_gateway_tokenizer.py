import json
import threading
from pathlib import Path

import pytest
from tiny_tokenizer import make_tokenizer, words

from prfaas.blocks import HashedPrompt
from prfaas.errors import ConfigError
from prfaas_gateway.errors import RequestError
from prfaas_gateway.inference import ChatPrompt, TextPrompt, TokenPrompt
from prfaas_gateway.tokenizer import ModelTokenizer, TokenizerShelf


def chat(*contents: str, role: str = "user") -> ChatPrompt:
    return ChatPrompt([{"role": role, "content": content} for content in contents], None, {})


async def test_text_and_its_tokens_are_one_prompt(tmp_path: Path) -> None:
    tokenizer = ModelTokenizer.load(str(make_tokenizer(tmp_path)))
    text = await tokenizer.encode(TextPrompt("w0 w1 w2"), namespace="n")
    assert text == await tokenizer.encode(TokenPrompt([1, 2, 3]), namespace="n")
    assert text == HashedPrompt.of([1, 2, 3], namespace="n")


async def test_a_long_prompt_is_tokenized_in_a_thread_with_the_same_result(tmp_path: Path) -> None:
    tokenizer = ModelTokenizer.load(str(make_tokenizer(tmp_path)))
    prompt = TextPrompt(words(5000))
    encoded = await tokenizer.encode(prompt, namespace="n")
    assert encoded == tokenizer.encode_now(prompt, namespace="n")
    assert encoded.num_tokens == 5000


@pytest.mark.parametrize(
    "prompt",
    [
        chat(words(5000)),
        chat(*["w1"] * 1000),
        chat("w1", role=words(5000)),
        ChatPrompt(chat("w1").messages, [{"function": {"enum": ["w1"] * 1000}}], {}),
        ChatPrompt(chat("w1").messages, None, {"extra": [{words(5000): 1}]}),
    ],
    ids=["content", "messages", "role", "tools", "options"],
)
async def test_no_long_chat_is_rendered_on_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prompt: ChatPrompt
) -> None:
    tokenizer = ModelTokenizer.load(str(make_tokenizer(tmp_path)))
    threads: list[int] = []
    render = ModelTokenizer._render
    monkeypatch.setattr(
        ModelTokenizer,
        "_render",
        lambda self, chat: (threads.append(threading.get_ident()), render(self, chat))[1],
    )
    await tokenizer.encode(prompt, namespace="n")
    await tokenizer.token_ids(prompt)
    assert len(threads) == 2
    assert threading.get_ident() not in threads


def test_the_chat_template_is_rendered_with_its_special_tokens(tmp_path: Path) -> None:
    tokenizer = ModelTokenizer.load(str(make_tokenizer(tmp_path)))
    assert tokenizer.template is not None
    encoded = tokenizer.encode_now(chat("w5 w6", "w7"), namespace="")
    # <s> user w5 w6 <s> user w7 assistant; all but the words are unknown to the vocabulary
    assert encoded == HashedPrompt.of([0, 0, 6, 7, 0, 0, 8, 0])


def test_a_template_file_wins_and_options_reach_it(tmp_path: Path) -> None:
    make_tokenizer(tmp_path)
    (tmp_path / "chat_template.jinja").write_text(
        "{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}"
        "{% if enable_thinking %}w1{% else %}w2{% endif %}"
        "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %} w3{% endfor %}"
    )
    tokenizer = ModelTokenizer.load(str(tmp_path))
    prompt = ChatPrompt(chat("a", "b").messages, None, {"enable_thinking": True})
    assert tokenizer.encode_now(prompt, namespace="") == HashedPrompt.of([2, 4])
    assert tokenizer.encode_now(chat("a", "b"), namespace="") == HashedPrompt.of([3, 4])


def test_documents_reach_a_template(tmp_path: Path) -> None:
    make_tokenizer(tmp_path)
    (tmp_path / "chat_template.jinja").write_text(
        "{% for d in documents or [] %} {{ d }}{% endfor %}"
    )
    tokenizer = ModelTokenizer.load(str(tmp_path))
    prompt = ChatPrompt(chat("a").messages, None, {"documents": ["w1", "w2"]})
    assert tokenizer.encode_now(prompt, namespace="") == HashedPrompt.of([2, 3])
    assert tokenizer.encode_now(chat("a"), namespace="") == HashedPrompt.of([])


@pytest.mark.parametrize(
    "template",
    ["{{ raise_exception('no') }}", "{{ 1 / 0 }}", "{{ messages.append(1) }}", "{{ x.y.z }}"],
)
def test_a_template_that_fails_is_the_requests_error(tmp_path: Path, template: str) -> None:
    make_tokenizer(tmp_path)
    (tmp_path / "chat_template.jinja").write_text(template)
    with pytest.raises(RequestError, match="chat template"):
        ModelTokenizer.load(str(tmp_path)).encode_now(chat("w1"), namespace="")


@pytest.mark.parametrize("broken", ["missing", "tokenizer", "config", "template"])
def test_an_unusable_directory_is_named(tmp_path: Path, broken: str) -> None:
    make_tokenizer(tmp_path)
    if broken == "missing":
        (tmp_path / "tokenizer.json").unlink()
    if broken == "tokenizer":
        (tmp_path / "tokenizer.json").write_text("{}")
    if broken == "config":
        (tmp_path / "tokenizer_config.json").write_text("[]")
    if broken == "template":
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{% if"}))
    with pytest.raises(ConfigError, match=str(tmp_path)):
        ModelTokenizer.load(str(tmp_path))


async def test_the_shelf_loads_once_and_the_fixed_path_serves_all(tmp_path: Path) -> None:
    one, two = make_tokenizer(tmp_path / "one"), make_tokenizer(tmp_path / "two")
    shelf = TokenizerShelf("")
    shelf.preload()
    assert await shelf.get(str(one)) is await shelf.get(str(one))
    assert await shelf.get(str(one)) is not await shelf.get(str(two))
    fixed = TokenizerShelf(str(one))
    fixed.preload()
    assert await fixed.get(str(two)) is await fixed.get("")
