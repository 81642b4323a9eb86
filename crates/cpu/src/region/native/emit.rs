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
//! A domain of one element has only a body, in the lowest lane of 128-bit registers: a scalar
//! program is straight-line code.

mod access;
mod compute;
mod lane_masks;
mod listing;

use super::micro::{Body, Lane, ValueOrigin};
use super::opcodes::{Opcode, code};
use super::registers::{Assigned, RegisterOp};
use crate::region::plan::TableRef;
use iced_x86::{Code, Encoder, IcedError, Instruction, MemoryOperand, Register};
use listing::Listing;
use std::ops::Range;

type Emitted<T> = Result<T, IcedError>;

/// The available instruction set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum InstructionSet {
    Avx512,
    Avx2,
}

/// Under AVX2: temporaries, and the masks of a partial register.
const TEMPORARY: [u8; 2] = [12, 13];
const REST32: u8 = 14;
const REST64: u8 = 15;
/// Under AVX-512: the mask of a partial register, and a temporary mask.
const REST: Register = Register::K1;
const MASK: Register = Register::K7;

const TABLE: Register = Register::RDI;
const LEFT: Register = Register::RSI;
const INDEX: Register = Register::RAX;
/// For pointers without an assigned register.
const POINTER: Register = Register::R11;
/// For pointers; those from the sixth on are callee-saved.
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
pub(super) struct EmittedLoop<'a> {
    pub(super) body: &'a Body,
    pub(super) assigned: &'a Assigned,
    pub(super) set: InstructionSet,
    /// Elements of an iteration; one for a scalar program.
    pub(super) lanes: usize,
    /// Whether a value has elements of eight bytes.
    pub(super) double: bool,
    /// Where spilled values are stored.
    pub(super) spill: TableRef,
    /// The table entries that are written with streaming stores.
    pub(super) streamed: Range<u32>,
}

pub(super) struct Emitter {
    encoder: Encoder,
    at: u64,
    /// The text of what is written, where it is asked for.
    listing: Option<Listing>,
}

impl Emitter {
    pub(super) fn new() -> Emitter {
        Emitter { encoder: Encoder::new(64), at: 0, listing: None }
    }

    /// One that also writes the text of every instruction.
    pub(super) fn listing() -> Emitter {
        Emitter { listing: Some(Listing::new()), ..Emitter::new() }
    }

    /// The text of all the code; empty where it was not asked for.
    pub(super) fn text(self) -> String {
        self.listing.map(Listing::text).unwrap_or_default()
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
        if let Some(listing) = &mut self.listing {
            listing.instruction(instruction);
        }
        self.at += self.encoder.encode(instruction, self.at)? as u64;
        Ok(())
    }

    fn align(&mut self, to: u64) {
        while !self.at.is_multiple_of(to) {
            self.bytes(&[0xCC]);
        }
    }
}

/// A jump whose distance is not known yet: where it is written, and the address it is relative to.
struct Jump(usize);

/// One loop being emitted.
struct LoopEmitter<'a, 'b> {
    emitter: &'a mut Emitter,
    it: &'a EmittedLoop<'b>,
    /// For each value that is a constant, its address.
    numbers: Vec<Option<u64>>,
    /// The address of the bytes of `true`.
    ones: u64,
    /// The pointers that have registers: table entries.
    pointers: Vec<u32>,
    /// Whether loads and stores are masked, for a partial register.
    rest: bool,
    patches: Vec<(usize, i32)>,
}

