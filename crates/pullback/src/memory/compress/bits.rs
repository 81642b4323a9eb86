//! Values of two numbers: a bit for each element.

use super::pieces::{PIECE, filled, made_of};
use crate::backend::{HostElement, elements, with_host_bytes};
use crate::memory::piece::dense_from;
use crate::{DType, Device, Error, Result, Tensor, bf16, f16};

/// The two numbers, by their bytes, and for each element which it is.
pub(super) type Two = ([[u8; 8]; 2], Vec<u8>);

/// A value with two different elements at most. Elements are compared by their bits, so that a zero
/// keeps its sign and a NaN its payload.
pub(super) fn of_two(x: &Tensor) -> Option<Two> {
    with_host_bytes(x, |bytes| match x.dtype().size() {
        1 => two::<1>(bytes),
        2 => two::<2>(bytes),
        4 => two::<4>(bytes),
        _ => two::<8>(bytes),
    })?
}

fn two<const N: usize>(bytes: &[u8]) -> Option<Two> {
    let (all, _) = bytes.as_chunks::<N>();
    let &low = all.first()?;
    let high = all.iter().copied().find(|&e| e != low).unwrap_or(low);
    let of_piece = |piece: &[[u8; N]]| {
        let mut bits = Vec::with_capacity(piece.len().div_ceil(8));
        for eight in piece.chunks(8) {
            let (mut byte, mut fits) = (0, true);
            for (i, &e) in eight.iter().enumerate() {
                byte |= u8::from(e == high) << i;
                fits &= (e == low) | (e == high);
            }
            if !fits {
                return None;
            }
            bits.push(byte);
        }
        Some(bits)
    };
    let bits = made_of(all.len(), |at| of_piece(&all[at]))?;
    Some(([padded(low), padded(high)], bits.concat()))
}

fn padded<const N: usize>(number: [u8; N]) -> [u8; 8] {
    let mut out = [0; 8];
    out[..N].copy_from_slice(&number);
    out
}

/// Where a value is positive, as 1 and 0. Not for NaN, which is neither.
pub(super) fn of_signs(x: &Tensor) -> Option<Two> {
    let one = |one: &[u8]| {
        let mut number = [0; 8];
        number[..one.len()].copy_from_slice(one);
        number
    };
    let (one, bits) = match x.dtype() {
        DType::F64 => (one(&1f64.to_ne_bytes()), signs::<f64>(x)?),
        DType::F32 => (one(&1f32.to_ne_bytes()), signs::<f32>(x)?),
        DType::BF16 => (one(&bf16::ONE.to_ne_bytes()), signs::<bf16>(x)?),
        DType::F16 => (one(&f16::ONE.to_ne_bytes()), signs::<f16>(x)?),
        DType::I64 | DType::I32 | DType::U8 | DType::Bool => return None,
    };
    Some(([[0; 8], one], bits))
}

fn signs<T: HostElement + Into<f64>>(x: &Tensor) -> Option<Vec<u8>> {
    let of_piece = |values: &[T]| {
        let mut nan = false;
        let eight = |eight: &[T]| {
            let mut byte = 0;
            for (i, &v) in eight.iter().enumerate() {
                let v: f64 = v.into();
                byte |= u8::from(v > 0.0) << i;
                nan |= v.is_nan();
            }
            byte
        };
        let bits: Vec<u8> = values.chunks(8).map(eight).collect();
        (!nan).then_some(bits)
    };
    let of = |values: &[T]| {
        made_of(values.len(), |at| of_piece(&values[at])).map(|pieces| pieces.concat())
    };
    with_host_bytes(x, |bytes| elements(T::DTYPE, bytes).and_then(of))?
}

/// The value from its bits.
pub(super) fn spread(
    bits: &Tensor,
    [low, high]: &[[u8; 8]; 2],
    dtype: DType,
    len: usize,
) -> Result<Tensor> {
    let made = with_host_bytes(bits, |bits| {
        dense_from(Device::Cpu, dtype, len, |out| {
            match dtype.size() {
                1 => fill::<1>(out, bits, low, high),
                2 => fill::<2>(out, bits, low, high),
                4 => fill::<4>(out, bits, low, high),
                _ => fill::<8>(out, bits, low, high),
            }
            Ok(())
        })
    });
    made.unwrap_or_else(|| Err(Error::gradient("compress", "the bits of a saved value were freed")))
}

fn fill<const N: usize>(out: &mut [u8], bits: &[u8], low: &[u8; 8], high: &[u8; 8]) {
    let cut = |number: &[u8; 8]| std::array::from_fn::<u8, N, _>(|i| number[i]);
    let numbers = [cut(low), cut(high)];
    let (out, _) = out.as_chunks_mut::<N>();
    filled(out, |piece, out| {
        for (eight, &byte) in out.chunks_mut(8).zip(&bits[piece * PIECE / 8..]) {
            for (i, e) in eight.iter_mut().enumerate() {
                *e = numbers[usize::from(byte >> i & 1)];
            }
        }
        Some(())
    });
}
