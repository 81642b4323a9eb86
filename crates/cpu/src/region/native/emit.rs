//! Machine code.
//!
//! A native loop is a function of the table of pointers and a number of elements:
//!
//! ```text
//!     numbers: …                       what the formulas need, read relative to the code
//! entry:
//!     push …; load pointers            rdi: the table, rsi: elements left, rax: index of the element
//!     load what stays in registers
//!     sub rsi, lanes; jb rest
//! top:
//!     body                             whole registers
//!     add rax, lanes; sub rsi, lanes; jae top
//! rest:
//!     add rsi, lanes; jz done
//!     make the mask of rsi lanes
//!     body                             loads and stores under the mask
//! done:
//!     pop …; vzeroupper; ret
//! ```
//!
//! A domain of one element has a body alone, in the lowest lane of 128-bit registers: a scalar program is a straight list of
//! instructions.

use super::codes::{Does, code};
use super::micro::{Body, From, Lane, Micro};
use super::registers::{Act, Assigned};
use crate::region::plan::Ref;
use std::ops::Range;

use iced_x86::{Code, Encoder, IcedError, Instruction, MemoryOperand, Register};

type Emitted<T> = Result<T, IcedError>;

/// Which instructions there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Set {
    Avx512,
    Avx2,
}

/// Under AVX2: what is needed on the way, and the masks of a last part of a register.
const TEMPORARY: [u8; 2] = [12, 13];
const REST32: u8 = 14;
const REST64: u8 = 15;
/// Under AVX-512: the mask of a last part, and one for what is needed on the way.
const REST: Register = Register::K1;
const MASK: Register = Register::K7;

const TABLE: Register = Register::RDI;
const LEFT: Register = Register::RSI;
const INDEX: Register = Register::RAX;
/// For pointers that have no register of their own.
const POINTER: Register = Register::R11;
/// For pointers; those from the sixth on are the caller's.
const POINTERS: [Register; 11] = [
    Register::RCX,
    Register::RDX,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::RBX,
    Register::RBP,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];
const NOT_SAVED: usize = 5;

/// What an emitter needs to know about a loop.
pub(super) struct Loop<'a> {
    pub(super) body: &'a Body,
    pub(super) assigned: &'a Assigned,
    pub(super) set: Set,
    /// Elements of an iteration; one for a scalar program.
    pub(super) lanes: usize,
    /// Where values that are written down lie.
    pub(super) spill: Ref,
    /// The table entries of what is written past the caches.
    pub(super) streamed: Range<u32>,
}

pub(super) struct Emitter {
    encoder: Encoder,
    at: u64,
}

impl Emitter {
    pub(super) fn new() -> Emitter {
        Emitter { encoder: Encoder::new(64), at: 0 }
    }

    /// All the code.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.encoder.take_buffer()
    }

    fn bytes(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&b| self.encoder.write_u8(b));
        self.at += bytes.len() as u64;
    }

    fn put(&mut self, instruction: &Instruction) -> Emitted<()> {
        self.at += self.encoder.encode(instruction, self.at)? as u64;
        Ok(())
    }

    fn align(&mut self, to: u64) {
        while !self.at.is_multiple_of(to) {
            self.bytes(&[0xCC]);
        }
    }
}

/// A jump that is not yet known: where its distance is written, and from where it counts.
struct Jump(usize);

/// One loop as it is written.
struct Writing<'a, 'b> {
    emitter: &'a mut Emitter,
    it: &'a Loop<'b>,
    /// For each value that is a number, where it lies.
    numbers: Vec<Option<u64>>,
    /// Where the bytes of truth lie.
    ones: u64,
    /// The pointers that have registers: table entries.
    pointers: Vec<u32>,
    /// Whether loads and stores go under the mask of a last part.
    rest: bool,
    patches: Vec<(usize, i32)>,
}

/// Writes a loop; gives where it begins, and the bytes to be replaced.
pub(super) fn emit(emitter: &mut Emitter, it: &Loop) -> Emitted<(usize, Vec<(usize, i32)>)> {
    emitter.align(64);
    let mut numbers = vec![None; it.body.values.len()];
    for (v, value) in it.body.values.iter().enumerate() {
        if let From::Number(bits) = value.from {
            numbers[v] = Some(emitter.at);
            emitter.bytes(&bits.to_le_bytes());
        }
    }
    let ones = emitter.at;
    emitter.bytes(&[1; 16]);
    // A window on this, shifted by the lanes that are left, is a mask of so many lanes.
    let window = emitter.at;
    if it.set == Set::Avx2 {
        emitter.bytes(&[0xFF; 32]);
        emitter.bytes(&[0; 32]);
    }
    emitter.align(64);
    let entry = emitter.at as usize;
    let mut writing = Writing {
        emitter,
        it,
        numbers,
        ones,
        pointers: pointers(it),
        rest: false,
        patches: Vec::new(),
    };
    writing.function(window)?;
    Ok((entry, writing.patches))
}

