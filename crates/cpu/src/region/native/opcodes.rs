//! The instruction of each operation, by register width.
//!
//! The columns are registers of 512, 256 and 128 bits under AVX-512, and of 256 and 128 under AVX2.
//! A conversion is listed under the width of its wider side.

use iced_x86::Code;

/// The operation of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opcode {
    Add,
    Sub,
    Mul,
    Div,
    Max,
    Min,
    And,
    Or,
    Xor,
    Sqrt,
    Round,
    Compare,
    Select,
    Load,
    Store,
    Spread,
    Widen,
    Narrow,
    /// a·b + c into a, and into c.
    Fma213,
    Fma231,
    Fnma213,
    Fnma231,
    Fms213,
    Fms231,
    WordAdd,
    WordSub,
    Left,
    Right,
    FromWord,
}

/// The column of a width in bytes.
fn column(avx512: bool, bytes: usize) -> usize {
    match (avx512, bytes) {
        (true, 64) => 0,
        (true, 32) => 1,
        (true, _) => 2,
        (false, 32) => 3,
        (false, _) => 4,
    }
}

/// The instruction for f32 (or f64) registers of this many bytes.
#[rustfmt::skip]
pub(super) fn code(does: Opcode, double: bool, avx512: bool, bytes: usize) -> Code {
    use Code::*;
    let row: [Code; 5] = match (does, double) {
        (Opcode::Add, false) => [EVEX_Vaddps_zmm_k1z_zmm_zmmm512b32_er, EVEX_Vaddps_ymm_k1z_ymm_ymmm256b32, EVEX_Vaddps_xmm_k1z_xmm_xmmm128b32, VEX_Vaddps_ymm_ymm_ymmm256, VEX_Vaddps_xmm_xmm_xmmm128],
        (Opcode::Add, true) => [EVEX_Vaddpd_zmm_k1z_zmm_zmmm512b64_er, EVEX_Vaddpd_ymm_k1z_ymm_ymmm256b64, EVEX_Vaddpd_xmm_k1z_xmm_xmmm128b64, VEX_Vaddpd_ymm_ymm_ymmm256, VEX_Vaddpd_xmm_xmm_xmmm128],
        (Opcode::Sub, false) => [EVEX_Vsubps_zmm_k1z_zmm_zmmm512b32_er, EVEX_Vsubps_ymm_k1z_ymm_ymmm256b32, EVEX_Vsubps_xmm_k1z_xmm_xmmm128b32, VEX_Vsubps_ymm_ymm_ymmm256, VEX_Vsubps_xmm_xmm_xmmm128],
        (Opcode::Sub, true) => [EVEX_Vsubpd_zmm_k1z_zmm_zmmm512b64_er, EVEX_Vsubpd_ymm_k1z_ymm_ymmm256b64, EVEX_Vsubpd_xmm_k1z_xmm_xmmm128b64, VEX_Vsubpd_ymm_ymm_ymmm256, VEX_Vsubpd_xmm_xmm_xmmm128],
        (Opcode::Mul, false) => [EVEX_Vmulps_zmm_k1z_zmm_zmmm512b32_er, EVEX_Vmulps_ymm_k1z_ymm_ymmm256b32, EVEX_Vmulps_xmm_k1z_xmm_xmmm128b32, VEX_Vmulps_ymm_ymm_ymmm256, VEX_Vmulps_xmm_xmm_xmmm128],
        (Opcode::Mul, true) => [EVEX_Vmulpd_zmm_k1z_zmm_zmmm512b64_er, EVEX_Vmulpd_ymm_k1z_ymm_ymmm256b64, EVEX_Vmulpd_xmm_k1z_xmm_xmmm128b64, VEX_Vmulpd_ymm_ymm_ymmm256, VEX_Vmulpd_xmm_xmm_xmmm128],
        (Opcode::Div, false) => [EVEX_Vdivps_zmm_k1z_zmm_zmmm512b32_er, EVEX_Vdivps_ymm_k1z_ymm_ymmm256b32, EVEX_Vdivps_xmm_k1z_xmm_xmmm128b32, VEX_Vdivps_ymm_ymm_ymmm256, VEX_Vdivps_xmm_xmm_xmmm128],
        (Opcode::Div, true) => [EVEX_Vdivpd_zmm_k1z_zmm_zmmm512b64_er, EVEX_Vdivpd_ymm_k1z_ymm_ymmm256b64, EVEX_Vdivpd_xmm_k1z_xmm_xmmm128b64, VEX_Vdivpd_ymm_ymm_ymmm256, VEX_Vdivpd_xmm_xmm_xmmm128],
        (Opcode::Max, false) => [EVEX_Vmaxps_zmm_k1z_zmm_zmmm512b32_sae, EVEX_Vmaxps_ymm_k1z_ymm_ymmm256b32, EVEX_Vmaxps_xmm_k1z_xmm_xmmm128b32, VEX_Vmaxps_ymm_ymm_ymmm256, VEX_Vmaxps_xmm_xmm_xmmm128],
        (Opcode::Max, true) => [EVEX_Vmaxpd_zmm_k1z_zmm_zmmm512b64_sae, EVEX_Vmaxpd_ymm_k1z_ymm_ymmm256b64, EVEX_Vmaxpd_xmm_k1z_xmm_xmmm128b64, VEX_Vmaxpd_ymm_ymm_ymmm256, VEX_Vmaxpd_xmm_xmm_xmmm128],
        (Opcode::Min, false) => [EVEX_Vminps_zmm_k1z_zmm_zmmm512b32_sae, EVEX_Vminps_ymm_k1z_ymm_ymmm256b32, EVEX_Vminps_xmm_k1z_xmm_xmmm128b32, VEX_Vminps_ymm_ymm_ymmm256, VEX_Vminps_xmm_xmm_xmmm128],
        (Opcode::Min, true) => [EVEX_Vminpd_zmm_k1z_zmm_zmmm512b64_sae, EVEX_Vminpd_ymm_k1z_ymm_ymmm256b64, EVEX_Vminpd_xmm_k1z_xmm_xmmm128b64, VEX_Vminpd_ymm_ymm_ymmm256, VEX_Vminpd_xmm_xmm_xmmm128],
        (Opcode::And, false) => [EVEX_Vandps_zmm_k1z_zmm_zmmm512b32, EVEX_Vandps_ymm_k1z_ymm_ymmm256b32, EVEX_Vandps_xmm_k1z_xmm_xmmm128b32, VEX_Vandps_ymm_ymm_ymmm256, VEX_Vandps_xmm_xmm_xmmm128],
        (Opcode::And, true) => [EVEX_Vandpd_zmm_k1z_zmm_zmmm512b64, EVEX_Vandpd_ymm_k1z_ymm_ymmm256b64, EVEX_Vandpd_xmm_k1z_xmm_xmmm128b64, VEX_Vandpd_ymm_ymm_ymmm256, VEX_Vandpd_xmm_xmm_xmmm128],
        (Opcode::Or, false) => [EVEX_Vorps_zmm_k1z_zmm_zmmm512b32, EVEX_Vorps_ymm_k1z_ymm_ymmm256b32, EVEX_Vorps_xmm_k1z_xmm_xmmm128b32, VEX_Vorps_ymm_ymm_ymmm256, VEX_Vorps_xmm_xmm_xmmm128],
        (Opcode::Or, true) => [EVEX_Vorpd_zmm_k1z_zmm_zmmm512b64, EVEX_Vorpd_ymm_k1z_ymm_ymmm256b64, EVEX_Vorpd_xmm_k1z_xmm_xmmm128b64, VEX_Vorpd_ymm_ymm_ymmm256, VEX_Vorpd_xmm_xmm_xmmm128],
        (Opcode::Xor, false) => [EVEX_Vxorps_zmm_k1z_zmm_zmmm512b32, EVEX_Vxorps_ymm_k1z_ymm_ymmm256b32, EVEX_Vxorps_xmm_k1z_xmm_xmmm128b32, VEX_Vxorps_ymm_ymm_ymmm256, VEX_Vxorps_xmm_xmm_xmmm128],
        (Opcode::Xor, true) => [EVEX_Vxorpd_zmm_k1z_zmm_zmmm512b64, EVEX_Vxorpd_ymm_k1z_ymm_ymmm256b64, EVEX_Vxorpd_xmm_k1z_xmm_xmmm128b64, VEX_Vxorpd_ymm_ymm_ymmm256, VEX_Vxorpd_xmm_xmm_xmmm128],
        (Opcode::Sqrt, false) => [EVEX_Vsqrtps_zmm_k1z_zmmm512b32_er, EVEX_Vsqrtps_ymm_k1z_ymmm256b32, EVEX_Vsqrtps_xmm_k1z_xmmm128b32, VEX_Vsqrtps_ymm_ymmm256, VEX_Vsqrtps_xmm_xmmm128],
        (Opcode::Round, false) => [EVEX_Vrndscaleps_zmm_k1z_zmmm512b32_imm8_sae, EVEX_Vrndscaleps_ymm_k1z_ymmm256b32_imm8, EVEX_Vrndscaleps_xmm_k1z_xmmm128b32_imm8, VEX_Vroundps_ymm_ymmm256_imm8, VEX_Vroundps_xmm_xmmm128_imm8],
        (Opcode::Compare, false) => [EVEX_Vcmpps_kr_k1_zmm_zmmm512b32_imm8_sae, EVEX_Vcmpps_kr_k1_ymm_ymmm256b32_imm8, EVEX_Vcmpps_kr_k1_xmm_xmmm128b32_imm8, VEX_Vcmpps_ymm_ymm_ymmm256_imm8, VEX_Vcmpps_xmm_xmm_xmmm128_imm8],
        (Opcode::Select, false) => [EVEX_Vblendmps_zmm_k1z_zmm_zmmm512b32, EVEX_Vblendmps_ymm_k1z_ymm_ymmm256b32, EVEX_Vblendmps_xmm_k1z_xmm_xmmm128b32, VEX_Vblendvps_ymm_ymm_ymmm256_ymm, VEX_Vblendvps_xmm_xmm_xmmm128_xmm],
        (Opcode::Load, false) => [EVEX_Vmovups_zmm_k1z_zmmm512, EVEX_Vmovups_ymm_k1z_ymmm256, EVEX_Vmovups_xmm_k1z_xmmm128, VEX_Vmovups_ymm_ymmm256, VEX_Vmovups_xmm_xmmm128],
        (Opcode::Store, false) => [EVEX_Vmovups_zmmm512_k1z_zmm, EVEX_Vmovups_ymmm256_k1z_ymm, EVEX_Vmovups_xmmm128_k1z_xmm, VEX_Vmovups_ymmm256_ymm, VEX_Vmovups_xmmm128_xmm],
        (Opcode::Sqrt, true) => [EVEX_Vsqrtpd_zmm_k1z_zmmm512b64_er, EVEX_Vsqrtpd_ymm_k1z_ymmm256b64, EVEX_Vsqrtpd_xmm_k1z_xmmm128b64, VEX_Vsqrtpd_ymm_ymmm256, VEX_Vsqrtpd_xmm_xmmm128],
        (Opcode::Round, true) => [EVEX_Vrndscalepd_zmm_k1z_zmmm512b64_imm8_sae, EVEX_Vrndscalepd_ymm_k1z_ymmm256b64_imm8, EVEX_Vrndscalepd_xmm_k1z_xmmm128b64_imm8, VEX_Vroundpd_ymm_ymmm256_imm8, VEX_Vroundpd_xmm_xmmm128_imm8],
        (Opcode::Compare, true) => [EVEX_Vcmppd_kr_k1_zmm_zmmm512b64_imm8_sae, EVEX_Vcmppd_kr_k1_ymm_ymmm256b64_imm8, EVEX_Vcmppd_kr_k1_xmm_xmmm128b64_imm8, VEX_Vcmppd_ymm_ymm_ymmm256_imm8, VEX_Vcmppd_xmm_xmm_xmmm128_imm8],
        (Opcode::Select, true) => [EVEX_Vblendmpd_zmm_k1z_zmm_zmmm512b64, EVEX_Vblendmpd_ymm_k1z_ymm_ymmm256b64, EVEX_Vblendmpd_xmm_k1z_xmm_xmmm128b64, VEX_Vblendvpd_ymm_ymm_ymmm256_ymm, VEX_Vblendvpd_xmm_xmm_xmmm128_xmm],
        (Opcode::Load, true) => [EVEX_Vmovupd_zmm_k1z_zmmm512, EVEX_Vmovupd_ymm_k1z_ymmm256, EVEX_Vmovupd_xmm_k1z_xmmm128, VEX_Vmovupd_ymm_ymmm256, VEX_Vmovupd_xmm_xmmm128],
        (Opcode::Store, true) => [EVEX_Vmovupd_zmmm512_k1z_zmm, EVEX_Vmovupd_ymmm256_k1z_ymm, EVEX_Vmovupd_xmmm128_k1z_xmm, VEX_Vmovupd_ymmm256_ymm, VEX_Vmovupd_xmmm128_xmm],
        (Opcode::Spread, false) => [EVEX_Vbroadcastss_zmm_k1z_xmmm32, EVEX_Vbroadcastss_ymm_k1z_xmmm32, EVEX_Vbroadcastss_xmm_k1z_xmmm32, VEX_Vbroadcastss_ymm_m32, VEX_Vbroadcastss_xmm_m32],
        (Opcode::Spread, true) => [EVEX_Vbroadcastsd_zmm_k1z_xmmm64, EVEX_Vbroadcastsd_ymm_k1z_xmmm64, EVEX_Vmovddup_xmm_k1z_xmmm64, VEX_Vbroadcastsd_ymm_m64, VEX_Vmovddup_xmm_xmmm64],
        (Opcode::Widen, _) => [EVEX_Vcvtps2pd_zmm_k1z_ymmm256b32_sae, EVEX_Vcvtps2pd_ymm_k1z_xmmm128b32, EVEX_Vcvtps2pd_xmm_k1z_xmmm64b32, VEX_Vcvtps2pd_ymm_xmmm128, VEX_Vcvtps2pd_xmm_xmmm64],
        (Opcode::Narrow, _) => [EVEX_Vcvtpd2ps_ymm_k1z_zmmm512b64_er, EVEX_Vcvtpd2ps_xmm_k1z_ymmm256b64, EVEX_Vcvtpd2ps_xmm_k1z_xmmm128b64, VEX_Vcvtpd2ps_xmm_ymmm256, VEX_Vcvtpd2ps_xmm_xmmm128],
        (Opcode::Fma213, _) => [EVEX_Vfmadd213ps_zmm_k1z_zmm_zmmm512b32_er, EVEX_Vfmadd213ps_ymm_k1z_ymm_ymmm256b32, EVEX_Vfmadd213ps_xmm_k1z_xmm_xmmm128b32, VEX_Vfmadd213ps_ymm_ymm_ymmm256, VEX_Vfmadd213ps_xmm_xmm_xmmm128],
        (Opcode::Fma231, _) => [EVEX_Vfmadd231ps_zmm_k1z_zmm_zmmm512b32_er, EVEX_Vfmadd231ps_ymm_k1z_ymm_ymmm256b32, EVEX_Vfmadd231ps_xmm_k1z_xmm_xmmm128b32, VEX_Vfmadd231ps_ymm_ymm_ymmm256, VEX_Vfmadd231ps_xmm_xmm_xmmm128],
        (Opcode::Fnma213, _) => [EVEX_Vfnmadd213ps_zmm_k1z_zmm_zmmm512b32_er, EVEX_Vfnmadd213ps_ymm_k1z_ymm_ymmm256b32, EVEX_Vfnmadd213ps_xmm_k1z_xmm_xmmm128b32, VEX_Vfnmadd213ps_ymm_ymm_ymmm256, VEX_Vfnmadd213ps_xmm_xmm_xmmm128],
        (Opcode::Fnma231, _) => [EVEX_Vfnmadd231ps_zmm_k1z_zmm_zmmm512b32_er, EVEX_Vfnmadd231ps_ymm_k1z_ymm_ymmm256b32, EVEX_Vfnmadd231ps_xmm_k1z_xmm_xmmm128b32, VEX_Vfnmadd231ps_ymm_ymm_ymmm256, VEX_Vfnmadd231ps_xmm_xmm_xmmm128],
        (Opcode::Fms213, _) => [EVEX_Vfmsub213ps_zmm_k1z_zmm_zmmm512b32_er, EVEX_Vfmsub213ps_ymm_k1z_ymm_ymmm256b32, EVEX_Vfmsub213ps_xmm_k1z_xmm_xmmm128b32, VEX_Vfmsub213ps_ymm_ymm_ymmm256, VEX_Vfmsub213ps_xmm_xmm_xmmm128],
        (Opcode::Fms231, _) => [EVEX_Vfmsub231ps_zmm_k1z_zmm_zmmm512b32_er, EVEX_Vfmsub231ps_ymm_k1z_ymm_ymmm256b32, EVEX_Vfmsub231ps_xmm_k1z_xmm_xmmm128b32, VEX_Vfmsub231ps_ymm_ymm_ymmm256, VEX_Vfmsub231ps_xmm_xmm_xmmm128],
        (Opcode::WordAdd, _) => [EVEX_Vpaddd_zmm_k1z_zmm_zmmm512b32, EVEX_Vpaddd_ymm_k1z_ymm_ymmm256b32, EVEX_Vpaddd_xmm_k1z_xmm_xmmm128b32, VEX_Vpaddd_ymm_ymm_ymmm256, VEX_Vpaddd_xmm_xmm_xmmm128],
        (Opcode::WordSub, _) => [EVEX_Vpsubd_zmm_k1z_zmm_zmmm512b32, EVEX_Vpsubd_ymm_k1z_ymm_ymmm256b32, EVEX_Vpsubd_xmm_k1z_xmm_xmmm128b32, VEX_Vpsubd_ymm_ymm_ymmm256, VEX_Vpsubd_xmm_xmm_xmmm128],
        (Opcode::Left, _) => [EVEX_Vpslld_zmm_k1z_zmmm512b32_imm8, EVEX_Vpslld_ymm_k1z_ymmm256b32_imm8, EVEX_Vpslld_xmm_k1z_xmmm128b32_imm8, VEX_Vpslld_ymm_ymm_imm8, VEX_Vpslld_xmm_xmm_imm8],
        (Opcode::Right, _) => [EVEX_Vpsrad_zmm_k1z_zmmm512b32_imm8, EVEX_Vpsrad_ymm_k1z_ymmm256b32_imm8, EVEX_Vpsrad_xmm_k1z_xmmm128b32_imm8, VEX_Vpsrad_ymm_ymm_imm8, VEX_Vpsrad_xmm_xmm_imm8],
        (Opcode::FromWord, _) => [EVEX_Vcvtdq2ps_zmm_k1z_zmmm512b32_er, EVEX_Vcvtdq2ps_ymm_k1z_ymmm256b32, EVEX_Vcvtdq2ps_xmm_k1z_xmmm128b32, VEX_Vcvtdq2ps_ymm_ymmm256, VEX_Vcvtdq2ps_xmm_xmmm128],
    };
    row[column(avx512, bytes)]
}
