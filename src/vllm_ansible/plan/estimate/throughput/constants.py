"""The numbers of the throughput model, each with where it was measured; none from a judged row.

H200 stands for h200.json beside this file, measured with benchmarks/h200_terms.py.
"""

from __future__ import annotations

MICRO = 1e-6

# A dense matrix product at decode takes 4 us and its bytes at 0.85 of the datasheet's bandwidth
# (H200, gemm: 8192 x 10240 in bf16 4.0 of 4.8 TB/s, fp8 the same).
MEMORY_SHARE = 0.85
# Of Ampere 0.73, and there reading and multiplying hide each other only in part: the cube root of
# the sum of their cubes (OPERATIONS, gemm in bf16 of A100: planned by measured 0.66 for 128 rows
# before, 0.95 so). Hopper loads while it multiplies (0.94 and 0.88 for as many rows by the longer).
AMPERE_MEMORY_SHARE = 0.73
HIDING = 3
# Ada reads weights of 16 bits as Hopper does (OPERATIONS, gemm in bf16 of L40S, matrices of 60 MB
# and more: 0.85 with one row, 0.80 with 8), of 8 bits like Ampere (0.70 and 0.69), and hides less:
# the root of the sum of squares (planned by measured 1.18 with one row before, 1.01 so).
ADA_MEMORY_SHARE = 0.85
ADA_HIDING = 2
# The cache of latent attention is read in blocks; taken as one grouped product.
CACHE_MEMORY_SHARE = 0.70
# The grouped cache of decoding sequences, by OPERATIONS (generation_attention, heads of 64, 128 and
# 256 in bf16): the bytes at a share of the bandwidth, and so long for each sequence and KV head on
# a rank, however short it is. Fitted together with ATTENTION_CALL below, what a call takes beside
# that: of 13,000 rows of H100 and H200 94 % lie within 1.3, of B200's 15,551 89 %.
GROUPED_CACHE_SHARE, GROUPED_CACHE_ITEM = 0.89, 23.5e-9
BLACKWELL_GROUPED_CACHE_SHARE, BLACKWELL_GROUPED_CACHE_ITEM = 0.93, 9.4e-9
AMPERE_GROUPED_CACHE_SHARE, AMPERE_GROUPED_CACHE_ITEM = 0.79, 11e-9
# Large products reach 0.70 of the dense rate (H200, gemm with 4096 rows, bf16 704 TFLOP/s). In FP8
# the activations are quantized first: 0.49 with it (OPERATIONS, gemm of 8192 rows on H100 and H200,
# by CUTLASS and by DeepGEMM).
ARITHMETIC_SHARE = 0.70
ARITHMETIC_SHARES = {"bf16": ARITHMETIC_SHARE, "fp8": 0.49, "fp4": 0.49}
# Of Blackwell's graphics cards (OPERATIONS, gemm of 8192 rows on RTX PRO 6000).
GRAPHICS_ARITHMETIC_SHARES = {"bf16": 0.79, "fp8": 0.74, "fp4": 0.60}
# Weights of 8 and 4 bits that a device has no products for are widened in registers by Marlin's
# kernels, whose products reach a smaller share of the 16-bit rate: that of wide experts (EXPERTS
# below, the same kernels): FP8 on Ampere, 4 bits on both. Marlin has mma (vllm#7174), which is all
# that Ampere's tensor cores have, and those of Blackwell's graphics cards (PTX: wgmma is of sm_90a,
# tcgen05 of sm_100 and what belongs to it), so these have Ampere's share. FP4 products take both
# sides in FP4, so integers of 4 bits are widened on Blackwell, too. Dense ones on Hopper are
# Machete's, which reach the 16-bit rate by wgmma and TMA.
MARLIN_SHARE, AMPERE_MARLIN_SHARE = 0.32, 0.48
# Sparse attention (DeepSeek-V3.2, GLM-5) multiplies at this share, with no fewer heads on a rank
# than its kernel's tile has (OPERATIONS, dsa_context_module of H200: 9.4 ms for 8 x 2,048 tokens
# and 16 heads, 20.5 ms for 128), and its indexer at that one of the FP8 rate.
SPARSE_ATTENTION_SHARE, INDEXER_SHARE = 0.60, 0.40
SPARSE_HEADS = 64
# OPERATIONS: the tables of single operations of vLLM that aiconfigurator-core 0.12.0 (NVIDIA,
# Apache-2.0) has measured on A100, H100, H200 and B200, each timed by itself; what is taken from
# them is fitted to the tables alone; tests/data/public/operations.csv has some of their rows.
#
# Attention of decoding sequences, where it is bound by its products.
ATTENTION_SHARE = 0.65
# Attention over a prompt multiplies at a share of the dense rate that grows with its length:
# share x length / (length + half), by the size of a head; Ampere's kernel is another one (476 to
# 1,292 rows of each, 68 to 86 % within 1.3, 85 to 95 % within 1.5).
ATTENTION = {64: (0.53, 1886.0), 128: (0.69, 1588.0), 256: (0.85, 1595.0)}
AMPERE_ATTENTION = (0.56, 760.0)
# Before Hopper attention with sinks (gpt-oss) is Triton's kernel (vllm#22331): 16 rows of queries
# at a time (triton_unified_attention.py, BLOCK_M), for which all keys and values come from the L2
# cache. A100's gives 5,120 bytes a clock (NVIDIA's whitepaper), 7.2 TB/s: at most 16 operations a
# byte, 115 of 312 TFLOP/s.
AMPERE_SINK_ATTENTION = 0.37
# The fused operation over experts, tokens sorted, both products and the activation: the bytes of
# the experts that a step touches at `memory` of the bandwidth, and each token, and for each touched
# expert `tile` tokens more, at `arithmetic` x width / (width + half) of the rate of their type,
# where the width is that of an expert on one rank. A share of the bandwidth above 1 is part of a
# sum: the tiles take the rest of what reading takes. By least squares of the logarithms over all
# rows of 32 experts and more that are not spread over ranks (405 to 16,356 for each kind); 85 to 95
# % of a kind's rows lie within 1.3 of it, of Blackwell's 67 to 87 % (of
# mxfp4's 53 %), of CUTLASS's 78 %.
EXPERTS = {
    "ampere bf16": (1.60, 0.36, 1.0, 26.0),
    # Marlin's kernels widen 4 and 8 bits in registers (of Ampere SGLang's table, the same kernels).
    "ampere marlin": (1.21, AMPERE_MARLIN_SHARE, 42.0, 6.0),
    "bf16": (1.34, 0.92, 191.0, 41.0),
    "fp8": (1.24, 0.54, 269.0, 24.0),
    "cutlass fp8": (0.30, 0.19, 270.0, 64.0),
    "mxfp4": (1.60, 0.67, 134.0, 37.0),
    "marlin": (1.60, MARLIN_SHARE, 104.0, 11.0),
    # Of B200. Graphics cards have others in bf16, nearer to Hopper's, and Marlin for mxfp4 (RTX PRO
    # 6000's tables: 90 and 94 % within 1.5, 62 and 5 % by B200's). Of FP8 their table has one
    # kernel alone, which neither blocks nor scales per channel run in.
    "blackwell bf16": (1.49, 0.56, 217.0, 58.0),
    "blackwell fp8": (1.26, 0.61, 542.0, 48.0),
    "blackwell mxfp4": (1.60, 0.18, 68.0, 27.0),
    "blackwell fp4": (1.29, 0.73, 363.0, 64.0),
}
# The part of a prefill that is matrix products. No mechanism gives this number: it was made from
# Qwen3-14B and Qwen3-235B on A100 in GPUStack's lab, and engines of ours agree with it for prompts
# of 1,024 tokens: 0.77, 0.75 (TP2), 0.74 (two replicas), 0.66 and 0.76 (two stages) by the last
# first token of a wave on H200, vLLM 0.32 (tests/data/h200-layouts.json, h200-stages.json). It does
# not follow from how prompts are scheduled: steps of a wave are full, 8,192 tokens each. Norms,
# rotary embedding and activation are 0.09 of it by their bytes; the rest is what an engine does for
# each prompt, 2 to 4 ms: of prompts of 4,096 tokens, alone on an engine, 0.91 was products.
PREFILL_SHARE = 0.75
# Weights of 4 bits that are widened before they are multiplied are read and multiplied like those
# of 16 since 0.9: Marlin's kernels widen in registers. Before, Triton's did it otherwise: the model
# card of cognitivecomputations/DeepSeek-R1-AWQ prints 4,732 tokens/s of prefill on 8 x H100, 4.4 %
# of their bf16 rate. Enflame's plugin has kernels of the older kind.
OLD_WIDENED_EXPERT_ARITHMETIC_SHARE = 0.044
OLD_WIDENED_MEMORY_SHARE = 0.5

