//! Eight bits for each element, and a scale for each block of 64.
//!
//! An element is an integer from −127 to 127 times the scale of its block, which is 1/127 of
//! the largest magnitude there. So the error is at most half a scale. A block that this does not
//! fit, because something in it is not finite or too large for the op that saves it, or because the
//! scale or the largest element would leave the range, has NaN for its scale and its elements
//! stored separately.

use crate::backend::{HostElement, elements, elements_mut, with_host_bytes};
use crate::memory::piece::dense_from;
use crate::{DType, Device, Error, Result, Tensor, bf16, f16};

const BLOCK: usize = 64;
const LARGEST_CODE: f64 = 127.0;
/// Added to a small number, this leaves its nearest integer in the lowest bits.
const ROUNDER: f64 = 1.5 * (1u64 << 52) as f64;

trait BlockElement: HostElement + Into<f64> {
    /// What a scale is stored as, and the smallest and largest one that is.
    type Scale: HostElement + Into<f64>;
    const RANGE: [f64; 2];
    fn scale(scale: f64) -> Self::Scale;
    fn rounded(value: f64) -> Self;
}

macro_rules! reals {
    ($($type:ident, $scale:ident, $from:expr;)*) => {$(
        impl BlockElement for $type {
            type Scale = $scale;
            const RANGE: [f64; 2] = [$scale::MIN_POSITIVE as f64, $scale::MAX as f64];
            #[inline(always)]
            fn scale(scale: f64) -> $scale {
                scale as $scale
            }
            #[inline(always)]
            fn rounded(value: f64) -> $type {
                let from: fn(f64) -> $type = $from;
                from(value)
            }
        }
    )*};
}

reals! {
    f64, f64, |v| v;
    f32, f32, |v| v as f32;
    bf16, f32, bf16::from_f64;
    f16, f32, f16::from_f64;
}

/// Codes, scales, and the blocks that are kept whole, among them those in which a magnitude is
/// above `reach`; `None` where that would not be less.
pub(super) fn encode(x: &Tensor, reach: f64) -> Option<Vec<Tensor>> {
    match x.dtype() {
        DType::F64 => encoded::<f64>(x, reach),
        DType::F32 => encoded::<f32>(x, reach),
        DType::BF16 => encoded::<bf16>(x, reach),
        DType::F16 => encoded::<f16>(x, reach),
        DType::I64 | DType::I32 | DType::U8 | DType::Bool => None,
    }
}

fn encoded<T: BlockElement>(x: &Tensor, reach: f64) -> Option<Vec<Tensor>> {
    let count = x.len().div_ceil(BLOCK);
    let mut codes = Vec::with_capacity(x.len());
    let (mut scales, mut whole) = (Vec::with_capacity(count), Vec::new());
    let encode = |values: &[T]| {
        for block in values.chunks(BLOCK) {
            match scale_of(block, reach) {
                Some(scale) => {
                    let stored: f64 = scale.into();
                    let per = if stored == 0.0 { 0.0 } else { 1.0 / stored };
                    let code = |&v: &T| {
                        let v: f64 = v.into();
                        // A rounded scale may put the largest element a little above.
                        ((v * per).clamp(-LARGEST_CODE, LARGEST_CODE) + ROUNDER).to_bits() as u8
                    };
                    codes.extend(block.iter().map(code));
                    scales.push(scale);
                }
                None => {
                    codes.extend(std::iter::repeat_n(0, block.len()));
                    scales.push(T::scale(f64::NAN));
                    whole.extend_from_slice(block);
                }
            }
        }
    };
    with_host_bytes(x, |bytes| elements::<T>(T::DTYPE, bytes).map(encode))??;
    let (codes, scales, whole) = (
        Tensor::from_vec(&codes, [codes.len()]),
        Tensor::from_vec(&scales, [scales.len()]),
        Tensor::from_vec(&whole, [whole.len()]),
    );
    let parts = vec![codes, scales, whole];
    let bytes: usize = parts.iter().map(|p| p.spec().bytes()).sum();
    (bytes < x.spec().bytes()).then_some(parts)
}

/// The scale of a block, if it has one.
fn scale_of<T: BlockElement>(block: &[T], reach: f64) -> Option<T::Scale> {
    let (mut largest, mut finite) = (0f64, true);
    for &v in block {
        let v: f64 = v.into();
        finite &= v.abs() < f64::INFINITY;
        largest = largest.max(v.abs());
    }
    let scale = T::scale(largest / LARGEST_CODE);
    let stored: f64 = scale.into();
    let back: f64 = T::rounded(stored * LARGEST_CODE).into();
    let fits = (T::RANGE[0]..T::RANGE[1]).contains(&stored) && back.is_finite();
    (finite && largest <= reach && (largest == 0.0 || fits)).then_some(scale)
}

/// The value from its codes, its scales and its whole blocks.
pub(super) fn decode(parts: &[Tensor], dtype: DType, len: usize) -> Result<Tensor> {
    let made = match dtype {
        DType::F64 => decoded::<f64>(parts, len),
        DType::F32 => decoded::<f32>(parts, len),
        DType::BF16 => decoded::<bf16>(parts, len),
        DType::F16 => decoded::<f16>(parts, len),
        DType::I64 | DType::I32 | DType::U8 | DType::Bool => None,
    };
    made.unwrap_or_else(|| {
        Err(Error::gradient("compress", "the codes of a saved value were freed"))
    })
}

fn decoded<T: BlockElement>(parts: &[Tensor], len: usize) -> Option<Result<Tensor>> {
    let [codes, scales, whole] = parts else { return None };
    let scales = scales.to_vec::<T::Scale>();
    let whole = whole.to_vec::<T>();
    with_host_bytes(codes, |codes| {
        dense_from(Device::Cpu, T::DTYPE, len, |out| {
            let gone = || Error::gradient("compress", "a saved value has another dtype");
            let out = elements_mut::<T>(T::DTYPE, out).ok_or_else(gone)?;
            let mut whole = whole.chunks(BLOCK);
            for ((out, codes), &scale) in
                out.chunks_mut(BLOCK).zip(codes.chunks(BLOCK)).zip(&scales)
            {
                let scale: f64 = scale.into();
                if scale.is_nan() {
                    let block = whole.next().filter(|b| b.len() == out.len()).ok_or_else(gone)?;
                    out.copy_from_slice(block);
                    continue;
                }
                for (v, &code) in out.iter_mut().zip(codes) {
                    *v = T::rounded(f64::from(code as i8) * scale);
                }
            }
            Ok(())
        })
    })
}
