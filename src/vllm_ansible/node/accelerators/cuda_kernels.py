"""Kernels of the accelerator probe for memory, as PTX that each driver compiles for its devices.

Version 7.0 of PTX is read by every driver since 2020.
"""

from __future__ import annotations

from typing import Iterable

BASE = ".version 7.0\n.target sm_70\n.address_size 64\n"


def lines(template: str, numbers: Iterable[int]) -> str:
    """Return one line of PTX for each number, which takes the place of #."""
    return "".join("  " + template.replace("#", str(n)) + "\n" for n in numbers)


# %i is this thread's number in the grid, %step how many threads there are.
INDEX = """
  .reg .b32 %x<4>;
  .reg .b64 %i, %step;
  mov.u32 %x0, %ctaid.x;
  mov.u32 %x1, %ntid.x;
  mov.u32 %x2, %tid.x;
  mad.lo.u32 %x3, %x0, %x1, %x2;
  cvt.u64.u32 %i, %x3;
  mov.u32 %x2, %nctaid.x;
  mul.lo.u32 %x3, %x2, %x1;
  cvt.u64.u32 %step, %x3;"""

# %w is what word %i of the pattern must be.
_WORD = """
  cvt.u32.u64 %w, %i;
  mad.lo.u32 %w, %w, 0x9E3779B1, %seed;
  shr.u64 %at, %i, 32;
  cvt.u32.u64 %v, %at;
  mad.lo.u32 %w, %v, 0x85EBCA6B, %w;
  shr.u32 %v, %w, 15;
  xor.b32 %w, %w, %v;
  xor.b32 %w, %w, %flip;"""

# How many differ, where the first is, and which bits: 3 words of 64 bits at %out.
TELL = """
  red.global.add.u64 [%out], 1;
  red.global.min.u64 [%out+8], %i;
  red.global.or.b64 [%out+16], %bits;"""

PATTERN = f"""{BASE}
.visible .entry fill(
  .param .u64 p0, .param .u64 p1, .param .u32 p2, .param .u32 p3)
{{{INDEX}
  .reg .pred %end;
  .reg .b32 %w, %v, %seed, %flip;
  .reg .b64 %data, %count, %at;
  ld.param.u64 %data, [p0];
  ld.param.u64 %count, [p1];
  ld.param.u32 %seed, [p2];
  ld.param.u32 %flip, [p3];
  cvta.to.global.u64 %data, %data;
NEXT:
  setp.ge.u64 %end, %i, %count;
  @%end bra DONE;{_WORD}
  shl.b64 %at, %i, 2;
  add.u64 %at, %at, %data;
  st.global.u32 [%at], %w;
  add.u64 %i, %i, %step;
  bra NEXT;
DONE:
  ret;
}}

.visible .entry check(
  .param .u64 p0, .param .u64 p1, .param .u32 p2, .param .u32 p3, .param .u64 p4)
{{{INDEX}
  .reg .pred %end, %same;
  .reg .b32 %w, %v, %seed, %flip;
  .reg .b64 %data, %count, %at, %out, %bits;
  ld.param.u64 %data, [p0];
  ld.param.u64 %count, [p1];
  ld.param.u32 %seed, [p2];
  ld.param.u32 %flip, [p3];
  ld.param.u64 %out, [p4];
  cvta.to.global.u64 %data, %data;
  cvta.to.global.u64 %out, %out;
NEXT:
  setp.ge.u64 %end, %i, %count;
  @%end bra DONE;{_WORD}
  shl.b64 %at, %i, 2;
  add.u64 %at, %at, %data;
  ld.global.u32 %v, [%at];
  xor.b32 %v, %v, %w;
  setp.eq.u32 %same, %v, 0;
  @%same bra GOOD;
  cvt.u64.u32 %bits, %v;{TELL}
GOOD:
  add.u64 %i, %i, %step;
  bra NEXT;
DONE:
  ret;
}}

.visible .entry sum(.param .u64 p0, .param .u64 p1, .param .u64 p2)
{{{INDEX}
  .reg .pred %end, %first;
  .reg .b32 %s, %t, %a<4>, %b<4>, %c<4>, %d<4>;
  .reg .b64 %data, %count, %at, %out, %last, %stride;
  ld.param.u64 %data, [p0];
  ld.param.u64 %count, [p1];
  ld.param.u64 %out, [p2];
  cvta.to.global.u64 %data, %data;
  cvta.to.global.u64 %out, %out;
  shl.b64 %stride, %step, 4;
  mov.u32 %s, 0;
FOUR:
  mad.lo.u64 %last, %step, 3, %i;
  setp.ge.u64 %end, %last, %count;
  @%end bra ONE;
  shl.b64 %at, %i, 4;
  add.u64 %at, %at, %data;
  ld.global.v4.u32 {{%a0, %a1, %a2, %a3}}, [%at];
  add.u64 %at, %at, %stride;
  ld.global.v4.u32 {{%b0, %b1, %b2, %b3}}, [%at];
  add.u64 %at, %at, %stride;
  ld.global.v4.u32 {{%c0, %c1, %c2, %c3}}, [%at];
  add.u64 %at, %at, %stride;
  ld.global.v4.u32 {{%d0, %d1, %d2, %d3}}, [%at];
{"".join(lines(f"add.u32 %s, %s, %{register}#;", range(4)) for register in "abcd")}
  add.u64 %i, %last, %step;
  bra FOUR;
ONE:
  setp.ge.u64 %end, %i, %count;
  @%end bra DONE;
  shl.b64 %at, %i, 4;
  add.u64 %at, %at, %data;
  ld.global.v4.u32 {{%a0, %a1, %a2, %a3}}, [%at];
{lines("add.u32 %s, %s, %a#;", range(4))}
  add.u64 %i, %i, %step;
  bra ONE;
DONE:
{lines("shfl.sync.bfly.b32 %t, %s, #, 31, -1; add.u32 %s, %s, %t;", (16, 8, 4, 2, 1))}
  mov.u32 %t, %laneid;
  setp.eq.u32 %first, %t, 0;
  @%first red.global.add.u32 [%out], %s;
  ret;
}}
"""
