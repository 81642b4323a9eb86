//! Arithmetic on registers.

use super::{Emitted, InstructionSet, LoopEmitter, MASK, TEMPORARY, mask, vector};
use crate::region::native::micro::{Lane, Micro, ValueOrigin};
use crate::region::native::opcodes::{Opcode, code};
use iced_x86::{Code, Instruction};

impl LoopEmitter<'_, '_> {
    /// Computes a value.
    pub(super) fn compute(&mut self, value: usize, to: u8, from: [u8; 3]) -> Emitted<()> {
        let it = self.it;
        let ValueOrigin::Computed(micro, of, count) = it.body.values[value].from else {
            return Ok(());
        };
        let avx512 = it.set == InstructionSet::Avx512;
        // Masks have the width of the operation that produces or uses them.
        let lane = of[..count]
            .iter()
            .chain([&value])
            .map(|&v| it.body.values[v].lane)
            .max_by_key(|lane| match lane {
                Lane::Mask => 0,
                Lane::F32 => 1,
                Lane::F64 | Lane::I64 => 2,
            })
            .unwrap_or(Lane::F32);
        let double = lane.is_double();
        let width = self.width(lane);
        let v = |n: u8| vector(n, width);
        let [a, b, c] = from;
        let two = |does| code(does, double, avx512, width);
        let plain =
            |does| -> Emitted<Instruction> { Instruction::with3(two(does), v(to), v(a), v(b)) };
        let instruction = match micro {
            Micro::Add => plain(Opcode::Add)?,
            Micro::Sub => plain(Opcode::Sub)?,
            Micro::Mul => plain(Opcode::Mul)?,
            Micro::Div => plain(Opcode::Div)?,
            Micro::And => plain(Opcode::And)?,
            Micro::Or => plain(Opcode::Or)?,
            Micro::Xor => plain(Opcode::Xor)?,
            Micro::Max => return self.extreme(Opcode::Max, double, width, to, a, b),
            Micro::Min => return self.extreme(Opcode::Min, double, width, to, a, b),
            Micro::Lower => plain(Opcode::Min)?,
            Micro::Upper => plain(Opcode::Max)?,
            Micro::WordAdd => plain(Opcode::WordAdd)?,
            Micro::WordSub => plain(Opcode::WordSub)?,
            Micro::Fma => return self.fused([Opcode::Fma213, Opcode::Fma231], width, to, from),
            Micro::Fnma => return self.fused([Opcode::Fnma213, Opcode::Fnma231], width, to, from),
            Micro::Fms => return self.fused([Opcode::Fms213, Opcode::Fms231], width, to, from),
            Micro::Left(by) => Instruction::with3(two(Opcode::Left), v(to), v(a), i32::from(by))?,
            Micro::Right(by) => Instruction::with3(two(Opcode::Right), v(to), v(a), i32::from(by))?,
            Micro::FromWord => Instruction::with2(two(Opcode::FromWord), v(to), v(a))?,
            Micro::Sqrt => Instruction::with2(two(Opcode::Sqrt), v(to), v(a))?,
            Micro::Round(how) => {
                Instruction::with3(two(Opcode::Round), v(to), v(a), i32::from(how))?
            }
            Micro::Compare(test) if avx512 => {
                Instruction::with4(two(Opcode::Compare), mask(to), v(a), v(b), i32::from(test))?
            }
            Micro::Compare(test) => {
                let compare = two(Opcode::Compare);
                self.put(&Instruction::with4(compare, v(to), v(a), v(b), i32::from(test))?)?;
                return self.widen_lanes(to, lane);
            }
            Micro::Select if avx512 => {
                let mut select = Instruction::with3(two(Opcode::Select), v(to), v(c), v(b))?;
                select.set_op_mask(mask(a));
                select
            }
            Micro::Select => {
                let a = self.lanes_for(a, lane)?;
                Instruction::with4(two(Opcode::Select), v(to), v(c), v(b), v(a))?
            }
            Micro::Where if avx512 => {
                let mut select = Instruction::with2(two(Opcode::Load), v(to), v(b))?;
                select.set_op_mask(mask(a));
                select.set_zeroing_masking(true);
                select
            }
            Micro::Where => {
                let a = self.lanes_for(a, lane)?;
                Instruction::with3(two(Opcode::And), v(to), v(a), v(b))?
            }
            Micro::Both | Micro::Either | Micro::Differ | Micro::Without | Micro::Not
                if !avx512 =>
            {
                return self.mask_lanes(micro, to, a, b);
            }
            Micro::WideAdd
            | Micro::WideSub
            | Micro::WideMul
            | Micro::WideMax
            | Micro::WideMin
            | Micro::WideCompare(_)
            | Micro::FromWide
                if !avx512 =>
            {
                return self.integer_lanes(micro, to, a, b);
            }
            Micro::Both => masks(Code::VEX_Kandw_kr_kr_kr, to, a, b)?,
            Micro::Either => masks(Code::VEX_Korw_kr_kr_kr, to, a, b)?,
            Micro::Differ => masks(Code::VEX_Kxorw_kr_kr_kr, to, a, b)?,
            Micro::Without => masks(Code::VEX_Kandnw_kr_kr_kr, to, a, b)?,
            Micro::Not => Instruction::with2(Code::VEX_Knotw_kr_kr, mask(to), mask(a))?,
            Micro::WideAdd => wide(Code::EVEX_Vpaddq_xmm_k1z_xmm_xmmm128b64, to, a, b)?,
            Micro::WideSub => wide(Code::EVEX_Vpsubq_xmm_k1z_xmm_xmmm128b64, to, a, b)?,
            Micro::WideMul => wide(Code::EVEX_Vpmullq_xmm_k1z_xmm_xmmm128b64, to, a, b)?,
            Micro::WideMax => wide(Code::EVEX_Vpmaxsq_xmm_k1z_xmm_xmmm128b64, to, a, b)?,
            Micro::WideMin => wide(Code::EVEX_Vpminsq_xmm_k1z_xmm_xmmm128b64, to, a, b)?,
            Micro::WideCompare(test) => {
                let code = Code::EVEX_Vpcmpq_kr_k1_xmm_xmmm128b64_imm8;
                Instruction::with4(code, mask(to), v(a), v(b), i32::from(test))?
            }
            Micro::FromWide => {
                Instruction::with2(Code::EVEX_Vcvtqq2pd_xmm_k1z_xmmm128b64, v(to), v(a))?
            }
            Micro::Widen => {
                let narrow = vector(a, self.width(Lane::F32));
                let wide = self.width(Lane::F64);
                let code = code(Opcode::Widen, true, avx512, wide);
                Instruction::with2(code, vector(to, wide), narrow)?
            }
            Micro::Narrow => {
                let wide = self.width(Lane::F64);
                let code = code(Opcode::Narrow, true, avx512, wide);
                let narrow = vector(to, self.width(Lane::F32));
                Instruction::with2(code, narrow, vector(a, wide))?
            }
        };
        self.put(&instruction)
    }

