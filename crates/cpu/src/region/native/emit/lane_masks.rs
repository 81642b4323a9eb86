//! What AVX2 has no single instruction for: booleans, and integers of 64 bits.
//!
//! Without mask registers a boolean is a lane of a vector register, with all bits set or none. Its
//! lanes are as wide as the widest of the body, so a comparison gives them and a selection takes
//! them as they are; only bodies that mix elements of four and eight bytes convert. In memory
//! booleans are bytes, which AVX2 cannot access under a mask: those of a partial register are
//! accessed one by one.
//!
//! Integers are in straight-line code alone: in the lowest lane of 128-bit registers.

use super::{Emitted, LEFT, LoopEmitter, POINTER, TEMPORARY, vector};
use crate::region::native::micro::{Lane, Micro};
use crate::region::native::opcodes::{Opcode, code};
use crate::region::plan::TableRef;
use iced_x86::{Code, Instruction, MemoryOperand};

/// The low halves of lanes of eight bytes, of two registers.
const EVEN: i32 = 0x88;

impl LoopEmitter<'_, '_> {
    /// One instruction on 128-bit registers.
    fn narrow(&mut self, code: Code, to: u8, a: u8, b: u8) -> Emitted<()> {
        let v = |n| vector(n, 16);
        self.put(&Instruction::with3(code, v(to), v(a), v(b))?)
    }

    /// Loads booleans.
    pub(super) fn fetch_lanes(&mut self, to: u8, place: TableRef, one: bool) -> Emitted<()> {
        let (lanes, width) = (self.it.lanes, self.width(Lane::Mask));
        let from = self.memory(place, 1, !one)?;
        let extend = match self.it.double {
            true => Code::VEX_Vpmovzxbq_ymm_xmmm32,
            false => Code::VEX_Vpmovzxbd_ymm_xmmm64,
        };
        let (low, whole) = (vector(to, 16), vector(to, width));
        if lanes == 1 {
            self.narrow(Code::VEX_Vpxor_xmm_xmm_xmmm128, to, to, to)?;
            self.insert(to, from, 0)?;
        } else if one {
            self.put(&Instruction::with2(Code::VEX_Vpbroadcastb_xmm_xmmm8, low, from)?)?;
            self.put(&Instruction::with2(extend, whole, low)?)?;
        } else if self.rest {
            self.narrow(Code::VEX_Vpxor_xmm_xmm_xmmm128, to, to, to)?;
            self.for_each_left(|it, i| it.insert(to, from, i))?;
            self.put(&Instruction::with2(extend, whole, low)?)?;
        } else {
            self.put(&Instruction::with2(extend, whole, from)?)?;
        }
        let [zero, _] = TEMPORARY;
        self.narrow(Code::VEX_Vpxor_xmm_xmm_xmmm128, zero, zero, zero)?;
        let above = match (self.it.double, width) {
            (true, 32) => Code::VEX_Vpcmpgtq_ymm_ymm_ymmm256,
            (true, _) => Code::VEX_Vpcmpgtq_xmm_xmm_xmmm128,
            (false, 32) => Code::VEX_Vpcmpgtd_ymm_ymm_ymmm256,
            (false, _) => Code::VEX_Vpcmpgtd_xmm_xmm_xmmm128,
        };
        self.put(&Instruction::with3(above, whole, whole, vector(zero, width))?)
    }

    /// Byte `i` of a register from memory.
    fn insert(&mut self, to: u8, from: MemoryOperand, i: usize) -> Emitted<()> {
        let (to, from) = (vector(to, 16), after(from, i));
        let insert = Code::VEX_Vpinsrb_xmm_xmm_r32m8_imm8;
        self.put(&Instruction::with4(insert, to, to, from, i as i32)?)
    }