/// The table entries that are used most.
fn pointers(it: &Loop) -> Vec<u32> {
    let mut counts: Vec<(u32, usize)> = Vec::new();
    let mut seen = |entry: u32| match counts.iter().position(|c| c.0 == entry) {
        Some(n) => counts[n].1 += 1,
        None if counts.len() < 64 => counts.push((entry, 1)),
        None => {}
    };
    for act in &it.assigned.acts {
        match *act {
            Act::Fetch { value, .. } => match it.body.values[value].from {
                From::Elements(at) | From::One(at) => seen(at.entry),
                From::Does(..) | From::Number(_) => {}
            },
            Act::Put { to, .. } => seen(to.entry),
            Act::Save { .. } | Act::Restore { .. } => seen(it.spill.entry),
            Act::Do { .. } => {}
        }
    }
    counts.sort_by_key(|c| std::cmp::Reverse(c.1));
    counts.truncate(POINTERS.len());
    counts.into_iter().map(|c| c.0).collect()
}

fn at(base: Register, disp: i64) -> MemoryOperand {
    MemoryOperand::new(base, Register::None, 1, disp, 8, false, Register::None)
}

impl Writing<'_, '_> {
    fn function(&mut self, window: u64) -> Emitted<()> {
        let lanes = self.it.lanes as i32;
        let saved: Vec<Register> =
            POINTERS[..self.pointers.len()].iter().skip(NOT_SAVED).copied().collect();
        for &register in &saved {
            self.put(&Instruction::with1(Code::Push_r64, register)?)?;
        }
        for n in 0..self.pointers.len() {
            let from = at(TABLE, 8 * i64::from(self.pointers[n]));
            self.put(&Instruction::with2(Code::Mov_r64_rm64, POINTERS[n], from)?)?;
        }
        if lanes == 1 {
            if self.it.set == Set::Avx512 {
                self.put(&Instruction::with2(Code::Mov_r32_imm32, Register::R11D, 1i32)?)?;
                self.put(&Instruction::with2(Code::VEX_Kmovw_kr_r32, REST, Register::R11D)?)?;
            }
            self.acts(&self.it.assigned.before.clone())?;
            self.acts(&self.it.assigned.acts.clone())?;
        } else {
            self.put(&Instruction::with2(Code::Xor_r32_rm32, Register::EAX, Register::EAX)?)?;
            self.acts(&self.it.assigned.before.clone())?;
            let acts = self.it.assigned.acts.clone();
            self.put(&Instruction::with2(Code::Sub_rm64_imm32, LEFT, lanes)?)?;
            let to_rest = self.jump(&[0x0F, 0x82]);
            self.emitter.align_with_nops();
            let top = self.emitter.at;
            self.acts(&acts)?;
            self.put(&Instruction::with2(Code::Add_rm64_imm32, INDEX, lanes)?)?;
            self.put(&Instruction::with2(Code::Sub_rm64_imm32, LEFT, lanes)?)?;
            let again = self.jump(&[0x0F, 0x83]);
            self.patch(again, top);
            self.land(to_rest);
            self.put(&Instruction::with2(Code::Add_rm64_imm32, LEFT, lanes)?)?;
            let to_end = self.jump(&[0x0F, 0x84]);
            self.mask(window)?;
            self.rest = true;
            self.acts(&acts)?;
            self.land(to_end);
        }
        for &register in saved.iter().rev() {
            self.put(&Instruction::with1(Code::Pop_r64, register)?)?;
        }
        self.put(&Instruction::with(Code::VEX_Vzeroupper))?;
        self.put(&Instruction::with(Code::Retnq))
    }