    /// A product and a sum, rounded once: the result replaces one of the operands.
    fn fused(&mut self, does: [Opcode; 2], width: usize, to: u8, from: [u8; 3]) -> Emitted<()> {
        let avx512 = self.it.set == InstructionSet::Avx512;
        let [into_a, into_c] = does.map(|does| code(does, false, avx512, width));
        let v = |n: u8| vector(n, width);
        let [a, b, c] = from;
        if to == a {
            return self.put(&Instruction::with3(into_a, v(to), v(b), v(c))?);
        }
        if to == b {
            return self.put(&Instruction::with3(into_a, v(to), v(a), v(c))?);
        }
        if to != c {
            let copy = code(Opcode::Load, false, avx512, width);
            self.put(&Instruction::with2(copy, v(to), v(c))?)?;
        }
        self.put(&Instruction::with3(into_c, v(to), v(a), v(b))?)
    }

    /// The larger or smaller; the first operand where that is NaN. The instruction returns the
    /// second where either is.
    fn extreme(
        &mut self,
        does: Opcode,
        double: bool,
        width: usize,
        to: u8,
        a: u8,
        b: u8,
    ) -> Emitted<()> {
        const UNORDERED: i32 = 3;
        const ORDERED: i32 = 7;
        let avx512 = self.it.set == InstructionSet::Avx512;
        let (extreme, compare) =
            (code(does, double, avx512, width), code(Opcode::Compare, double, avx512, width));
        let v = |n: u8| vector(n, width);
        if !avx512 {
            let [most, nan] = TEMPORARY.map(v);
            self.put(&Instruction::with4(compare, nan, v(a), v(a), UNORDERED)?)?;
            self.put(&Instruction::with3(extreme, most, v(a), v(b))?)?;
            let select = code(Opcode::Select, double, false, width);
            return self.put(&Instruction::with4(select, v(to), most, v(a), nan)?);
        }
        if to == a {
            self.put(&Instruction::with4(compare, MASK, v(a), v(a), ORDERED)?)?;
            let mut extreme = Instruction::with3(extreme, v(to), v(a), v(b))?;
            extreme.set_op_mask(MASK);
            return self.put(&extreme);
        }
        self.put(&Instruction::with4(compare, MASK, v(a), v(a), UNORDERED)?)?;
        self.put(&Instruction::with3(extreme, v(to), v(a), v(b))?)?;
        let mut keep = Instruction::with2(code(Opcode::Load, double, true, width), v(to), v(a))?;
        keep.set_op_mask(MASK);
        self.put(&keep)
    }
}

/// Straight-line code has integers in the lowest lane of the smallest registers.
fn wide(code: Code, to: u8, a: u8, b: u8) -> Emitted<Instruction> {
    Instruction::with3(code, vector(to, 16), vector(a, 16), vector(b, 16))
}

fn masks(code: Code, to: u8, a: u8, b: u8) -> Emitted<Instruction> {
    Instruction::with3(code, mask(to), mask(a), mask(b))
}
