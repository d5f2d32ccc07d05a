"""From a configuration, and the checkpoint's own figures where at hand, to a model."""

from __future__ import annotations

import re
from dataclasses import replace

from vllm_ansible.plan.estimate.architectures import declared
from vllm_ansible.plan.estimate.architectures.checkpoint import Checkpoint
from vllm_ansible.plan.estimate.architectures.config import Settings, brief
from vllm_ansible.plan.estimate.architectures.drafts import next_layers
from vllm_ansible.plan.estimate.architectures.families import registry
from vllm_ansible.plan.estimate.architectures.families.decoder import Outline
from vllm_ansible.plan.estimate.architectures.families.parts import Parts
from vllm_ansible.plan.estimate.architectures.model import Model, Tensor
from vllm_ansible.plan.estimate.architectures.on_load import on_load
from vllm_ansible.plan.estimate.architectures.quantization import BYTES, stored_modules
from vllm_ansible.plan.estimate.architectures.usual import usual
from vllm_ansible.problem import PlanError, Problem

NO_TOWER = "the configuration describes no vision tower, none is counted"
UNHEARD = "the audio tower is not counted: it takes memory beside what is planned"
DIFFERENCE = 0.01
HEAD = "lm_head.weight"
TABLE = re.compile(r"\.engram\.embed\.")
NEXT_LAYER = re.compile(r"\.layers\.(\d+)\.")


def understand(
    config: Settings,
    name: str,
    beside: Settings | None = None,
    checkpoint: Checkpoint | None = None,
    dtype: str = "auto",
    quantization: str = "",
) -> Model:
    """Return the model that a configuration describes.

    `beside` is `hf_quant_config.json`; `dtype` and `quantization` are the engine's options. With a
    checkpoint, what is quantized is read from it, an unknown architecture is estimated from its
    sizes or their sum, and a sum that differs by more than 1 % is said in `assumed`. Raises
    PlanError, one sentence, for a configuration that cannot be used.
    """
    architecture = _architecture(config)
    # Of a model that hears and speaks the engine serves the part that thinks.
    thinker = config.section("thinker_config")
    config = config if thinker is None else thinker.over(config)
    text = _with_defaults(config, _text(config))
    _check_heads(text)
    dtype = _dtype(dtype, text, config)
    names = checkpoint.names if checkpoint else ()
    held = declared.read(
        config if "quantization_config" in config else text.over(config),
        beside,
        dtype,
        stored_modules(names),
        quantization,
    )
    outline = Outline(name, architecture, text, held, dtype)
    decoder, style, assumed = _known(architecture, config, text)
    if not decoder:
        return _estimated(outline, checkpoint)
    others: tuple[Tensor, ...] = ()
    if style:
        others, more = _tower(config, text, outline, style)
        assumed += more
        levels = config.section("vision_config")
        if style == "QWEN3" and levels:
            outline = replace(outline, deepstack=len(levels.numbers("deepstack_visual_indexes")))
    heard = any(one.name.startswith("audio.") for one in others)
    if config.section("audio_config") is not None and not heard:
        assumed += (UNHEARD,)
    model = registry.builder(decoder)(replace(outline, assumed=assumed), others)
    model = replace(model, next_layers=next_layers(text), own_head=_own_head(model, checkpoint))
    # What is held is not what is stored.
    return model if held.on_load else _compared(model, checkpoint)


def _estimated(outline: Outline, checkpoint: Checkpoint | None) -> Model:
    """Return a model of unknown architecture from what its weights say, or refuse where none do."""
    if checkpoint is None or not (checkpoint.tensors or checkpoint.total):
        named = outline.architecture or "of this model"
        raise PlanError(
            Problem(
                f"the architecture {named} is not known, and the size of its weights is not either",
                "a known architecture, or model.safetensors.index.json beside the configuration",
                outline.architecture,
                outline.config.where,
                "name the directory of the model's files or its repository: its "
                "model.safetensors.index.json says how large it is",
            )
        )
    # Which of its tensors would be quantized on load is not known.
    held = outline.quantization
    outline = replace(
        outline,
        config=usual(outline.config),
        quantization=on_load("", held.plain) if held.on_load else held,
    )
    if checkpoint.tensors:
        from vllm_ansible.plan.estimate.architectures.families.by_size import by_size

        return by_size(outline, checkpoint)
    from vllm_ansible.plan.estimate.architectures.families.by_index import by_index

    return by_index(outline, checkpoint)


