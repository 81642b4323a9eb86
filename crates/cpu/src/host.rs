//! Conversion between Rust slices and buffers.

use crate::Buffer;
use half::{bf16, f16};
use pullback_ir::{DType, Error, ErrorKind, Fresh, Result, Scalar};
use std::mem::MaybeUninit;

mod sealed {
    pub trait Sealed {}
}

/// A Rust type that can be an element of a tensor.
pub trait HostElement: Copy + Default + Send + Sync + 'static + sealed::Sealed {
    /// The dtype that stores it.
    const DTYPE: DType;

    /// The value as a scalar.
    ///
    /// ```
    /// # use pullback_cpu::HostElement;
    /// assert_eq!((2.5f32.scalar().as_f64(), 7u8.scalar().as_i64()), (2.5, 7));
    /// ```
    fn scalar(self) -> Scalar;
}

macro_rules! elements {
    ($($type:ty => $dtype:ident, $scalar:expr;)*) => {$(
        impl sealed::Sealed for $type {}
        impl HostElement for $type {
            const DTYPE: DType = DType::$dtype;
            fn scalar(self) -> Scalar {
                let f: fn($type) -> Scalar = $scalar;
                f(self)
            }
        }
    )*};
}

elements! {
    f64 => F64, Scalar::from;
    f32 => F32, Scalar::from;
    bf16 => BF16, |v| Scalar::from(v.to_f64());
    f16 => F16, |v| Scalar::from(v.to_f64());
    i64 => I64, Scalar::from;
    i32 => I32, Scalar::from;
    u8 => U8, Scalar::from;
    bool => Bool, Scalar::from;
}

/// The memory of values, as bytes.
pub fn bytes_of<T: HostElement>(values: &[T]) -> &[u8] {
    // SAFETY: the sealed trait admits only plain numbers, which have no padding; the length is that
    // of the slice, in bytes.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values)) }
}

impl Buffer {
    /// A buffer that holds these values.
    pub fn from_slice<T: HostElement>(values: &[T]) -> Result<Buffer> {
        let bytes = size_of_val(values);
        let mut buffer = Buffer::alloc(bytes).map_err(|_| {
            Error::new(ErrorKind::Memory, "tensor", format!("cannot allocate {bytes} bytes"))
        })?;
        // SAFETY: the buffer is new, at least as long, and aligned for every element type; the
        // sealed trait admits only plain numbers.
        unsafe {
            std::ptr::copy_nonoverlapping(values.as_ptr().cast::<u8>(), buffer.as_mut_ptr(), bytes);
        }
        Ok(buffer)
    }

