"""Turn the GGUF file that a Python package carries into a safetensors directory.

Run by the engine's Python: from_package.py FOLDER GGUF_FILE OUT.
"""

from __future__ import annotations

import functools
import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

import gguf
import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

# transformers reads the file for tokenizer, configuration and tensors, and makes the map of their
# names for each module anew: two fifths of the time that all of this takes.
gguf.GGUFReader = functools.cache(gguf.GGUFReader)
gguf.get_tensor_name_map = functools.cache(gguf.get_tensor_name_map)

# Releases without this class, such as that of the lock for CUDA 12, always dequantize.
options = {}
if hasattr(transformers, "GgufConfig"):
    options["quantization_config"] = transformers.GgufConfig(dequantize=True)

folder, name, out = sys.argv[1:]
AutoTokenizer.from_pretrained(folder, gguf_file=name).save_pretrained(out)
model = AutoModelForCausalLM.from_pretrained(
    folder,
    gguf_file=name,
    dtype=torch.bfloat16,
    **options,
)
model.save_pretrained(out)