    /// Code for each of the remaining elements, of which there is one at least.
    fn for_each_left(
        &mut self,
        mut each: impl FnMut(&mut Self, usize) -> Emitted<()>,
    ) -> Emitted<()> {
        let mut to_end = Vec::new();
        for i in 0..self.it.lanes {
            if i > 0 {
                self.put(&Instruction::with2(Code::Cmp_rm64_imm8, LEFT, i as i32)?)?;
                to_end.push(self.jump(&[0x0F, 0x86], "jbe last"));
            }
            each(self, i)?;
        }
        self.label("last");
        to_end.into_iter().for_each(|jump| self.land(jump));
        Ok(())
    }

    /// Writes booleans.
    pub(super) fn store_lanes(&mut self, from: u8, place: TableRef) -> Emitted<()> {
        let lanes = self.it.lanes;
        let [bytes, high] = TEMPORARY;
        let pack = Code::VEX_Vpackssdw_xmm_xmm_xmmm128;
        let mut packed = from;
        if lanes > 1 {
            let (high, whole) = (vector(high, 16), vector(from, 32));
            let half = Code::VEX_Vextracti128_xmmm128_ymm_imm8;
            self.put(&Instruction::with3(half, high, whole, 1i32)?)?;
            self.narrow(pack, bytes, from, TEMPORARY[1])?;
            if self.it.double {
                self.narrow(pack, bytes, bytes, bytes)?;
            }
            self.narrow(Code::VEX_Vpacksswb_xmm_xmm_xmmm128, bytes, bytes, bytes)?;
            packed = bytes;
        }
        // All bits are −1, and true is 1.
        let (bytes, packed) = (vector(bytes, 16), vector(packed, 16));
        self.put(&Instruction::with2(Code::VEX_Vpabsb_xmm_xmmm128, bytes, packed)?)?;
        let to = self.memory(place, 1, true)?;
        let extract = Code::VEX_Vpextrb_r32m8_xmm_imm8;
        match lanes {
            1 => self.put(&Instruction::with3(extract, to, bytes, 0i32)?),
            _ if self.rest => self.for_each_left(|it, i| {
                it.put(&Instruction::with3(extract, after(to, i), bytes, i as i32)?)
            }),
            8 => self.put(&Instruction::with2(Code::VEX_Vmovq_xmmm64_xmm, to, bytes)?),
            _ => self.put(&Instruction::with2(Code::VEX_Vmovd_rm32_xmm, to, bytes)?),
        }
    }

    /// What a comparison of a lane gave, as wide as masks are.
    pub(super) fn widen_lanes(&mut self, to: u8, lane: Lane) -> Emitted<()> {
        if !self.it.double || lane.is_double() {
            return Ok(());
        }
        let width = self.width(Lane::Mask);
        let widen = match width {
            32 => Code::VEX_Vpmovsxdq_ymm_xmmm128,
            _ => Code::VEX_Vpmovsxdq_xmm_xmmm64,
        };
        self.put(&Instruction::with2(widen, vector(to, width), vector(to, 16))?)
    }

    /// The register of a mask whose lanes are as wide as a lane. (The low half of the only lane is
    /// where it is.)
    pub(super) fn lanes_for(&mut self, register: u8, lane: Lane) -> Emitted<u8> {
        if !self.it.double || lane.is_double() || self.it.lanes == 1 {
            return Ok(register);
        }
        let [narrow, _] = TEMPORARY;
        let (high, whole) = (vector(narrow, 16), vector(register, 32));
        let half = Code::VEX_Vextracti128_xmmm128_ymm_imm8;
        self.put(&Instruction::with3(half, high, whole, 1i32)?)?;
        let every_other = Code::VEX_Vshufps_xmm_xmm_xmmm128_imm8;
        let low = vector(register, 16);
        self.put(&Instruction::with4(every_other, high, low, high, EVEN)?)?;
        Ok(narrow)
    }

