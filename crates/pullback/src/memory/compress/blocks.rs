//! Eight bits for each element, and a scale for each block of 64.
//!
//! An element is an integer from −127 to 127 times the scale of its block, which is 1/127 of
//! the largest magnitude there. So the error is at most half a scale. A block that this does not
//! fit, because something in it is not finite or too large for the op that saves it, or because the
//! scale or the largest element would leave the range, has NaN for its scale and its elements
//! stored separately.

use super::pieces::{PIECE, filled, made_of};
use crate::backend::{HostElement, elements, elements_mut, with_host_bytes};
use crate::memory::piece::dense_from;
use crate::{DType, Device, Error, Result, Tensor, bf16, f16};

const BLOCK: usize = 64;
/// Blocks of a piece.
const PIECE_BLOCKS: usize = PIECE / BLOCK;
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
    let encode = |values: &[T]| made_of(values.len(), |at| Some(Encoded::of(&values[at], reach)));
    let pieces = with_host_bytes(x, |bytes| elements::<T>(T::DTYPE, bytes).and_then(encode))??;
    let parts = vec![
        joined(&pieces, |piece| &piece.codes),
        joined(&pieces, |piece| &piece.scales),
        joined(&pieces, |piece| &piece.whole),
    ];
    let bytes: usize = parts.iter().map(|p| p.spec().bytes()).sum();
    (bytes < x.spec().bytes()).then_some(parts)
}

/// One part of all pieces, one after the other.
fn joined<P, T: HostElement>(pieces: &[P], part: impl Fn(&P) -> &Vec<T>) -> Tensor {
    let all: Vec<T> = pieces.iter().flat_map(part).copied().collect();
    Tensor::from_vec(&all, [all.len()])
}

/// What is kept of some blocks.
struct Encoded<T: BlockElement> {
    codes: Vec<u8>,
    scales: Vec<T::Scale>,
    whole: Vec<T>,
}

impl<T: BlockElement> Encoded<T> {
    fn of(values: &[T], reach: f64) -> Encoded<T> {
        let count = values.len().div_ceil(BLOCK);
        let mut made = Encoded {
            codes: Vec::with_capacity(values.len()),
            scales: Vec::with_capacity(count),
            whole: Vec::new(),
        };
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
                    made.codes.extend(block.iter().map(code));
                    made.scales.push(scale);
                }
                None => {
                    made.codes.extend(std::iter::repeat_n(0, block.len()));
                    made.scales.push(T::scale(f64::NAN));
                    made.whole.extend_from_slice(block);
                }
            }
        }
        made
    }
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
    // Which of the whole blocks is the first of each piece.
    let mut firsts = Vec::with_capacity(scales.len() / PIECE_BLOCKS + 1);
    let mut before = 0;
    for piece in scales.chunks(PIECE_BLOCKS) {
        firsts.push(before);
        before += piece.iter().filter(|&&scale| Into::<f64>::into(scale).is_nan()).count();
    }
    with_host_bytes(codes, |codes| {
        dense_from(Device::Cpu, T::DTYPE, len, |out| {
            let gone = || Error::gradient("compress", "a saved value has another dtype");
            let out = elements_mut::<T>(T::DTYPE, out).ok_or_else(gone)?;
            let fill = |piece: usize, out: &mut [T]| {
                let codes = codes.get(piece * PIECE..)?;
                let scales = scales.get(piece * PIECE_BLOCKS..)?;
                let mut whole = whole.chunks(BLOCK).skip(*firsts.get(piece)?);
                decode_blocks(out, codes, scales, &mut whole)
            };
            filled(out, fill).ok_or_else(gone)
        })
    })
}

/// Some blocks from their codes, scales, and the next blocks that were kept whole.
fn decode_blocks<'a, T: BlockElement>(
    out: &mut [T],
    codes: &[u8],
    scales: &[T::Scale],
    whole: &mut impl Iterator<Item = &'a [T]>,
) -> Option<()> {
    for ((out, codes), &scale) in out.chunks_mut(BLOCK).zip(codes.chunks(BLOCK)).zip(scales) {
        let scale: f64 = scale.into();
        if scale.is_nan() {
            out.copy_from_slice(whole.next().filter(|block| block.len() == out.len())?);
            continue;
        }
        for (v, &code) in out.iter_mut().zip(codes) {
            *v = T::rounded(f64::from(code as i8) * scale);
        }
    }
    Some(())
}