# What a kernel of a captured graph takes beside its bytes. A product: OPERATIONS, gemm in bf16 of 1
# to 32 rows, median of 5,508 on H100 and H200 (3.2 to 4.4 by size; of A100 5.3 to 6.0); 3.8 for a
# small one (H200, launch); of L40S 3.4. A call of attention over the cache: OPERATIONS,
# generation_attention, by the fit above; it is two kernels, the second adds what several blocks
# found. Of A100 calls that read little take 18.0, of L40S 10.6 as Hopper's. Any other: a norm
# (H200, launch).
PRODUCT_KERNEL, AMPERE_PRODUCT_KERNEL = 4.0 * MICRO, 5.5 * MICRO
# What reading takes longer for each product by Machete: its tiles of 128 x 16 are shared by several
# multiprocessors, which add their parts one after the other (stream-K). Profiled in captured steps
# of Qwen3-8B's shape in AWQ on H200 (h200-kernels.json in tests/data): with its barriers 20.4 and
# 19.9 us each with 1 and 8 rows, of which 6 are reading; with 64 rows 28.7.
MACHETE_SHARING = 8.0 * MICRO
ATTENTION_CALL, AMPERE_ATTENTION_CALL, BLACKWELL_ATTENTION_CALL = 11.4e-6, 18e-6, 9.4e-6
SMALL_KERNEL = 2.2 * MICRO
# A step launches so many small kernels besides those of its layers: it looks up and normalizes
# tokens, prepares inputs, block tables, slots and the plan of attention, samples and notes what was
# sampled (counted in vLLM 0.32's `v1/worker/gpu`).
STEP_KERNELS = 17
# Logits are read once to sample by 0.32's `v1/worker/gpu/sample`: `gumbel_sample` reduces blocks of
# 1,024 in one kernel, also at temperature 0. That is all for requests at temperature 0 or 1 without
# top-k, top-p, min-p, bias, penalties and bad words (`needs_logits_processing`); of others the step
# is copied to fp32 (3 of these passes), scaled (4), sorted and read (2), which is not counted: a
# pass of 64 rows of 152,000 is 5 us on an H200. Every rank samples the whole batch, as
# `enable_batch_sharded_sampling` is off unless asked for. Up to 0.31 logits were copied to fp32 and
# the copy read, which is the least that a request without temperature took
# (`v1/sample/sampler.py`).
SAMPLING, SAMPLING_BEFORE_0_32 = 1.0, 5.0
# The operation over experts is eight kernels of this time: so many the fit of EXPERTS has.
EXPERTS_KERNELS, EXPERTS_KERNEL = 8, 3.0 * MICRO
# A kernel that Python launches through the engine's modules: GPT-2 takes 4.81 ms a token in vLLM
# eagerly and 1.30 ms with graphs on an H200, twelve layers of thirteen kernels
# (deepspeedai/DeepSpeed#8352): 22.5 us more than a captured one. PyTorch alone needs 8 to 17
# (H200, launch).
EAGER_KERNEL = 25.0 * MICRO
# An all-reduce launched from Python keeps the processor for 35 us (H200, all_reduce, eager).
EAGER_COLLECTIVE = 35.0 * MICRO