    /// Makes the masks of the lanes that are left.
    fn mask(&mut self, window: u64) -> Emitted<()> {
        if self.it.set == Set::Avx512 {
            self.put(&Instruction::with2(Code::Mov_r32_imm32, Register::R11D, -1i32)?)?;
            self.put(&Instruction::with3(
                Code::VEX_Bzhi_r32_rm32_r32,
                Register::R11D,
                Register::R11D,
                Register::ESI,
            )?)?;
            return self.put(&Instruction::with2(Code::VEX_Kmovw_kr_r32, REST, Register::R11D)?);
        }
        // From the middle of the window, as many bytes back as are left.
        for (size, register, bytes) in
            [(4, REST32, 4 * self.it.lanes), (8, REST64, 8 * self.it.lanes)]
        {
            if bytes > 32 {
                continue;
            }
            let place = MemoryOperand::with_base_displ_size(Register::RIP, window as i64 + 32, 8);
            self.put(&Instruction::with2(Code::Lea_r64_m, POINTER, place)?)?;
            self.put(&Instruction::with1(Code::Neg_rm64, LEFT)?)?;
            let from = MemoryOperand::new(POINTER, LEFT, size, 0, 0, false, Register::None);
            let load = code(Does::Load, size == 8, false, bytes);
            self.put(&Instruction::with2(load, vector(register, bytes), from)?)?;
            self.put(&Instruction::with1(Code::Neg_rm64, LEFT)?)?;
        }
        Ok(())
    }

    fn put(&mut self, instruction: &Instruction) -> Emitted<()> {
        self.emitter.put(instruction)
    }

    fn jump(&mut self, code: &[u8]) -> Jump {
        self.emitter.bytes(code);
        self.emitter.bytes(&[0; 4]);
        Jump(self.emitter.at as usize - 4)
    }

    fn patch(&mut self, Jump(place): Jump, target: u64) {
        self.patches.push((place, (target as i64 - (place as i64 + 4)) as i32));
    }

    fn land(&mut self, jump: Jump) {
        let here = self.emitter.at;
        self.patch(jump, here);
    }

    /// Bytes of a register that holds a value.
    fn width(&self, lane: Lane) -> usize {
        let size = if lane == Lane::F64 { 8 } else { 4 };
        (self.it.lanes * size).max(16)
    }

    /// The base register of a table entry, loaded if it has none.
    fn base(&mut self, entry: u32) -> Emitted<Register> {
        if let Some(n) = self.pointers.iter().position(|&p| p == entry) {
            return Ok(POINTERS[n]);
        }
        let from = at(TABLE, 8 * i64::from(entry));
        self.put(&Instruction::with2(Code::Mov_r64_rm64, POINTER, from)?)?;
        Ok(POINTER)
    }

    /// The element of this iteration, or the only one.
    fn memory(&mut self, place: Ref, size: usize, moves: bool) -> Emitted<MemoryOperand> {
        let base = self.base(place.entry)?;
        let moves = moves && self.it.lanes > 1;
        let index = if moves { INDEX } else { Register::None };
        let scale = if moves { size as u32 } else { 1 };
        let disp = i64::from(place.disp);
        Ok(MemoryOperand::new(base, index, scale, disp, 8, false, Register::None))
    }

    fn acts(&mut self, acts: &[Act]) -> Emitted<()> {
        for act in acts {
            match *act {
                Act::Fetch { value, to } => self.fetch(value, to)?,
                Act::Do { value, to, from } => self.compute(value, to, from)?,
                Act::Put { value, from, to } => self.store(value, from, to)?,
                Act::Save { value, from, place } => self.spill(value, from, place, true)?,
                Act::Restore { value, to, place } => self.spill(value, to, place, false)?,
            }
        }
        Ok(())
    }

    fn is_mask(&self, value: usize) -> bool {
        self.it.set == Set::Avx512 && self.it.body.values[value].lane == Lane::Mask
    }

