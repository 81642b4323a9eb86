//! Compression: saved values in less memory.
//!
//! [`Compress`] is a packer like any other (`door.rs`). What it does with a value follows from the value and from the op that saves it,
//! and some of it is exact: a value of which two numbers are all there is (the mask of dropout, a truth value) is a bit for each element, and
//! so is the result of `relu`, whose derivative asks only where it is positive (`bits.rs`). The rest is an approximation with a bound, taken
//! only where an error of the value stays an error of the same size in the derivative: half precision, and eight bits with a scale for
//! each block (`blocks.rs`).

mod bits;
mod blocks;

use crate::memory::door::{self, Pack, Packed, SavedValue};
use crate::memory::piece::{Kept, Memo, Piece, with_bytes};
use crate::rule::Grad;
use crate::{DType, Error, Op, Result, Spec, Tensor, ops, trace};
use half::{bf16, f16};
use pullback_cpu::{HostElement, elements};
use pullback_ir::{Layout, Unary};
use std::fmt;
use std::sync::Arc;

/// Keeps values saved for backward in less memory: a packer for [`with_packing`](crate::with_packing).
///
/// Nothing is compressed until it is chosen. Where several choices apply, the exact ones come first, then [`Compress::blocks8`],
/// then [`Compress::half`].
///
/// ```
/// use pullback::{Compress, DType, Tensor, with_packing};
/// use std::sync::Arc;
/// let x = Tensor::full([64, 64], 0.5f32).requires_grad();
/// let packer = Arc::new(Compress::new().masks().half(DType::BF16));
/// let y = with_packing(packer, || (&x * 2.0).relu().sin().sum());
/// y.backward()?;
/// let g = x.grad().unwrap().to_vec::<f32>()[0];
/// assert!((g - 2.0 * 1f32.cos()).abs() < 2.0 / 256.0);
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// Left as they are, or passed on to [`Compress::then`]: parameters, whose memory is there anyway; values of less than 256 bytes; what an
/// approximation does not hold; and all that is saved while a function is traced, because it has no values yet. As a copy is made, what is
/// compressed comes back as it was when it was saved, also where its memory was written to since.
#[derive(Clone)]
pub struct Compress {
    masks: bool,
    integers: bool,
    blocks: bool,
    half: Option<DType>,
    next: Option<Arc<dyn Pack>>,
    memo: Arc<Memo<Small>>,
}

/// Values with fewer bytes are not worth it.
const SMALL: usize = 256;

/// What can be done with a value.
#[derive(Clone, Copy)]
enum Manner {
    /// Where it is positive: as 1 and 0.
    Sign = 1,
    /// Two numbers, and which.
    Two,
    /// Integers in a narrower dtype.
    Integers,
    Blocks,
    Bf16,
    F16,
}

impl Default for Compress {
    fn default() -> Compress {
        Compress::new()
    }
}

impl Compress {
    /// Compresses nothing yet.
    #[must_use]
    pub fn new() -> Compress {
        let memo = Arc::new(Memo::new());
        Compress { masks: false, integers: false, blocks: false, half: None, next: None, memo }
    }

    /// One bit for each element, where that is exact: results of `relu` without NaN, of which the derivative asks only where they are
    /// positive, and every value that has two different elements at most, whatever it is for: truth values, the mask of dropout, ones and
    /// zeros. Gradients are the same, bit for bit. (Dropout inside attention saves no mask: it draws it again.)
    #[must_use]
    pub fn masks(mut self) -> Compress {
        self.masks = true;
        self
    }

    /// Integers, such as indices, in the narrowest dtype that holds them; exact.
    #[must_use]
    pub fn integers(mut self) -> Compress {
        self.integers = true;
        self
    }

    /// `f32` and `f64` in `bf16` or `f16`: a relative error of at most 2⁻⁸ or 2⁻¹¹ (below 2⁻¹²⁶ or 2⁻¹⁴, an absolute one of at most 2⁻¹³⁴ or 2⁻²⁵).
    /// A value of which an element would become infinite, or zero where it was not, is left as it is. So are the values of linear
    /// algebra, of loops and of custom functions, where a small error may become a large one, and the arguments of checkpointed functions.
    ///
    /// # Panics
    /// If the dtype is another one.
    #[track_caller]
    #[must_use]
    pub fn half(mut self, dtype: DType) -> Compress {
        if !matches!(dtype, DType::BF16 | DType::F16) {
            let message = format!("saved values are kept in bf16 or f16, not in {dtype}");
            let at = crate::mode::user_line(std::panic::Location::caller());
            crate::raise(Error::argument("compress", message).at(at));
        }
        self.half = Some(dtype);
        self
    }