def _architecture(config: Settings) -> str:
    named = config.items("architectures")
    if named and not isinstance(named[0], str):
        raise config.problem(f"architectures has {brief(named[0])}, not the name of a class")
    return named[0] if named else ""


def _check_heads(text: Settings) -> None:
    """Refuse heads of keys that do not divide those of queries, as the engine's layers do.

    Latent attention has none of its own, and does not read their number.
    """
    if "kv_lora_rank" in text:
        return
    heads, keys = (text.values.get(name) for name in ("num_attention_heads", "num_key_value_heads"))
    if isinstance(heads, int) and isinstance(keys, int) and keys > 0 and heads % keys:
        raise text.problem(
            f"the model's num_key_value_heads is {keys}, which does not divide "
            f"its {heads} num_attention_heads",
            f"a divisor of {heads}",
            f"{keys}",
        )


def _text(config: Settings) -> Settings:
    """Return the decoder's section, with what only the outer one says."""
    for name in ("text_config", "llm_config", "language_config"):
        section = config.section(name)
        if section is not None:
            outer = {
                key: config.values[key]
                for key in ("tie_word_embeddings",)
                if config.values.get(key) is not None and key not in section
            }
            return Settings({**outer, **section.values}, section.where)
    return config


def _with_defaults(config: Settings, text: Settings) -> Settings:
    """Return the decoder's section with the library's values for keys its family leaves out."""
    kinds = (text.text("model_type"), config.text("model_type"))
    usual = next((registry.DEFAULTS[one] for one in kinds if one in registry.DEFAULTS), {})
    return text.over(Settings(usual, text.where))


def _dtype(wanted: str, *sections: Settings) -> str:
    if wanted != "auto":
        if wanted not in BYTES:
            told = f"one of {', '.join(BYTES)}"
            raise sections[0].problem(f"the dtype {brief(wanted)} is not known", told)
        return wanted
    for section in sections:
        word = section.text("dtype") or section.text("torch_dtype")
        word = word.removeprefix("torch.")
        if word in BYTES:
            # The engine serves what was saved in single precision in 16 bits.
            return {"float32": "float16", "float": "float16"}.get(word, word)
    return "bfloat16"


def _known(architecture: str, config: Settings, text: Settings) -> tuple[str, str, tuple[str, ...]]:
    """Return the decoder's architecture, its tower's style, and what that takes for granted."""
    if architecture in registry.DECODERS or architecture in registry.DRAFTS:
        return architecture, "", ()
    if architecture in registry.TOWERS:
        decoder, style = registry.TOWERS[architecture]
        inner = [str(one) for one in text.items("architectures")]
        return inner[0] if inner and inner[0] in registry.DECODERS else decoder, style, ()
    decoder = registry.TYPES.get(text.text("model_type")) or ""
    if not decoder:
        return "", "", ()
    told = architecture or "a model that names no architecture"
    note = f"{told} is taken for {decoder}, which its model_type {text.text('model_type')} is"
    return decoder, "OUTLINE" if "vision_config" in config else "", (note,)