    /// `len` values from position `offset` on (in elements), or `None` if they are not all inside.
    pub fn to_vec<T: HostElement>(
        &self,
        dtype: DType,
        offset: usize,
        len: usize,
    ) -> Option<Vec<T>> {
        let size = size_of::<T>();
        let end = offset.checked_add(len)?.checked_mul(size)?;
        if dtype != T::DTYPE || end > self.len() {
            return None;
        }
        // SAFETY: the range is inside the buffer, and buffers are only returned filled.
        let bytes =
            unsafe { std::slice::from_raw_parts(self.as_ptr().add(offset * size), len * size) };
        // Any bits are a number, but not any byte is a `bool`.
        if dtype == DType::Bool && bytes.iter().any(|&b| b > 1) {
            return None;
        }
        let mut out = vec![T::default(); len];
        // SAFETY: `out` has space for as many bytes, which are valid values of `T`: see above.
        unsafe {
            std::ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                out.as_mut_ptr().cast::<u8>(),
                len * size,
            );
        }
        Some(out)
    }

    /// `len` bytes from byte `start` on, or `None` if they are not all inside.
    pub fn slice(&self, start: usize, len: usize) -> Option<&[u8]> {
        if start.checked_add(len)? > self.len() {
            return None;
        }
        // SAFETY: the range is inside the buffer, buffers are only returned filled, and writing to
        // one borrows it mutably.
        Some(unsafe { std::slice::from_raw_parts(self.as_ptr().add(start), len) })
    }

    /// Runs `f` on all bytes, of numbers: not any byte is a `bool`.
    ///
    /// # Errors
    /// Of `f`, or if the dtype is `bool`.
    pub fn rewrite(&mut self, dtype: DType, f: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<()> {
        if dtype == DType::Bool {
            return Err(Error::argument("tensor", "memory of bool is not written as bytes"));
        }
        // SAFETY: the buffer is owned and has this length, buffers are only returned filled, and
        // any bits are a number.
        f(unsafe { std::slice::from_raw_parts_mut(self.as_mut_ptr(), self.len()) })
    }

    /// A buffer for this many bytes of this dtype, all of which an engine writes.
    ///
    /// # Errors
    /// If it cannot be allocated, if `fill` fails or does not write all of it, or if it writes an
    /// invalid `bool`.
    pub fn fresh(
        op: &'static str,
        dtype: DType,
        bytes: usize,
        fill: impl FnOnce(&mut Fresh<'_>) -> Result<()>,
    ) -> Result<Buffer> {
        let mut buffer = Buffer::alloc(bytes).map_err(|_| {
            Error::new(ErrorKind::Memory, op, format!("cannot allocate {bytes} bytes"))
        })?;
        // SAFETY: the buffer is owned and has this length.
        let content = unsafe {
            std::slice::from_raw_parts_mut(buffer.as_mut_ptr().cast::<MaybeUninit<u8>>(), bytes)
        };
        let mut fresh = Fresh::new(content);
        fill(&mut fresh)?;
        fresh.check(op)?;
        // SAFETY: all of it was written.
        let content = unsafe { std::slice::from_raw_parts(buffer.as_ptr(), bytes) };
        // Any bits are a number, but not any byte is a `bool`.
        match dtype == DType::Bool && content.iter().any(|&b| b > 1) {
            true => Err(Error::argument(op, "a byte is not a valid bool")),
            false => Ok(buffer),
        }
    }

    /// A buffer for this many bytes of this dtype, which `fill` writes; it is zeroed first.
    ///
    /// # Errors
    /// If it cannot be allocated, if `fill` fails, or if it writes an invalid `bool`.
    pub fn filled(
        dtype: DType,
        bytes: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<Buffer> {
        let mut buffer = Buffer::alloc(bytes).map_err(|_| {
            Error::new(ErrorKind::Memory, "tensor", format!("cannot allocate {bytes} bytes"))
        })?;
        // SAFETY: the buffer is owned and has this length; it is written before a slice of it is
        // made.
        let content = unsafe {
            buffer.as_mut_ptr().write_bytes(0, bytes);
            std::slice::from_raw_parts_mut(buffer.as_mut_ptr(), bytes)
        };
        fill(content)?;
        // Any bits are a number, but not any byte is a `bool`.
        match dtype == DType::Bool && content.iter().any(|&b| b > 1) {
            true => Err(Error::argument("tensor", "a byte is not a valid bool")),
            false => Ok(buffer),
        }
    }
}

/// The elements of dense memory, or `None` if they are not of this type.
pub fn elements<T: HostElement>(dtype: DType, bytes: &[u8]) -> Option<&[T]> {
    // Any bits are a number, but not any byte is a `bool`.
    if dtype != T::DTYPE || (dtype == DType::Bool && bytes.iter().any(|&b| b > 1)) {
        return None;
    }
    // SAFETY: the sealed trait admits only plain numbers, for which any bits are a value, and
    // `bool`s, which were checked.
    let (before, elements, after) = unsafe { bytes.align_to::<T>() };
    (before.is_empty() && after.is_empty()).then_some(elements)
}

/// The elements of dense memory, to be written, or `None` if they are not of this type.
pub fn elements_mut<T: HostElement>(dtype: DType, bytes: &mut [u8]) -> Option<&mut [T]> {
    if dtype != T::DTYPE || (dtype == DType::Bool && bytes.iter().any(|&b| b > 1)) {
        return None;
    }
    // SAFETY: as above, and whatever is written as a `T` is plain bytes again.
    let (before, elements, after) = unsafe { bytes.align_to_mut::<T>() };
    (before.is_empty() && after.is_empty()).then_some(elements)
}
