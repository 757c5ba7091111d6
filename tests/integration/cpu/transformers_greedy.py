"""Greedy continuations by transformers in fp32: MODEL TOKENS, with prompts as JSON on stdin."""

import json
import sys

import torch
from transformers import AutoModelForCausalLM

torch.set_num_threads(1)
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32).eval()
answers = []
for prompt in json.load(sys.stdin):
    with torch.no_grad():
        whole = model.generate(
            torch.tensor([prompt]),
            max_new_tokens=int(sys.argv[2]),
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
    answers.append(whole[0, len(prompt) :].tolist())
json.dump(answers, sys.stdout)