    /// Floats in eight bits with a scale for each 64 elements: an error of at most 1/254 of the largest magnitude among them, beside the
    /// rounding of the dtype itself. Taken where the derivative is a product with the value (`mul`, matrix products, convolutions, `exp`), or changes
    /// no faster than the value does (`square`, `sin`, `cos`, `tanh`, `sigmoid`, `gelu`, `silu`, `erf`, `atan`, `asinh`). Blocks that hold what is
    /// not finite, or numbers near the ends of the range, are kept whole.
    #[must_use]
    pub fn blocks8(mut self) -> Compress {
        self.blocks = true;
        self
    }

    /// Passes on what was made, and what was left alone, to another packer: `Compress::new().masks().then(offload)` compresses and writes the
    /// result to disk.
    #[must_use]
    pub fn then(mut self, next: impl Pack + 'static) -> Compress {
        self.next = Some(Arc::new(next));
        self
    }

    /// What may be done with a value, the best first.
    fn manners(&self, value: &SavedValue<'_>) -> impl Iterator<Item = Manner> {
        let (op, dtype) = (value.op(), value.tensor().dtype());
        let relu = matches!(op, Some(Op::Unary(Unary::Relu))) && value.is_output();
        let half = self.half.filter(|low| dtype.size() > low.size() && dtype.is_float());
        let all = [
            (self.masks && relu, Manner::Sign),
            (self.masks, Manner::Two),
            (self.integers && matches!(dtype, DType::I64 | DType::I32), Manner::Integers),
            (self.blocks && dtype.is_float() && op.is_some_and(is_gentle), Manner::Blocks),
            (half == Some(DType::BF16) && op.is_some_and(takes_half), Manner::Bf16),
            (half == Some(DType::F16) && op.is_some_and(takes_half), Manner::F16),
        ];
        all.into_iter().filter(|(may, _)| *may).map(|(_, manner)| manner)
    }
}

/// Whether an error of a saved value is an error of the derivative in proportion.
fn is_gentle(op: &Op) -> bool {
    use Unary::{
        Asinh, Atan, Cos, Erf, Erfc, Exp, Gelu, GeluTanh, Sigmoid, Silu, Sin, Square, Tanh,
    };
    match op {
        Op::Unary(f) => matches!(
            f,
            Asinh
                | Atan
                | Cos
                | Erf
                | Erfc
                | Exp
                | Gelu
                | GeluTanh
                | Sigmoid
                | Silu
                | Sin
                | Square
                | Tanh
        ),
        _ => matches!(ops::row(op), Grad::Bilinear(_)),
    }
}

/// Whether a relative error of a saved value is harmless.
fn takes_half(op: &Op) -> bool {
    !matches!(op, Op::Linalg(_) | Op::Flow(_) | Op::Custom(_))
}

impl Pack for Compress {
    fn pack(&self, value: &SavedValue<'_>) -> Result<Option<Arc<dyn Packed>>> {
        let x = value.tensor();
        let pass_on = || self.next.as_ref().map_or(Ok(None), |next| next.pack(value));
        if value.is_parameter() || !trace::knows(x) {
            return pass_on();
        }
        let piece = Piece::of(x);
        if piece.bytes() < SMALL {
            return pass_on();
        }
        let mut dense = None;
        for manner in self.manners(value) {
            let kept = match self.memo.find(&piece, manner as u8) {
                Some(kept) => kept,
                None => {
                    let dense = dense.get_or_insert_with(|| piece.dense());
                    let Some((form, parts)) = manner.apply(dense) else { continue };
                    let parts = parts.into_iter().map(|part| self.place(part, value));
                    let parts = parts.collect::<Result<_>>()?;
                    let small = Small { form, parts, dtype: x.dtype(), len: dense.len() };
                    self.memo.note(&piece, manner as u8, small)
                }
            };
            let (spec, layout) = (x.spec().clone(), piece.layout);
            return Ok(Some(Arc::new(Compressed { kept, spec, layout })));
        }
        pass_on()
    }
}

impl Compress {
    /// Where a part of what was made is kept.
    fn place(&self, part: Tensor, value: &SavedValue<'_>) -> Result<Part> {
        let Some(next) = &self.next else { return Ok(Part::Here(part)) };
        let (op, name, at, is_output) = (value.op, value.name, value.at, value.is_output);
        let offer =
            SavedValue { tensor: part.clone(), op, name, at, is_output, is_parameter: false };
        Ok(match next.pack(&offer)? {
            Some(packed) => Part::Packed(packed, part.spec().clone()),
            None => Part::Here(part),
        })
    }
}

impl fmt::Debug for Compress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compress")
            .field("masks", &self.masks)
            .field("integers", &self.integers)
            .field("blocks8", &self.blocks)
            .field("half", &self.half)
            .finish_non_exhaustive()
    }
}

/// How the parts make the value.
enum Form {
    /// Two numbers, by their bytes, and which.
    Bits([[u8; 8]; 2]),
    Cast,
    Blocks,
}

/// A value in less memory.
struct Small {
    form: Form,
    parts: Vec<Part>,
    dtype: DType,
    len: usize,
}