    fn fetch(&mut self, value: usize, to: u8) -> Emitted<()> {
        let lane = self.it.body.values[value].lane;
        let (double, avx512) = (lane == Lane::F64, self.it.set == Set::Avx512);
        let size = if double { 8 } else { 4 };
        let width = self.width(lane);
        let scalar = self.it.lanes == 1;
        match self.it.body.values[value].from {
            From::Elements(place) if lane == Lane::Mask => {
                let from = self.memory(place, 1, true)?;
                self.truth(to, from, false)
            }
            From::One(place) if lane == Lane::Mask => {
                let from = self.memory(place, 1, false)?;
                self.truth(to, from, true)
            }
            From::Elements(place) | From::One(place) if scalar => {
                let from = self.memory(place, size, false)?;
                self.put(&Instruction::with2(single(double, avx512), vector(to, 16), from)?)
            }
            From::Elements(place) => {
                let from = self.memory(place, size, true)?;
                if self.rest && !avx512 {
                    let load = if double {
                        pick(
                            width,
                            Code::VEX_Vmaskmovpd_ymm_ymm_m256,
                            Code::VEX_Vmaskmovpd_xmm_xmm_m128,
                        )
                    } else {
                        pick(
                            width,
                            Code::VEX_Vmaskmovps_ymm_ymm_m256,
                            Code::VEX_Vmaskmovps_xmm_xmm_m128,
                        )
                    };
                    let mask = vector(if double { REST64 } else { REST32 }, width);
                    return self.put(&Instruction::with3(load, vector(to, width), mask, from)?);
                }
                let load = code(Does::Load, double, avx512, width);
                let mut load = Instruction::with2(load, vector(to, width), from)?;
                if self.rest {
                    load.set_op_mask(REST);
                    load.set_zeroing_masking(true);
                }
                self.put(&load)
            }
            From::One(place) => {
                let from = self.memory(place, size, false)?;
                let spread = code(Does::Spread, double, avx512, width);
                self.put(&Instruction::with2(spread, vector(to, width), from)?)
            }
            From::Number(_) => {
                let place = self.numbers[value].unwrap_or(0) as i64;
                let from = MemoryOperand::with_base_displ_size(Register::RIP, place, 8);
                let spread = match scalar {
                    true => single(double, avx512),
                    false => code(Does::Spread, double, avx512, width),
                };
                self.put(&Instruction::with2(spread, vector(to, width), from)?)
            }
            From::Does(..) => Ok(()),
        }
    }

    /// Bytes of truth into a mask. The vector register with the highest number is free for this.
    fn truth(&mut self, to: u8, from: MemoryOperand, one: bool) -> Emitted<()> {
        let through = vector(31, 16);
        let load = match (one && self.it.lanes > 1, self.rest || self.it.lanes == 1) {
            (true, _) => Instruction::with2(Code::EVEX_Vpbroadcastb_xmm_k1z_xmmm8, through, from)?,
            (false, true) => {
                let mut load =
                    Instruction::with2(Code::EVEX_Vmovdqu8_xmm_k1z_xmmm128, through, from)?;
                load.set_op_mask(REST);
                load.set_zeroing_masking(true);
                load
            }
            (false, false) if self.it.lanes == 8 => {
                Instruction::with2(Code::EVEX_Vmovq_xmm_xmmm64, through, from)?
            }
            (false, false) => {
                Instruction::with2(Code::EVEX_Vmovdqu8_xmm_k1z_xmmm128, through, from)?
            }
        };
        self.put(&load)?;
        let test = Code::EVEX_Vptestmb_kr_k1_xmm_xmmm128;
        self.put(&Instruction::with3(test, mask(to), through, through)?)
    }