/// Emits a loop; returns its start, and the bytes to be patched.
pub(super) fn emit(emitter: &mut Emitter, it: &EmittedLoop) -> Emitted<(usize, Vec<(usize, i32)>)> {
    emitter.align(64);
    let mut numbers = vec![None; it.body.values.len()];
    for (v, value) in it.body.values.iter().enumerate() {
        if let ValueOrigin::Number(bits) = value.from {
            numbers[v] = Some(emitter.at);
            if let Some(listing) = &mut emitter.listing {
                listing.number(emitter.at, bits, value.lane);
            }
            emitter.bytes(&bits.to_le_bytes());
        }
    }
    let ones = emitter.at;
    emitter.bytes(&[1; 16]);
    // Loading from this, shifted by the number of remaining lanes, gives a mask of that many lanes.
    let window = emitter.at;
    if it.set == InstructionSet::Avx2 {
        emitter.bytes(&[0xFF; 32]);
        emitter.bytes(&[0; 32]);
    }
    emitter.align(64);
    let entry = emitter.at as usize;
    if let Some(listing) = &mut emitter.listing {
        listing.entry(it.lanes);
    }
    let mut writing = LoopEmitter {
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
fn pointers(it: &EmittedLoop) -> Vec<u32> {
    let mut counts: Vec<(u32, usize)> = Vec::new();
    let mut seen = |entry: u32| match counts.iter().position(|c| c.0 == entry) {
        Some(n) => counts[n].1 += 1,
        None if counts.len() < 64 => counts.push((entry, 1)),
        None => {}
    };
    for act in &it.assigned.acts {
        match *act {
            RegisterOp::Fetch { value, .. } => match it.body.values[value].from {
                ValueOrigin::Elements(at) | ValueOrigin::One(at) => seen(at.entry),
                ValueOrigin::Computed(..) | ValueOrigin::Number(_) => {}
            },
            RegisterOp::Put { to, .. } => seen(to.entry),
            RegisterOp::Save { .. } | RegisterOp::Restore { .. } => seen(it.spill.entry),
            RegisterOp::Do { .. } => {}
        }
    }
    counts.sort_by_key(|c| std::cmp::Reverse(c.1));
    counts.truncate(POINTERS.len());
    counts.into_iter().map(|c| c.0).collect()
}

fn at(base: Register, disp: i64) -> MemoryOperand {
    MemoryOperand::new(base, Register::None, 1, disp, 8, false, Register::None)
}

impl LoopEmitter<'_, '_> {
    fn function(&mut self, window: u64) -> Emitted<()> {
        let lanes = self.it.lanes as i32;
        let saved: Vec<Register> =
            POINTERS[..self.pointers.len()].iter().skip(NOT_SAVED).copied().collect();
        for &register in &saved {
            self.put(&Instruction::with1(Code::Push_r64, register)?)?;
        }
        for (entry, register) in self.pointers.clone().into_iter().zip(POINTERS) {
            let from = at(TABLE, 8 * i64::from(entry));
            self.put(&Instruction::with2(Code::Mov_r64_rm64, register, from)?)?;
        }
        if lanes == 1 {
            if self.it.set == InstructionSet::Avx512 {
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
            let to_rest = self.jump(&[0x0F, 0x82], "jb rest");
            self.emitter.align_with_nops();
            let top = self.emitter.at;
            self.label("top");
            self.acts(&acts)?;
            self.put(&Instruction::with2(Code::Add_rm64_imm32, INDEX, lanes)?)?;
            self.put(&Instruction::with2(Code::Sub_rm64_imm32, LEFT, lanes)?)?;
            let again = self.jump(&[0x0F, 0x83], "jae top");
            self.patch(again, top);
            self.land(to_rest);
            self.label("rest");
            self.put(&Instruction::with2(Code::Add_rm64_imm32, LEFT, lanes)?)?;
            let to_end = self.jump(&[0x0F, 0x84], "je done");
            self.mask(window)?;
            self.rest = true;
            self.acts(&acts)?;
            self.land(to_end);
            self.label("done");
        }
        for &register in saved.iter().rev() {
            self.put(&Instruction::with1(Code::Pop_r64, register)?)?;
        }
        self.put(&Instruction::with(Code::VEX_Vzeroupper))?;
        self.put(&Instruction::with(Code::Retnq))
    }

    /// Emits the masks of the remaining lanes.
    fn mask(&mut self, window: u64) -> Emitted<()> {
        if self.it.set == InstructionSet::Avx512 {
            self.put(&Instruction::with2(Code::Mov_r32_imm32, Register::R11D, -1i32)?)?;
            self.put(&Instruction::with3(
                Code::VEX_Bzhi_r32_rm32_r32,
                Register::R11D,
                Register::R11D,
                Register::ESI,
            )?)?;
            return self.put(&Instruction::with2(Code::VEX_Kmovw_kr_r32, REST, Register::R11D)?);
        }
        // From the middle of the window, back by the bytes of the remaining lanes.
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
            let load = code(Opcode::Load, size == 8, false, bytes);
            self.put(&Instruction::with2(load, vector(register, bytes), from)?)?;
            self.put(&Instruction::with1(Code::Neg_rm64, LEFT)?)?;
        }
        Ok(())
    }

    fn put(&mut self, instruction: &Instruction) -> Emitted<()> {
        self.emitter.put(instruction)
    }

    /// A jump by its code, and as text.
    fn jump(&mut self, code: &[u8], text: &str) -> Jump {
        if let Some(listing) = &mut self.emitter.listing {
            listing.line(text);
        }
        self.emitter.bytes(code);
        self.emitter.bytes(&[0; 4]);
        Jump(self.emitter.at as usize - 4)
    }

    fn label(&mut self, name: &str) {
        if let Some(listing) = &mut self.emitter.listing {
            listing.label(name);
        }
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
        let double = lane.is_double() || (lane == Lane::Mask && self.it.double);
        (self.it.lanes * if double { 8 } else { 4 }).max(16)
    }

    /// The base register of a table entry, loaded if it is not in a register.
    fn base(&mut self, entry: u32) -> Emitted<Register> {
        if let Some(n) = self.pointers.iter().position(|&p| p == entry) {
            return Ok(POINTERS[n]);
        }
        let from = at(TABLE, 8 * i64::from(entry));
        self.put(&Instruction::with2(Code::Mov_r64_rm64, POINTER, from)?)?;
        Ok(POINTER)
    }

    /// The element of this iteration, or the only one.
    fn memory(&mut self, place: TableRef, size: usize, moves: bool) -> Emitted<MemoryOperand> {
        let base = self.base(place.entry)?;
        let moves = moves && self.it.lanes > 1;
        let index = if moves { INDEX } else { Register::None };
        let scale = if moves { size as u32 } else { 1 };
        let disp = i64::from(place.disp);
        Ok(MemoryOperand::new(base, index, scale, disp, 8, false, Register::None))
    }

    fn acts(&mut self, acts: &[RegisterOp]) -> Emitted<()> {
        for act in acts {
            match *act {
                RegisterOp::Fetch { value, to } => self.fetch(value, to)?,
                RegisterOp::Do { value, to, from } => self.compute(value, to, from)?,
                RegisterOp::Put { value, from, to } => self.store(value, from, to)?,
                RegisterOp::Save { value, from, place } => self.spill(value, from, place, true)?,
                RegisterOp::Restore { value, to, place } => self.spill(value, to, place, false)?,
            }
        }
        Ok(())
    }
}

impl Emitter {
    /// Pads with nops to the alignment of a loop.
    fn align_with_nops(&mut self) {
        while !self.at.is_multiple_of(32) {
            self.bytes(&[0x90]);
        }
    }
}

/// The vector register with a number, of this many bytes.
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
