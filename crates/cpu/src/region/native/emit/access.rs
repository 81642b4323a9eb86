//! Loads, stores and spills.

use super::{Emitted, InstructionSet, LoopEmitter, REST, REST32, REST64, mask, vector};
use crate::region::native::micro::{Lane, ValueOrigin};
use crate::region::native::opcodes::{Opcode, code};
use crate::region::plan::TableRef;
use iced_x86::{Code, Instruction, MemoryOperand, Register};

impl LoopEmitter<'_, '_> {
    fn is_mask(&self, value: usize) -> bool {
        self.it.set == InstructionSet::Avx512 && self.it.body.values[value].lane == Lane::Mask
    }

    /// Loads a value that is in memory.
    pub(super) fn fetch(&mut self, value: usize, to: u8) -> Emitted<()> {
        let lane = self.it.body.values[value].lane;
        let (double, avx512) = (lane.is_double(), self.it.set == InstructionSet::Avx512);
        let size = if double { 8 } else { 4 };
        let width = self.width(lane);
        let scalar = self.it.lanes == 1;
        match self.it.body.values[value].from {
            ValueOrigin::Elements(place) if lane == Lane::Mask && !avx512 => {
                self.fetch_lanes(to, place, false)
            }
            ValueOrigin::One(place) if lane == Lane::Mask && !avx512 => {
                self.fetch_lanes(to, place, true)
            }
            ValueOrigin::Elements(place) if lane == Lane::Mask => {
                let from = self.memory(place, 1, true)?;
                self.truth(to, from, false)
            }
            ValueOrigin::One(place) if lane == Lane::Mask => {
                let from = self.memory(place, 1, false)?;
                self.truth(to, from, true)
            }
            ValueOrigin::Elements(place) | ValueOrigin::One(place) if scalar => {
                let from = self.memory(place, size, false)?;
                self.put(&Instruction::with2(single(double, avx512), vector(to, 16), from)?)
            }
            ValueOrigin::Elements(place) => {
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
                let load = code(Opcode::Load, double, avx512, width);
                let mut load = Instruction::with2(load, vector(to, width), from)?;
                if self.rest {
                    load.set_op_mask(REST);
                    load.set_zeroing_masking(true);
                }
                self.put(&load)
            }
            ValueOrigin::One(place) => {
                let from = self.memory(place, size, false)?;
                let spread = code(Opcode::Spread, double, avx512, width);
                self.put(&Instruction::with2(spread, vector(to, width), from)?)
            }
            ValueOrigin::Number(_) => {
                let place = self.numbers[value].unwrap_or(0) as i64;
                let from = MemoryOperand::with_base_displ_size(Register::RIP, place, 8);
                let spread = match scalar {
                    true => single(double, avx512),
                    false => code(Opcode::Spread, double, avx512, width),
                };
                self.put(&Instruction::with2(spread, vector(to, width), from)?)
            }
            ValueOrigin::Computed(..) => Ok(()),
        }
    }

    /// Converts boolean bytes to a mask. The vector register with the highest number is free for
    /// this.
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

    /// Writes a result.
    pub(super) fn store(&mut self, value: usize, from: u8, place: TableRef) -> Emitted<()> {
        let lane = self.it.body.values[value].lane;
        let (double, avx512) = (lane.is_double(), self.it.set == InstructionSet::Avx512);
        if lane == Lane::Mask && !avx512 {
            return self.store_lanes(from, place);
        }
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
        let store = code(Opcode::Store, double, avx512, width);
        let mut store = Instruction::with2(store, to, vector(from, width))?;
        if self.rest {
            store.set_op_mask(REST);
        }
        self.put(&store)
    }

    /// Spills a register, or reloads it.
    pub(super) fn spill(
        &mut self,
        value: usize,
        register: u8,
        place: usize,
        down: bool,
    ) -> Emitted<()> {
        let size = if self.it.lanes == 1 { 16 } else { 64 };
        let place = TableRef { disp: self.it.spill.disp + (place * size) as u32, ..self.it.spill };
        let memory = self.memory(place, 1, false)?;
        if self.is_mask(value) {
            let register = mask(register);
            return self.put(&match down {
                true => Instruction::with2(Code::VEX_Kmovw_m16_kr, memory, register)?,
                false => Instruction::with2(Code::VEX_Kmovw_kr_km16, register, memory)?,
            });
        }
        let lane = self.it.body.values[value].lane;
        let width = self.width(lane);
        let avx512 = self.it.set == InstructionSet::Avx512;
        let register = vector(register, width);
        self.put(&match down {
            true => {
                Instruction::with2(code(Opcode::Store, false, avx512, width), memory, register)?
            }
            false => {
                Instruction::with2(code(Opcode::Load, false, avx512, width), register, memory)?
            }
        })
    }
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
