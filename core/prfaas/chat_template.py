"""Chat templates: messages to the text that a model is prompted with.

Source: transformers, utils/chat_template_utils.py (the sandbox that templates are written for).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.sandbox


def compile_template(source: str, *, now: Callable[[], datetime]) -> jinja2.Template:
    """Return a template in a sandbox; `now` is what it may ask the time of.

    Raises:
        jinja2.TemplateError: it is not a template.
    """
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda form: now().strftime(form)
    return environment.from_string(source)


def template_source(config: Mapping[str, Any]) -> str:
    """Return the default template of a `tokenizer_config.json`, empty if it has none."""
    source = config.get("chat_template")
    if isinstance(source, list):
        source = next((item["template"] for item in source if item["name"] == "default"), None)
    return str(source or "")


def special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the special tokens of a `tokenizer_config.json` that templates use."""
    tokens = {}
    for name in ("bos_token", "eos_token", "unk_token", "pad_token"):
        value = config.get(name)
        if isinstance(value, dict):
            value = value.get("content")
        if isinstance(value, str):
            tokens[name] = value
    return tokens


def render_chat(
    template: jinja2.Template,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Any] | None = None,
    variables: Mapping[str, Any],
) -> str:
    """Return the prompt of a chat, up to where the model's answer begins.

    Raises:
        Exception: whatever a template may raise on messages that it does not like.
    """
    return template.render(
        messages=messages,
        tools=tools,
        **{"documents": None, "add_generation_prompt": True, **variables},
    )


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)