# vLLM's own all-reduce, below this size, among 2, 4, 6 or 8 ranks of a node that reach each other
# over NVLink, or any two. In one stage (two ranks, or below half and a quarter of a MiB for four
# and eight) each rank reads what all others have, at a share of the link; in two stages it reads
# its part of all and then all parts. OPERATIONS, custom_allreduce in a captured graph, A100, H100
# and H200: 4 to 6 us for a kilobyte, 134 of 135 rows within 1.5. On B200 it takes 1.5 times that.
OWN_MOST = 8 << 20
OWN_RANKS = (2, 4, 6, 8)
OWN_ONE_STAGE = {2: OWN_MOST, 4: 512 << 10, 6: 256 << 10, 8: 256 << 10}
OWN_LATENCY, OWN_LATENCY_PER_RANK, OWN_SHARE = 4.3 * MICRO, 0.13 * MICRO, 0.62
OWN_TWO_LATENCY, OWN_TWO_SHARE = 9.6 * MICRO, 0.72
OWN_ON_BLACKWELL = 1.5
# NCCL's all-reduce inside a node over NVLink: 8 us and 2.1 us for each rank, then ring time at 0.74
# of the link (H200, all_reduce: 12, 16, 25 us; 334 of 450 GB/s).
LINK_LATENCY = 8.0 * MICRO
LINK_LATENCY_PER_RANK = 2.1 * MICRO
LINK_SHARE = 0.74
# Over PCIe the devices of a node share root complexes: the card of the AWQ build prints 688
# tokens/s of prefill on 8 x L40S, a seventh of that on H100.
SWITCHED = 200e9
PCIE_SHARE = 0.25
# Over PCIe 5 with peer-to-peer access: the median of seven hosts of eight RTX PRO 6000, 22.2 to
# 46.4 GB/s in nccl-tests, of 64 (local-inference-lab/rtx6kpro at e2c2b95, hardware/).
PCIE_5 = 60e9
PCIE_5_SHARE = 0.62
# All-to-all inside a node: 14 us and 0.66 of the link (H200, all_to_all: 299 GB/s).
EXCHANGE_LATENCY = 14.0 * MICRO
EXCHANGE_SHARE = 0.66
# Through host memory (no peer-to-peer) each transfer is done twice.
HOST_SHARE = 0.40
HOST_LATENCY_PER_RANK = 8.0 * MICRO
# Across nodes: RDMA hops of about 12 us up and down a tree, and 0.85 of the cards' rate
# (busbw of 366 of 400 GB/s over 4 nodes and 41 to 50 of 50 over 2 in public nccl-tests runs).
HOP_LATENCY = 12.0 * MICRO
FABRIC_SHARE = 0.85
TCP_HOP_LATENCY = 60.0 * MICRO
TCP_SHARE = 0.60

