"""Matrix product of the accelerator probe as PTX, in fp32 by FMA.

The matrices hold small integers, so that each sum is exact in fp32, in any order, and every
element is compared with what it must be.
"""

from __future__ import annotations

import struct

from .cuda_kernels import BASE, INDEX, TELL, lines

# An element of a matrix follows from its line and its place k along the sum: the upper 4 bits of
# (line % period * along + k % 64 * across) * MIX, less 8. The periods are prime, so that no two
# tiles of a power of two are alike, and a tile in the wrong place is a wrong value.
K_PERIOD, MIX = 64, 0x9E3779B1
LEFT = {"period": 61, "along": 64, "across": 1}
RIGHT = {"period": 59, "along": 1, "across": 59}
FORMULA = ("period", "along", "across")


def element(matrix: dict[str, int], line: int, k: int) -> int:
    """Return what the kernels put at a place of a matrix."""
    value = line % matrix["period"] * matrix["along"] + k % K_PERIOD * matrix["across"]
    return (value * MIX % (1 << 32) >> 28) - 8


def product_table(n: int) -> bytes:
    """Return, as fp32, every value that the product of two n by n matrices has, for verify."""
    sides = [
        [[element(matrix, line, k) for k in range(K_PERIOD)] for line in range(matrix["period"])]
        for matrix in (LEFT, RIGHT)
    ]
    values = [
        n // K_PERIOD * sum(a * b for a, b in zip(left, right))  # noqa: B905 Python 3.9
        for left in sides[0]
        for right in sides[1]
    ]
    return struct.pack(f"<{len(values)}f", *values)


def inputs(name: str, size: int, store: str) -> str:
    """Return a kernel that fills a square matrix; k runs along its lines where p2 is 0."""
    return f"""
.visible .entry {name}(
  .param .u64 p0, .param .u32 p1, .param .u32 p2, .param .u32 p3, .param .u32 p4, .param .u32 p5)
{{{INDEX}
  .reg .pred %end, %down;
  .reg .b16 %h;
  .reg .f32 %f;
  .reg .b32 %e, %n, %row, %column, %line, %k, %v, %p<6>;
  .reg .b64 %data, %count, %at;
  ld.param.u64 %data, [p0];
  ld.param.u32 %n, [p1];
{lines("ld.param.u32 %p#, [p#];", range(2, 6))}
  cvta.to.global.u64 %data, %data;
  mul.wide.u32 %count, %n, %n;
  setp.ne.u32 %down, %p2, 0;
NEXT:
  setp.ge.u64 %end, %i, %count;
  @%end bra DONE;
  cvt.u32.u64 %e, %i;
  div.u32 %row, %e, %n;
  rem.u32 %column, %e, %n;
  selp.u32 %line, %column, %row, %down;
  selp.u32 %k, %row, %column, %down;
  rem.u32 %line, %line, %p3;
  and.b32 %k, %k, {K_PERIOD - 1};
  mul.lo.u32 %v, %line, %p4;
  mad.lo.u32 %v, %k, %p5, %v;
  mul.lo.u32 %v, %v, {MIX};
  shr.u32 %v, %v, 28;
  sub.s32 %v, %v, 8;
  cvt.rn.f32.s32 %f, %v;
  mad.lo.u64 %at, %i, {size}, %data;
{store}
  add.u64 %i, %i, %step;
  bra NEXT;
DONE:
  ret;
}}
"""


# p1 is the table of what elements must be, one period by the other.
VERIFY = f"""
.visible .entry verify(.param .u64 p0, .param .u64 p1, .param .u32 p2, .param .u64 p3)
{{{INDEX}
  .reg .pred %end, %wrong;
  .reg .f32 %f, %g;
  .reg .b32 %e, %n, %row, %column, %v;
  .reg .b64 %data, %table, %count, %at, %out, %bits;
  ld.param.u64 %data, [p0];
  ld.param.u64 %table, [p1];
  ld.param.u32 %n, [p2];
  ld.param.u64 %out, [p3];
  cvta.to.global.u64 %data, %data;
  cvta.to.global.u64 %table, %table;
  cvta.to.global.u64 %out, %out;
  mul.wide.u32 %count, %n, %n;
NEXT:
  setp.ge.u64 %end, %i, %count;
  @%end bra DONE;
  cvt.u32.u64 %e, %i;
  div.u32 %row, %e, %n;
  rem.u32 %column, %e, %n;
  rem.u32 %row, %row, {LEFT["period"]};
  rem.u32 %column, %column, {RIGHT["period"]};
  mad.lo.u32 %v, %row, {RIGHT["period"]}, %column;
  mul.wide.u32 %at, %v, 4;
  add.u64 %at, %at, %table;
  ld.global.f32 %g, [%at];
  mad.lo.u64 %at, %i, 4, %data;
  ld.global.f32 %f, [%at];
  setp.neu.f32 %wrong, %f, %g;
  @!%wrong bra GOOD;
  mov.b32 %v, %f;
  cvt.u64.u32 %bits, %v;{TELL}
GOOD:
  add.u64 %i, %i, %step;
  bra NEXT;
DONE:
  ret;
}}
"""


