//! The instruction set that this process computes with: the only place that asks the processor.
//!
//! It is the highest level that the processor has, or a lower one that `PULLBACK_ISA` names. One
//! process always computes with one level (why: `simd/mod.rs`), so the answer is kept.

use pullback_ir::{Error, Result};
use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};

/// The environment variable that caps the level.
const VARIABLE: &str = "PULLBACK_ISA";

/// An instruction set that loops are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// What the target always has: SSE2 on x86-64, NEON with fused multiply-add on AArch64, scalar
    /// code in WebAssembly (vectors where the build enables `simd128`).
    Baseline,
    /// 256-bit vectors with fused multiply-add.
    Avx2,
    /// 512-bit vectors, of any element.
    Avx512,
}

impl Level {
    const ALL: [Level; 3] = [Level::Baseline, Level::Avx2, Level::Avx512];

    /// The levels that this process may use, lowest first.
    #[cfg(test)]
    pub(crate) fn available() -> &'static [Level] {
        &Level::ALL[..=level() as usize]
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Level::Baseline => "baseline",
            Level::Avx2 => "avx2",
            Level::Avx512 => "avx512",
        })
    }
}

/// The highest level of the processor.
fn detect() -> Level {
    #[cfg(target_arch = "x86_64")]
    {
        let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        // Native code also makes masks with an instruction of BMI2.
        let avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("bmi2");
        if avx2 && avx512 {
            return Level::Avx512;
        }
        if avx2 {
            return Level::Avx2;
        }
    }
    Level::Baseline
}

/// The level for what the variable says on a machine that has `highest`.
fn capped(wanted: Option<&str>, highest: Level) -> Result<Level> {
    let Some(wanted) = wanted.filter(|wanted| !wanted.is_empty()) else { return Ok(highest) };
    let known = Level::ALL.into_iter().find(|level| level.to_string() == wanted);
    match known {
        Some(level) if level <= highest => Ok(level),
        Some(level) => Err(Error::argument(
            VARIABLE,
            format!("this machine has no {level}; its highest level is {highest}"),
        )),
        None => Err(Error::argument(
            VARIABLE,
            format!("`{wanted}` is not an instruction set: baseline, avx2 and avx512 are"),
        )),
    }
}

/// The expression for a level: code for AVX2 and AVX-512 exists on x86-64 alone.
/// `by_level!(level(), avx512: a, avx2: b, baseline: c)` is there `match level() { Level::Avx512 =>
/// a, Level::Avx2 => b, Level::Baseline => c }`, and elsewhere `c`.
macro_rules! by_level {
    ($level:expr, avx512: $avx512:expr, avx2: $avx2:expr, baseline: $baseline:expr $(,)?) => {{
        #[cfg(target_arch = "x86_64")]
        let chosen = match $level {
            $crate::simd::Level::Avx512 => $avx512,
            $crate::simd::Level::Avx2 => $avx2,
            $crate::simd::Level::Baseline => $baseline,
        };
        #[cfg(not(target_arch = "x86_64"))]
        let chosen = {
            let _: $crate::simd::Level = $level;
            $baseline
        };
        chosen
    }};
}
pub(crate) use by_level;

/// The level this process computes with.
///
/// # Errors
/// If `PULLBACK_ISA` names none, or one that this machine lacks.
fn chosen() -> Result<Level> {
    let wanted = std::env::var_os(VARIABLE).map(|wanted| wanted.to_string_lossy().into_owned());
    capped(wanted.as_deref(), detect())
}

/// The level this process computes with.
///
/// # Panics
/// At the first call, if `PULLBACK_ISA` names none, or one that this machine lacks.
#[inline]
pub(crate) fn level() -> Level {
    // 0 means "not chosen yet"; racing threads store the same value.
    static CHOSEN: AtomicU8 = AtomicU8::new(0);
    match CHOSEN.load(Ordering::Relaxed) {
        1 => Level::Baseline,
        2 => Level::Avx2,
        3 => Level::Avx512,
        _ => first(&CHOSEN),
    }
}

#[cold]
fn first(kept: &AtomicU8) -> Level {
    match chosen() {
        Ok(level) => {
            kept.store(level as u8 + 1, Ordering::Relaxed);
            level
        }
        Err(error) => panic!("{error}"),
    }
}

/// Whether there are products of pairs of bf16 that are summed in f32 (`vdpbf16ps`), and the level
/// permits them.
pub(crate) fn has_bf16_products(level: Level) -> bool {
    #[cfg(target_arch = "x86_64")]
    if level == Level::Avx512 {
        return is_x86_feature_detected!("avx512bf16");
    }
    let _ = level;
    false
}

/// The instruction set that kernels are compiled for and this process uses, in words: the
/// architecture and the level, and what the processor has above it.
///
/// ```
/// let words = pullback_cpu::instruction_set().unwrap();
/// assert!(words.starts_with(std::env::consts::ARCH));
/// ```
///
/// # Errors
/// If the environment variable `PULLBACK_ISA` names no level, or one that this machine lacks.
pub fn instruction_set() -> Result<String> {
    let (level, highest) = (chosen()?, detect());
    let mut words = format!("{} {level}", std::env::consts::ARCH);
    if has_bf16_products(level) {
        words.push_str(" with bf16 products");
    }
    if level < highest {
        words.push_str(&format!(" (by {VARIABLE}; the machine has {highest})"));
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cap_is_a_level_the_machine_has() {
        assert_eq!(capped(None, Level::Avx2).ok(), Some(Level::Avx2));
        assert_eq!(capped(Some(""), Level::Avx2).ok(), Some(Level::Avx2));
        for level in Level::ALL {
            assert_eq!(capped(Some(&level.to_string()), Level::Avx512).ok(), Some(level));
        }
        let says = |wanted| capped(Some(wanted), Level::Avx2).unwrap_err().to_string();
        assert_eq!(
            says("avx512"),
            "PULLBACK_ISA: this machine has no avx512; its highest level is avx2"
        );
        assert_eq!(
            says("AVX"),
            "PULLBACK_ISA: `AVX` is not an instruction set: baseline, avx2 and avx512 are"
        );
    }

    #[test]
    fn the_level_in_use_is_shown() {
        let words = instruction_set().unwrap();
        assert!(words.contains(&level().to_string()), "{words}");
        assert!(level() <= detect());
        assert!(level() == Level::Avx512 || !has_bf16_products(level()));
    }
}