# What the engine does between steps, on the host: the same GPT-2 run leaves 0.8 ms of 1.30 ms to
# it; each sequence costs its scheduling, sampling and detokenizing, as short prompts and replies at
# high concurrency show (GPUStack's performance lab, ShareGPT).
HOST_STEP = 0.8e-3
HOST_SEQUENCE = 30.0 * MICRO
# The same of 0.32's runner (`v1/worker/gpu`): samples of its worker's main thread, 200 a second for
# 5 s by py-spy, a dense 8B at one request on a virtual machine with H200: 37 % of 4.98 ms are not
# waits (tests/data/h200-host.json). The last of two stages, of two ranks each, takes 76 % of 4.15
# ms there: what it gets of the one before it, and tokens that it tells all stages.
V2_HOST_STEP, STAGE_HOST_STEP = 1.85e-3, 1.3e-3
# Ranks in step agree on their tokens before each step, over gloo on the processor: an all-reduce of
# six integers a rank, 0.36 ms for two ranks and 0.77 ms for four with 1 ms of work between, on the
# same machine. What one waits for another is not in it.
AGREE_RANK = 0.19e-3
# One process beside the engine turns tokens to text and sends them, 54 us each: 18,511 tokens/s are
# the most that was seen of one (tests/data/h200-site.json, 135 million parameters, vLLM 0.32), and
# 12,850 of an early one (vllm#12287, Llama-3.2-1B on A100). It bounds small models.
FRONT_END_TOKEN = 54.0 * MICRO
# Before that it makes a prompt of each chat, on one thread: while it reads the model's template
# anew, nothing else goes on. vLLM 0.11.0 does so for each chat (vllm#25794; kept since 0.11.1):
# 9.7, 10.8 and 11.2 ms of processor time with the templates of GLM-4.6, DeepSeek-V3.1 and Qwen3,
# in the code of 0.11.0 (tests/data/chat-templates.json). So did 0.8.5 to 0.9.1, for another reason:
# 1,000 chats began 6 to 8 s late (vllm#20065). 0.7.3, 0.9.2, 0.10.0 to 0.10.2 and 0.12.0 do not.
CHAT_TEMPLATE_0_11_0 = 10.6e-3
CHAT_TEMPLATE_BEFORE_0_9_2 = 7.0e-3
# The first engine of vLLM (V0, the default up to 0.7) did all of that between two steps, in which
# the device waited for 5 to 13 ms (vllm#6854); 8 is their mean by ratio.
V0_HOST_STEP = 8.0e-3
V0_HOST_SEQUENCE = 50.0 * MICRO
# Ranks on several hosts get each step's input over the network (Ray's compiled graph or sockets).
MULTI_NODE_STEP = 3.0e-3
PIPELINE_HOP = 0.2e-3

# The busiest rank of expert parallelism has so many times the mean of the tokens, by how often a
# model's experts are chosen: the median of 97 samples over 16 ranks of Kimi-K3 without balancing
# (vllm#50647). In a single step chance adds to it (`busiest` in step.py).
EXPERT_IMBALANCE = 1.07

# How far measured throughput lies from this model: the seed system with H100 and the one with
# H200, both launch bound by the same number of kernels, differ by 1.35, which is processors and
# the shape of the replies; the band allows that and a little more, both ways.
BAND = 1.5
# Of other makers' devices no kernel of vLLM was timed: how far theirs lie from NVIDIA's is as
# unknown again.
UNTIMED_BAND = BAND**2