    /// Logic on booleans.
    pub(super) fn mask_lanes(&mut self, micro: Micro, to: u8, a: u8, b: u8) -> Emitted<()> {
        let width = self.width(Lane::Mask);
        let v = |n| vector(n, width);
        let [ones, _] = TEMPORARY;
        let (code, a, b) = match micro {
            Micro::Both => (code(Opcode::And, false, false, width), a, b),
            Micro::Either => (code(Opcode::Or, false, false, width), a, b),
            Micro::Without if width == 32 => (Code::VEX_Vandnps_ymm_ymm_ymmm256, a, b),
            Micro::Without => (Code::VEX_Vandnps_xmm_xmm_xmmm128, a, b),
            Micro::Not => {
                self.set_all(ones, width)?;
                (code(Opcode::Xor, false, false, width), a, ones)
            }
            _ => (code(Opcode::Xor, false, false, width), a, b),
        };
        self.put(&Instruction::with3(code, v(to), v(a), v(b))?)
    }

    fn set_all(&mut self, to: u8, width: usize) -> Emitted<()> {
        let to = vector(to, width);
        let equal = match width {
            32 => Code::VEX_Vpcmpeqd_ymm_ymm_ymmm256,
            _ => Code::VEX_Vpcmpeqd_xmm_xmm_xmmm128,
        };
        self.put(&Instruction::with3(equal, to, to, to)?)
    }

    /// Arithmetic and comparisons of integers.
    pub(super) fn integer_lanes(&mut self, micro: Micro, to: u8, a: u8, b: u8) -> Emitted<()> {
        let above = Code::VEX_Vpcmpgtq_xmm_xmm_xmmm128;
        let v = |n| vector(n, 16);
        let [t, u] = TEMPORARY;
        match micro {
            Micro::WideSub => self.narrow(Code::VEX_Vpsubq_xmm_xmm_xmmm128, to, a, b),
            // Of halves: (aₕ·bₗ + bₕ·aₗ)·2³² + aₗ·bₗ
            Micro::WideMul => {
                let product = Code::VEX_Vpmuludq_xmm_xmm_xmmm128;
                let sum = Code::VEX_Vpaddq_xmm_xmm_xmmm128;
                let (down, up) = (Code::VEX_Vpsrlq_xmm_xmm_imm8, Code::VEX_Vpsllq_xmm_xmm_imm8);
                self.put(&Instruction::with3(down, v(t), v(a), 32i32)?)?;
                self.narrow(product, t, t, b)?;
                self.put(&Instruction::with3(down, v(u), v(b), 32i32)?)?;
                self.narrow(product, u, u, a)?;
                self.narrow(sum, t, t, u)?;
                self.put(&Instruction::with3(up, v(t), v(t), 32i32)?)?;
                self.narrow(product, u, a, b)?;
                self.narrow(sum, to, t, u)
            }
            Micro::WideMax | Micro::WideMin => {
                self.narrow(above, t, a, b)?;
                let (larger, other) = if micro == Micro::WideMax { (a, b) } else { (b, a) };
                let select = Code::VEX_Vblendvpd_xmm_xmm_xmmm128_xmm;
                self.put(&Instruction::with4(select, v(to), v(other), v(larger), v(t))?)
            }
            Micro::WideCompare(test) => {
                // Of the tests 0 to 2, which are equal, less and at most, 4 to 6 are the opposites.
                let equal = Code::VEX_Vpcmpeqq_xmm_xmm_xmmm128;
                let (test, no) = (test % 4, test >= 4);
                match test {
                    0 => self.narrow(equal, to, a, b)?,
                    1 => self.narrow(above, to, b, a)?,
                    _ => self.narrow(above, to, a, b)?,
                }
                // At most is not above.
                match no != (test == 2) {
                    true => self.mask_lanes(Micro::Not, to, to, to),
                    false => Ok(()),
                }
            }
            Micro::FromWide => {
                self.put(&Instruction::with2(Code::VEX_Vmovq_rm64_xmm, POINTER, v(a))?)?;
                let convert = Code::VEX_Vcvtsi2sd_xmm_xmm_rm64;
                self.put(&Instruction::with3(convert, v(to), v(a), POINTER)?)
            }
            _ => self.narrow(Code::VEX_Vpaddq_xmm_xmm_xmmm128, to, a, b),
        }
    }
}

/// The byte so many further on.
fn after(memory: MemoryOperand, bytes: usize) -> MemoryOperand {
    MemoryOperand { displacement: memory.displacement + bytes as i64, ..memory }
}