def _fp32() -> str:
    """Return C = A B in fp32: 128 by 128 for each block, 8 by 8 for each thread, K in steps of 16.

    A lies with k down its columns, so that a tile of either matrix is 16 rows of 128 values.
    """
    fetch = "".join(
        f"  ld.global.v4.f32 {{%p{n}, %p{n + 1}, %p{n + 2}, %p{n + 3}}}, [%{at}];\n"
        for n, at in ((0, "ga"), (4, "ga8"), (8, "gb"), (12, "gb8"))
    )
    keep = "".join(
        f"  st.shared.v4.f32 [%store+{offset}], {{%p{n}, %p{n + 1}, %p{n + 2}, %p{n + 3}}};\n"
        for n, offset in ((0, 0), (4, 4096), (8, 8192), (12, 12288))
    )
    steps = []
    for k in range(16):
        for register, place in (("a", k * 512), ("b", 8192 + k * 512)):
            for half in range(2):
                names = ", ".join(f"%{register}{4 * half + n}" for n in range(4))
                steps.append(
                    f"  ld.shared.v4.f32 {{{names}}}, [%read{register}+{place + 256 * half}];\n"
                )
        steps += [
            f"  fma.rn.f32 %c{8 * i + j}, %a{i}, %b{j}, %c{8 * i + j};\n"
            for i in range(8)
            for j in range(8)
        ]
    write = []
    for i in range(8):
        jump = "61" if i == 4 else "1"
        write.append(f"  mad.lo.u64 %out, %pitch, {jump if i else 0}, %out;\n")
        for half in range(2):
            names = ", ".join(f"%c{8 * i + 4 * half + n}" for n in range(4))
            write.append(f"  st.global.v4.f32 [%out+{256 * half}], {{{names}}};\n")
    return f"""
.visible .entry multiply(.param .u64 p0, .param .u64 p1, .param .u64 p2, .param .u32 p3)
.maxntid 256, 1, 1
.minnctapersm 2
{{
  .shared .align 16 .b8 tiles[16384];
  .reg .pred %more;
  .reg .f32 %c<64>, %a<8>, %b<8>, %p<16>;
  .reg .b32 %n, %k, %t, %tx, %ty, %row, %column, %u, %v, %store, %reada, %readb;
  .reg .b64 %ga, %gb, %ga8, %gb8, %out, %pitch, %jump, %w;
  ld.param.u64 %ga, [p0];
  ld.param.u64 %gb, [p1];
  ld.param.u64 %out, [p2];
  ld.param.u32 %n, [p3];
  cvta.to.global.u64 %ga, %ga;
  cvta.to.global.u64 %gb, %gb;
  cvta.to.global.u64 %out, %out;
  mul.wide.u32 %pitch, %n, 4;
  mov.u32 %t, %tid.x;
  and.b32 %tx, %t, 15;
  shr.u32 %ty, %t, 4;
  mov.u32 %row, %ctaid.y;
  shl.b32 %row, %row, 7;
  mov.u32 %column, %ctaid.x;
  shl.b32 %column, %column, 7;
  shr.u32 %u, %t, 5;
  and.b32 %v, %t, 31;
  shl.b32 %v, %v, 2;
  mad.lo.u32 %u, %u, %n, %v;
  add.u32 %v, %u, %row;
  mul.wide.u32 %w, %v, 4;
  add.u64 %ga, %ga, %w;
  add.u32 %v, %u, %column;
  mul.wide.u32 %w, %v, 4;
  add.u64 %gb, %gb, %w;
  shl.b64 %jump, %pitch, 3;
  add.u64 %ga8, %ga, %jump;
  add.u64 %gb8, %gb, %jump;
  shl.b64 %jump, %pitch, 4;
  mov.u32 %u, tiles;
  shl.b32 %v, %t, 4;
  add.u32 %store, %u, %v;
  shl.b32 %v, %ty, 4;
  add.u32 %reada, %u, %v;
  shl.b32 %v, %tx, 4;
  add.u32 %readb, %u, %v;
{lines("mov.f32 %c#, 0f00000000;", range(64))}
  mov.u32 %k, 0;
{fetch}
LOOP:
  bar.sync 0;
{keep}
  bar.sync 0;
  add.u32 %k, %k, 16;
  setp.lt.u32 %more, %k, %n;
  @!%more bra COMPUTE;
  add.u64 %ga, %ga, %jump;
  add.u64 %gb, %gb, %jump;
  add.u64 %ga8, %ga8, %jump;
  add.u64 %gb8, %gb8, %jump;
{fetch}
COMPUTE:
{"".join(steps)}
  @%more bra LOOP;
  shl.b32 %ty, %ty, 2;
  add.u32 %row, %row, %ty;
  shl.b32 %tx, %tx, 2;
  add.u32 %column, %column, %tx;
  mul.wide.u32 %w, %row, %n;
  cvt.u64.u32 %ga, %column;
  add.u64 %w, %w, %ga;
  shl.b64 %w, %w, 2;
  add.u64 %out, %out, %w;
{"".join(write)}
  ret;
}}
"""


FP32 = BASE + inputs("inputs", 4, "  st.global.f32 [%at], %f;") + VERIFY + _fp32()