enum Part {
    Here(Tensor),
    Packed(Arc<dyn Packed>, Spec),
}

impl Part {
    fn tensor(&self) -> Result<Tensor> {
        match self {
            Part::Here(x) => Ok(x.clone()),
            Part::Packed(packed, spec) => door::unpack(&**packed, spec),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Part::Here(x) => x.spec().bytes(),
            Part::Packed(packed, _) => packed.bytes(),
        }
    }
}

impl Manner {
    /// What is kept of a dense value; `None` where this is not for it.
    fn apply(self, x: &Tensor) -> Option<(Form, Vec<Tensor>)> {
        let bits = |(numbers, bits): ([[u8; 8]; 2], Vec<u8>)| {
            (Form::Bits(numbers), vec![Tensor::from_vec(&bits, [bits.len()])])
        };
        let cast = |x: Tensor| (Form::Cast, vec![x]);
        match self {
            Manner::Sign => bits::of_signs(x).map(bits),
            Manner::Two => bits::of_two(x).map(bits),
            Manner::Integers => narrowest(x).map(|dtype| cast(x.cast(dtype))),
            Manner::Blocks => blocks::encode(x).map(|parts| (Form::Blocks, parts)),
            Manner::Bf16 => halved(x, DType::BF16).map(cast),
            Manner::F16 => halved(x, DType::F16).map(cast),
        }
    }
}

/// The value in half precision, if every element can be had so: none becomes infinite, and none zero, that was not.
fn halved(x: &Tensor, dtype: DType) -> Option<Tensor> {
    let half = x.cast(dtype);
    let fits = with_bytes(x, |x_bytes| {
        with_bytes(&half, |half_bytes| match (x.dtype(), dtype) {
            (DType::F64, DType::F16) => fits::<f64, f16>(x_bytes, half_bytes),
            (DType::F64, _) => fits::<f64, bf16>(x_bytes, half_bytes),
            (_, DType::F16) => fits::<f32, f16>(x_bytes, half_bytes),
            _ => fits::<f32, bf16>(x_bytes, half_bytes),
        })
    });
    fits???.then_some(half)
}

fn fits<T, H>(x: &[u8], half: &[u8]) -> Option<bool>
where
    T: HostElement + Into<f64>,
    H: HostElement + Into<f32>,
{
    let (x, half) = (elements::<T>(T::DTYPE, x)?, elements::<H>(H::DTYPE, half)?);
    let spoilt = |(&x, &half): (&T, &H)| {
        let (x, half): (f64, f32) = (x.into(), half.into());
        ((half.abs() == f32::INFINITY) & (x.abs() != f64::INFINITY)) | ((half == 0.0) & (x != 0.0))
    };
    let some =
        |(x, half): (&[T], &[H])| x.iter().zip(half).fold(false, |any, pair| any | spoilt(pair));
    Some(!x.chunks(1024).zip(half.chunks(1024)).any(some))
}

/// A narrower dtype that holds all elements.
fn narrowest(x: &Tensor) -> Option<DType> {
    let range = |values: &mut dyn Iterator<Item = i64>| {
        values.fold((i64::MAX, i64::MIN), |(low, high), v| (low.min(v), high.max(v)))
    };
    let (low, high) = with_bytes(x, |bytes| match x.dtype() {
        DType::I64 => {
            elements::<i64>(DType::I64, bytes).map(|values| range(&mut values.iter().copied()))
        }
        _ => elements::<i32>(DType::I32, bytes)
            .map(|values| range(&mut values.iter().map(|&v| i64::from(v)))),
    })??;
    let fits = |low_end: i64, high_end: i64| low >= low_end && high <= high_end;
    match x.dtype() {
        _ if fits(0, i64::from(u8::MAX)) => Some(DType::U8),
        DType::I64 if fits(i64::from(i32::MIN), i64::from(i32::MAX)) => Some(DType::I32),
        _ => None,
    }
}

/// A saved value that is compressed.
struct Compressed {
    kept: Arc<Kept<Small>>,
    spec: Spec,
    /// How it lies on what comes back.
    layout: Layout,
}

impl Packed for Compressed {
    fn unpack(&self) -> Result<Tensor> {
        let Small { form, parts, dtype, len } = &self.kept.value;
        let parts = parts.iter().map(Part::tensor).collect::<Result<Vec<Tensor>>>()?;
        let dense = match form {
            Form::Bits(numbers) => bits::spread(&parts[0], numbers, *dtype, *len)?,
            Form::Cast => parts[0].cast(*dtype),
            Form::Blocks => blocks::decode(&parts, *dtype, *len)?,
        };
        Ok(Tensor::new(self.spec.clone(), self.layout.clone(), dense.0.storage.clone()))
    }

    /// Holders of the same value count their share of it.
    fn bytes(&self) -> usize {
        self.kept.value.parts.iter().map(Part::bytes).sum::<usize>() / Arc::strong_count(&self.kept)
    }
}