def _tower(
    config: Settings, text: Settings, outline: Outline, named: str
) -> tuple[tuple[Tensor, ...], tuple[str, ...]]:
    """Return the tensors of the vision tower, and what was taken for granted."""
    from vllm_ansible.plan.estimate.architectures.families import vision

    if named == "FOLDED":
        from vllm_ansible.plan.estimate.architectures.families import inkling

        folded = inkling.towers(config, text.count("hidden_size"), Parts(outline.quantization, ""))
        largest = "the vision tower's size is that of its largest layer"
        return tuple(folded), (largest if "vision_config" in config else NO_TOWER,)
    if named in ("QWEN2_AUDIO", "VOXTRAL"):
        from vllm_ansible.plan.estimate.architectures.families import audio

        heard = config.section("audio_config") or Settings({}, config.where)
        parts = Parts(outline.quantization, "")
        return tuple(audio.whisper(named, heard, text.count("hidden_size"), parts)), ()
    section = config.section("vision_config")
    if named in ("STEP3", "DEEPSEEK_V41"):
        from vllm_ansible.plan.estimate.architectures.families import deepseek_v41, step

        if section is None:
            return (), (NO_TOWER,)
        own = step.tower if named == "STEP3" else deepseek_v41.tower
        parts = Parts(outline.quantization, "")
        return tuple(own(config, section, text.count("hidden_size"), parts)), ()
    style: vision.Style = getattr(vision, named)
    assumed: tuple[str, ...] = ()
    if section is None:
        if outline.architecture != "Llama4ForConditionalGeneration":
            return (), (NO_TOWER,)
        section = Settings(vision.LLAMA4, config.where)
        assumed = ("the vision tower is Meta's published one, the configuration leaves it out",)
    elif not style.exact:
        assumed = ("the vision tower's size is an estimate from its layers",)
    parts = Parts(outline.quantization, "vision.")
    hidden = text.count("hidden_size")
    joint = section.size("adapter_dim", config.size("projector_hidden_size"))
    tensors = tuple(vision.tower(section, style, hidden, parts, joint))
    hears = config.section("audio_config")
    if outline.architecture.startswith("Qwen3Omni") and hears is not None:
        from vllm_ansible.plan.estimate.architectures.families import audio

        tensors = (*tensors, *audio.tower(hears, parts))
    if named == "GEMMA4" and hears is not None:
        from vllm_ansible.plan.estimate.architectures.families import gemma4

        tensors = (*tensors, *gemma4.hearing(hears, hidden, parts))
    return tensors, assumed


def _own_head(model: Model, checkpoint: Checkpoint | None) -> tuple[Tensor, ...]:
    """Return the head that a checkpoint of a tied model has besides, if the engine keeps it.

    vLLM loads what is stored, and ties it again only where it finds one head and one embedding
    (`model_loader/weight_tying.py`): not where layers have embeddings of their own.
    """
    stored = checkpoint is not None and any(one.endswith(HEAD) for one in checkpoint.names)
    tables = [one for one in model.embedding if one.shard == "vocab"]
    if not (model.tied and stored and len(tables) > 1):
        return ()
    # Classes that build their embedding on every stage build this one there too.
    return (replace(tables[0], name=HEAD),)


def _compared(model: Model, checkpoint: Checkpoint | None) -> Model:
    """Return the model with a sentence if the checkpoint's sum differs from what was derived.

    Left out of both sums: layers for speculation beyond the last one, copies made at load, and
    n-grams, which the engine keeps in host memory.
    """
    if checkpoint is None or not checkpoint.total:
        return model
    total = checkpoint.total
    for name, tensor in checkpoint.tensors.items():
        found = NEXT_LAYER.search(name)
        beyond = found is not None and int(found[1]) >= len(model.layers)
        if beyond or name.startswith("mtp.") or TABLE.search(name):
            total -= tensor.bytes
    made = sum(one.bytes for one in model.tensors() if one.name.endswith("kv_b_absorbed"))
    derived = model.bytes() - made + sum(one.bytes for one in model.own_head)
    apart = derived / total - 1
    if abs(apart) <= DIFFERENCE:
        return model
    note = (
        f"the tensors derived here sum to {derived / 2**30:.2f} GiB, "
        f"the checkpoint's files to {total / 2**30:.2f} GiB"
    )
    return replace(model, assumed=(*model.assumed, note))