    fn store(&mut self, value: usize, from: u8, place: Ref) -> Emitted<()> {
        let lane = self.it.body.values[value].lane;
        let (double, avx512) = (lane == Lane::F64, self.it.set == Set::Avx512);
        if lane == Lane::Mask {
            let through = vector(31, 16);
            let ones = MemoryOperand::with_base_displ_size(Register::RIP, self.ones as i64, 8);
            let mut load = Instruction::with2(Code::EVEX_Vmovdqu8_xmm_k1z_xmmm128, through, ones)?;
            load.set_op_mask(mask(from));
            load.set_zeroing_masking(true);
            self.put(&load)?;
            let to = self.memory(place, 1, true)?;
            let store = match (self.rest || self.it.lanes == 1, self.it.lanes) {
                (true, _) => {
                    let code = Code::EVEX_Vmovdqu8_xmmm128_k1z_xmm;
                    let mut store = Instruction::with2(code, to, through)?;
                    store.set_op_mask(REST);
                    store
                }
                (false, 8) => Instruction::with2(Code::EVEX_Vmovq_xmmm64_xmm, to, through)?,
                (false, _) => Instruction::with2(Code::EVEX_Vmovdqu8_xmmm128_k1z_xmm, to, through)?,
            };
            return self.put(&store);
        }
        let width = self.width(lane);
        let to = self.memory(place, if double { 8 } else { 4 }, true)?;
        if self.it.lanes == 1 {
            let store = match (double, avx512) {
                (false, true) => Code::EVEX_Vmovss_m32_k1_xmm,
                (true, true) => Code::EVEX_Vmovsd_m64_k1_xmm,
                (false, false) => Code::VEX_Vmovss_m32_xmm,
                (true, false) => Code::VEX_Vmovsd_m64_xmm,
            };
            return self.put(&Instruction::with2(store, to, vector(from, 16))?);
        }
        if self.rest && !avx512 {
            let store = if double {
                pick(width, Code::VEX_Vmaskmovpd_m256_ymm_ymm, Code::VEX_Vmaskmovpd_m128_xmm_xmm)
            } else {
                pick(width, Code::VEX_Vmaskmovps_m256_ymm_ymm, Code::VEX_Vmaskmovps_m128_xmm_xmm)
            };
            let mask = vector(if double { REST64 } else { REST32 }, width);
            return self.put(&Instruction::with3(store, to, mask, vector(from, width))?);
        }
        // A whole line, or two halves of one after the other.
        if !self.rest && self.it.streamed.contains(&place.entry) && width >= 32 {
            let store = match (avx512, width) {
                (true, 64) => Code::EVEX_Vmovntps_m512_zmm,
                (true, _) => Code::EVEX_Vmovntps_m256_ymm,
                (false, _) => Code::VEX_Vmovntps_m256_ymm,
            };
            return self.put(&Instruction::with2(store, to, vector(from, width))?);
        }
        let store = code(Does::Store, double, avx512, width);
        let mut store = Instruction::with2(store, to, vector(from, width))?;
        if self.rest {
            store.set_op_mask(REST);
        }
        self.put(&store)
    }

    /// Writes a register down, or brings it back.
    fn spill(&mut self, value: usize, register: u8, place: usize, down: bool) -> Emitted<()> {
        let size = if self.it.lanes == 1 { 16 } else { 64 };
        let place = Ref { disp: self.it.spill.disp + (place * size) as u32, ..self.it.spill };
        let memory = self.memory(place, 1, false)?;
        if self.is_mask(value) {
            let register = mask(register);
            return self.put(&match down {
                true => Instruction::with2(Code::VEX_Kmovw_m16_kr, memory, register)?,
                false => Instruction::with2(Code::VEX_Kmovw_kr_km16, register, memory)?,
            });
        }
        let lane = self.it.body.values[value].lane;
        let width =
            if lane == Lane::Mask { self.width(Lane::F32).max(32) } else { self.width(lane) };
        let avx512 = self.it.set == Set::Avx512;
        let register = vector(register, width);
        self.put(&match down {
            true => Instruction::with2(code(Does::Store, false, avx512, width), memory, register)?,
            false => Instruction::with2(code(Does::Load, false, avx512, width), register, memory)?,
        })
    }

