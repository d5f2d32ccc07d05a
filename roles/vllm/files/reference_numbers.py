"""Print the log probabilities of texts as transformers computes them in float32 on the processor.

Run by the engine's Python: reference_numbers.py MODEL_DIRECTORY TEXTS_AS_JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time

os.environ.update(
    # Neither the hub nor an accelerator, which is the engine's, nor a plugin that takes one.
    HF_HUB_OFFLINE="1",
    TRANSFORMERS_OFFLINE="1",
    CUDA_VISIBLE_DEVICES="",
    TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    # Threads that wait for each other spin, and take the processor from the engine.
    OMP_NUM_THREADS="1",
    TOKENIZERS_PARALLELISM="0",
)

place, texts = sys.argv[1:]
started = time.monotonic()
try:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
except ImportError as error:
    print(json.dumps({"result": {"skipped": f"the environment has no transformers: {error}"}}))
    sys.exit(0)

try:
    tokenizer = AutoTokenizer.from_pretrained(place, trust_remote_code=False)
    model, loaded = AutoModelForCausalLM.from_pretrained(
        place, dtype=torch.float32, trust_remote_code=False, output_loading_info=True
    )
# What transformers cannot read, vLLM may: that there is no reference is no failure of the engine.
# An older one does not know the argument dtype.
except (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    OSError,
    ImportError,
    RuntimeError,
) as error:
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    print(json.dumps({"result": {"skipped": f"transformers cannot read the model: {first}"}}))
    sys.exit(0)
# Transformers fills these with random numbers, and only warns.
lacking = [*loaded["missing_keys"], *loaded["mismatched_keys"]]
if lacking:
    why = f"transformers lacks {len(lacking)} of its weights, as {sorted(map(str, lacking))[0]}"
    print(json.dumps({"result": {"skipped": why}}))
    sys.exit(0)
model.eval()

found = []
for text in json.loads(texts):
    tokens = tokenizer(text)["input_ids"]
    with torch.inference_mode():
        numbers = model(torch.tensor([tokens])).logits[0, :-1].float().log_softmax(-1)
    own = numbers.gather(-1, torch.tensor(tokens[1:]).unsqueeze(-1)).squeeze(-1)
    found.append({"tokens": tokens[1:], "logprobs": [round(one, 5) for one in own.tolist()]})
seconds = round(time.monotonic() - started, 2)
print(json.dumps({"result": {"prompts": found, "seconds": seconds}}))
