"""Matrix product of the accelerator probe as PTX, in bf16 by the tensor cores."""

from __future__ import annotations

from .cuda_kernels import BASE, lines
from .cuda_matmul import VERIFY, inputs

# The upper half of an fp32 is its bf16, exactly so for small integers.
_STORE_BF16 = """  mov.b32 %v, %f;
  shr.u32 %v, %v, 16;
  cvt.u16.u32 %h, %v;
  st.global.u16 [%at], %h;"""


def _bf16() -> str:
    """Return C = A B' in bf16 with fp32 sums: 128 by 128 for each block, 64 by 32 for each warp.

    K lies along the lines of both. A stage is 32 columns of 128 lines of A, then of B; three are
    in shared memory, whose 16-byte pieces are swapped by line so that no two meet in one bank.
    """
    fetch = "".join(
        f"  cp.async.cg.shared.global [%put+{offset}], [%{at}], 16;\n"
        for offset, at in ((0, "ga"), (4096, "ga64"), (8192, "gb"), (12288, "gb64"))
    )
    advance = "".join(f"  add.u64 %{at}, %{at}, 64;\n" for at in ("ga", "ga64", "gb", "gb64"))
    # The next place to fetch into: three stages, one after the other.
    put = """  add.u32 %put, %put, 16384;
  setp.ge.u32 %wrap, %put, %puts;
  @%wrap sub.u32 %put, %put, 49152;
"""
    stage = fetch + advance + put
    compute = []
    for half in range(2):
        compute.append(f"  add.u32 %u, %get, %lefts{half};\n  add.u32 %v, %get, %rights{half};\n")
        for m in range(4):
            names = ", ".join(f"%a{4 * m + i}" for i in range(4))
            load = "ldmatrix.sync.aligned.m8n8.x4.shared.b16"
            compute.append(f"  {load} {{{names}}}, [%u+{1024 * m}];\n")
        for pair in range(2):
            names = ", ".join(f"%b{4 * pair + i}" for i in range(4))
            compute.append(f"  {load} {{{names}}}, [%v+{8192 + 1024 * pair}];\n")
        for m in range(4):
            for n in range(4):
                sums = ", ".join(f"%c{16 * m + 4 * n + i}" for i in range(4))
                left = ", ".join(f"%a{4 * m + i}" for i in range(4))
                compute.append(
                    "  mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                    f"{{{sums}}}, {{{left}}}, {{%b{2 * n}, %b{2 * n + 1}}}, {{{sums}}};\n"
                )
    write = []
    for m in range(4):
        for upper in range(2):
            for n in range(4):
                first = 16 * m + 4 * n + 2 * upper
                pair_of = f"{{%c{first}, %c{first + 1}}}"
                write.append(f"  st.global.v2.f32 [%out+{32 * n}], {pair_of};\n")
            write.append("  add.u64 %out, %out, %pitch8;\n")
    return f"""
.visible .entry multiply(.param .u64 p0, .param .u64 p1, .param .u64 p2, .param .u32 p3)
.maxntid 256, 1, 1
.minnctapersm 2
{{
  .shared .align 128 .b8 tiles[49152];
  .reg .pred %more, %fetch, %wrap;
  .reg .f32 %c<64>;
  .reg .b32 %a<16>, %b<8>, %lefts<2>, %rights<2>;
  .reg .b32 %n, %k, %t, %lane, %warp, %row, %column, %u, %v, %s, %put, %puts, %get, %tiles;
  .reg .b64 %ga, %gb, %ga64, %gb64, %out, %pitch, %pitch8, %w, %line;
  ld.param.u64 %ga, [p0];
  ld.param.u64 %gb, [p1];
  ld.param.u64 %out, [p2];
  ld.param.u32 %n, [p3];
  cvta.to.global.u64 %ga, %ga;
  cvta.to.global.u64 %gb, %gb;
  cvta.to.global.u64 %out, %out;
  mov.u32 %t, %tid.x;
  and.b32 %lane, %t, 31;
  shr.u32 %warp, %t, 5;
  mov.u32 %row, %ctaid.y;
  shl.b32 %row, %row, 7;
  mov.u32 %column, %ctaid.x;
  shl.b32 %column, %column, 7;
  mul.wide.u32 %pitch, %n, 2;
  shr.u32 %u, %t, 2;
  and.b32 %v, %t, 3;
  shl.b32 %s, %v, 4;
  cvt.u64.u32 %w, %s;
  add.u64 %ga, %ga, %w;
  add.u64 %gb, %gb, %w;
  add.u32 %s, %row, %u;
  cvt.u64.u32 %line, %s;
  mad.lo.u64 %ga, %line, %pitch, %ga;
  add.u32 %s, %column, %u;
  cvt.u64.u32 %line, %s;
  mad.lo.u64 %gb, %line, %pitch, %gb;
  mad.lo.u64 %ga64, %pitch, 64, %ga;
  mad.lo.u64 %gb64, %pitch, 64, %gb;
  mov.u32 %tiles, tiles;
  add.u32 %puts, %tiles, 49152;
  shr.u32 %s, %u, 1;
  and.b32 %s, %s, 3;
  xor.b32 %v, %v, %s;
  shl.b32 %v, %v, 4;
  shl.b32 %u, %u, 6;
  add.u32 %put, %tiles, %u;
  add.u32 %put, %put, %v;
  and.b32 %u, %lane, 15;
  shr.u32 %v, %lane, 4;
  shr.u32 %s, %u, 1;
  and.b32 %s, %s, 3;
  shl.b32 %u, %u, 6;
  and.b32 %t, %warp, 1;
  mad.lo.u32 %u, %t, 4096, %u;
  mad.lo.u32 %row, %t, 64, %row;
  xor.b32 %t, %v, %s;
  mad.lo.u32 %lefts0, %t, 16, %u;
  add.u32 %v, %v, 2;
  xor.b32 %t, %v, %s;
  mad.lo.u32 %lefts1, %t, 16, %u;
  and.b32 %u, %lane, 7;
  shr.u32 %v, %lane, 4;
  mad.lo.u32 %u, %v, 8, %u;
  shr.u32 %v, %lane, 3;
  and.b32 %v, %v, 1;
  shr.u32 %s, %u, 1;
  and.b32 %s, %s, 3;
  shl.b32 %u, %u, 6;
  shr.u32 %t, %warp, 1;
  mad.lo.u32 %u, %t, 2048, %u;
  mad.lo.u32 %column, %t, 32, %column;
  xor.b32 %t, %v, %s;
  mad.lo.u32 %rights0, %t, 16, %u;
  add.u32 %v, %v, 2;
  xor.b32 %t, %v, %s;
  mad.lo.u32 %rights1, %t, 16, %u;
{lines("mov.f32 %c#, 0f00000000;", range(64))}
{stage}  cp.async.commit_group;
{stage}  cp.async.commit_group;
  mov.u32 %k, 0;
  mov.u32 %get, %tiles;
LOOP:
  cp.async.wait_group 1;
  bar.sync 0;
  add.u32 %t, %k, 64;
  setp.lt.u32 %fetch, %t, %n;
  @!%fetch bra COMPUTE;
{stage}
COMPUTE:
  cp.async.commit_group;
{"".join(compute)}
  add.u32 %get, %get, 16384;
  setp.ge.u32 %wrap, %get, %puts;
  @%wrap mov.u32 %get, %tiles;
  add.u32 %k, %k, 32;
  setp.lt.u32 %more, %k, %n;
  @%more bra LOOP;
  shr.u32 %u, %lane, 2;
  add.u32 %row, %row, %u;
  and.b32 %v, %lane, 3;
  mad.lo.u32 %column, %v, 2, %column;
  mul.wide.u32 %w, %row, %n;
  cvt.u64.u32 %line, %column;
  add.u64 %w, %w, %line;
  mad.lo.u64 %out, %w, 4, %out;
  mul.wide.u32 %pitch8, %n, 32;
{"".join(write)}
  ret;
}}
"""


# The instructions of the tensor cores as they are since compute capability 8.0.
BF16 = BASE.replace("sm_70", "sm_80") + inputs("inputs", 2, _STORE_BF16) + VERIFY + _bf16()