    fn compute(&mut self, value: usize, to: u8, from: [u8; 3]) -> Emitted<()> {
        let it = self.it;
        let From::Does(micro, of, count) = it.body.values[value].from else { return Ok(()) };
        let avx512 = it.set == Set::Avx512;
        // Masks take the width of what they are made from, or made for.
        let lane = of[..count]
            .iter()
            .chain([&value])
            .map(|&v| it.body.values[v].lane)
            .max_by_key(|lane| match lane {
                Lane::Mask => 0,
                Lane::F32 => 1,
                Lane::F64 => 2,
            })
            .unwrap_or(Lane::F32);
        let double = lane == Lane::F64;
        let width = self.width(lane);
        let v = |n: u8| vector(n, width);
        let [a, b, c] = from;
        let two = |does| code(does, double, avx512, width);
        let plain =
            |does| -> Emitted<Instruction> { Instruction::with3(two(does), v(to), v(a), v(b)) };
        let instruction = match micro {
            Micro::Add => plain(Does::Add)?,
            Micro::Sub => plain(Does::Sub)?,
            Micro::Mul => plain(Does::Mul)?,
            Micro::Div => plain(Does::Div)?,
            Micro::And => plain(Does::And)?,
            Micro::Or => plain(Does::Or)?,
            Micro::Xor => plain(Does::Xor)?,
            Micro::Max => return self.extreme(Does::Max, double, width, to, a, b),
            Micro::Min => return self.extreme(Does::Min, double, width, to, a, b),
            Micro::Sqrt => Instruction::with2(two(Does::Sqrt), v(to), v(a))?,
            Micro::Round(how) => Instruction::with3(two(Does::Round), v(to), v(a), i32::from(how))?,
            Micro::Compare(test) => {
                let to = if avx512 { mask(to) } else { v(to) };
                Instruction::with4(two(Does::Compare), to, v(a), v(b), i32::from(test))?
            }
            Micro::Select if avx512 => {
                let mut select = Instruction::with3(two(Does::Select), v(to), v(c), v(b))?;
                select.set_op_mask(mask(a));
                select
            }
            Micro::Select => Instruction::with4(two(Does::Select), v(to), v(c), v(b), v(a))?,
            Micro::Where if avx512 => {
                let mut select = Instruction::with2(two(Does::Load), v(to), v(b))?;
                select.set_op_mask(mask(a));
                select.set_zeroing_masking(true);
                select
            }
            Micro::Where => plain(Does::And)?,
            Micro::Both => masks(Code::VEX_Kandw_kr_kr_kr, to, a, b)?,
            Micro::Either => masks(Code::VEX_Korw_kr_kr_kr, to, a, b)?,
            Micro::Differ => masks(Code::VEX_Kxorw_kr_kr_kr, to, a, b)?,
            Micro::Without => masks(Code::VEX_Kandnw_kr_kr_kr, to, a, b)?,
            Micro::Not => Instruction::with2(Code::VEX_Knotw_kr_kr, mask(to), mask(a))?,
            Micro::Widen => {
                let narrow = vector(a, self.width(Lane::F32));
                let wide = self.width(Lane::F64);
                let code = code(Does::Widen, true, avx512, wide);
                Instruction::with2(code, vector(to, wide), narrow)?
            }
            Micro::Narrow => {
                let wide = self.width(Lane::F64);
                let code = code(Does::Narrow, true, avx512, wide);
                let narrow = vector(to, self.width(Lane::F32));
                Instruction::with2(code, narrow, vector(a, wide))?
            }
        };
        self.put(&instruction)
    }

    /// The larger or smaller; the first operand where that is NaN. The instruction gives the second where either is.
    fn extreme(
        &mut self,
        does: Does,
        double: bool,
        width: usize,
        to: u8,
        a: u8,
        b: u8,
    ) -> Emitted<()> {
        const UNORDERED: i32 = 3;
        const ORDERED: i32 = 7;
        let avx512 = self.it.set == Set::Avx512;
        let (extreme, compare) =
            (code(does, double, avx512, width), code(Does::Compare, double, avx512, width));
        let v = |n: u8| vector(n, width);
        if !avx512 {
            let [most, nan] = TEMPORARY.map(v);
            self.put(&Instruction::with4(compare, nan, v(a), v(a), UNORDERED)?)?;
            self.put(&Instruction::with3(extreme, most, v(a), v(b))?)?;
            let select = code(Does::Select, double, false, width);
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
        let mut keep = Instruction::with2(code(Does::Load, double, true, width), v(to), v(a))?;
        keep.set_op_mask(MASK);
        self.put(&keep)
    }
}

impl Emitter {
    /// Fills up to where a loop begins well.
    fn align_with_nops(&mut self) {
        while !self.at.is_multiple_of(32) {
            self.bytes(&[0x90]);
        }
    }
}

fn masks(code: Code, to: u8, a: u8, b: u8) -> Emitted<Instruction> {
    Instruction::with3(code, mask(to), mask(a), mask(b))
}

/// The load of one element into the lowest lane.
fn single(double: bool, avx512: bool) -> Code {
    match (double, avx512) {
        (false, true) => Code::EVEX_Vmovss_xmm_k1z_m32,
        (true, true) => Code::EVEX_Vmovsd_xmm_k1z_m64,
        (false, false) => Code::VEX_Vmovss_xmm_m32,
        (true, false) => Code::VEX_Vmovsd_xmm_m64,
    }
}

fn pick(width: usize, wide: Code, narrow: Code) -> Code {
    if width == 32 { wide } else { narrow }
}

/// The vector register with a number, of so many bytes.
fn vector(number: u8, bytes: usize) -> Register {
    let first = match bytes {
        64 => Register::ZMM0,
        32 => Register::YMM0,
        _ => Register::XMM0,
    };
    first + u32::from(number)
}

fn mask(number: u8) -> Register {
    Register::K0 + u32::from(number)
}
