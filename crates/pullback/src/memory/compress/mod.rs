//! Compression: saved values in less memory.
//!
//! [`Compress`] is a packer like any other (`packing.rs`). What it does with a value follows from
//! the value and from the op that saves it, and some of it is exact: a value of which two numbers
//! are all there is (the mask of dropout, a boolean) is a bit for each element, and so is the
//! result of `relu`, whose derivative needs only where it is positive (`bits.rs`). The rest is an
//! approximation with a bound: half precision, and eight bits with a scale for each block
//! (`blocks.rs`). It is taken only where the derivative is off by at most four such errors, at any
//! input; `need.rs` says for every op why that is so, or why not.

mod bits;
mod blocks;
mod need;
mod pieces;

use crate::backend::{HostElement, elements, with_host_bytes};
use crate::memory::packing::{self, Pack, Packed, SavedValue};
use crate::memory::piece::{Memo, Memoized, Piece};
use crate::{DType, Error, Op, Result, Spec, Tensor, trace};
use half::{bf16, f16};
pub(crate) use need::Need;
use need::{MAX_ERROR, Range};
use pieces::made_of;
use pullback_ir::{Layout, Unary};
use std::fmt;
use std::sync::Arc;

/// Keeps values saved for backward in less memory: a packer for
/// [`with_packing`](crate::with_packing).
///
/// Nothing is compressed until it is chosen. Where several choices apply, the exact ones come
/// first, then [`Compress::blocks8`], then [`Compress::half`].
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
/// Left as they are, or passed on to [`Compress::then`]: parameters, whose memory is there anyway;
/// values of less than 256 bytes; what an approximation does not hold; and all that is saved while
/// a function is traced, because it has no values yet. As a copy is made, what is compressed comes
/// back as it was when it was saved, also where its memory was written to since.
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
enum Encoding {
    /// Where it is positive: as 1 and 0.
    Sign = 1,
    /// Two numbers, and which.
    Two,
    /// Integers in a narrower dtype.
    Integers,
    Blocks,
    /// With the blocks whole in which something is large.
    NearBlocks,
    Bf16,
    F16,
}

impl Default for Compress {
    fn default() -> Compress {
        Compress::new()
    }
}

impl Compress {
    /// Compresses nothing until a method below chooses what.
    ///
    /// ```
    /// use pullback::{Compress, Tensor, memory_report, with_packing};
    /// use std::sync::Arc;
    /// let x = Tensor::full([64, 64], 0.5f32).requires_grad();
    /// let packer = Arc::new(Compress::new());
    /// let step = || with_packing(packer, || (&x + 0.5).relu()).sum().backward();
    /// let ((), report) = memory_report(step)?;
    /// assert_eq!(report.most.activations, 64 * 64 * 4);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn new() -> Compress {
        let memo = Arc::new(Memo::new());
        Compress { masks: false, integers: false, blocks: false, half: None, next: None, memo }
    }

    /// Keeps one bit for each element, where that is exact: results of `relu` without NaN, of which
    /// the derivative needs only where they are positive, and every value with at most two
    /// different elements: booleans, the mask of dropout, ones and zeros. Gradients are the same,
    /// bit for bit. (Dropout inside attention saves no mask: it draws it again.)
    ///
    /// ```
    /// use pullback::{Compress, Tensor, memory_report, with_packing};
    /// use std::sync::Arc;
    /// let x = Tensor::full([64, 64], 0.5f32).requires_grad();
    /// let packer = Arc::new(Compress::new().masks());
    /// let step = || with_packing(packer, || (&x + 0.5).relu()).sum().backward();
    /// let ((), report) = memory_report(step)?;
    /// assert_eq!(report.most.activations, 64 * 64 / 8); // one bit for each element
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn masks(mut self) -> Compress {
        self.masks = true;
        self
    }

    /// Keeps integers, such as indices, in the narrowest dtype that holds them; exact.
    ///
    /// ```
    /// use pullback::{Compress, Tensor, memory_report, with_packing};
    /// use std::sync::Arc;
    /// let x = Tensor::full([100, 8], 0.5f32).requires_grad();
    /// let rows = Tensor::from(vec![99i64; 64]);
    /// let packer = Arc::new(Compress::new().integers());
    /// let step = || with_packing(packer, || x.index_select(0, &rows)).sum().backward();
    /// let ((), report) = memory_report(step)?;
    /// assert_eq!(report.most.activations, 64); // u8 instead of i64
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn integers(mut self) -> Compress {
        self.integers = true;
        self
    }

    /// Keeps `f32` and `f64` values in `bf16` or `f16`, with a relative error of at most ε = 2⁻⁸ or
    /// 2⁻¹¹. Used where the error of the derivative is then at most 4ε (1.6 % or 0.2 %), for all
    /// values:
    ///
    /// - of itself: products (`mul`, matrix products, convolutions) and quotients (`div`),
    ///   `square`, `sqrt`, `rsqrt`, `recip`, `exp`, `exp2`, `log`, `log2`, `log10`, `tan`, `atan`,
    ///   `asinh`, `atan2`; not at all: `abs`, `relu`, `copysign`, which need signs;
    /// - of 1, which is about their steepest slope: `tanh`, `sigmoid`, `gelu`, `silu`, `erf`,
    ///   `erfc`, `expm1`, `log_ndtr`. Where they are flat, such an error is large relative to the
    ///   slope;
    /// - of the terms that are added up: matrix products, convolutions, `softmax`, `log_softmax`.
    ///   What cancels in the sum leaves its error;
    /// - of 1, if no element is above 4 in magnitude: `sin`, `cos`.
    ///
    /// The bound is that of one op, and of the first derivative. Errors of several add up (`prod`
    /// is a tree of `mul`); and where their derivatives cancel, as those of `sinc` near 0 and of
    /// `cosine_similarity` of nearly parallel vectors do, the error of what cancelled stays.
    ///
    /// All other ops keep their values whole: those that compare them (`max`, `min`, `maximum`, …)
    /// or subtract one from another (`layer_norm`, `batch_norm`, `logsumexp`, `cross_entropy`,
    /// attention), `log1p`, `asin`, `atanh` and others with a pole, `pow`, linear algebra, loops,
    /// custom functions; and so do checkpointed functions.
    ///
    /// A value of which an element would become infinite, or zero where it was not, is left as it
    /// is. Elements below 2⁻¹²⁶ or 2⁻¹⁴ are off by 2⁻¹³⁴ or 2⁻²⁵ instead: values with such elements
    /// are taken only where the error may be a part of the largest element, and that is not among
    /// them, or of 1.
    ///
    /// ```
    /// use pullback::{Compress, DType, Tensor, memory_report, with_packing};
    /// use std::sync::Arc;
    /// let x = Tensor::full([64, 64], 0.5f32).requires_grad();
    /// let packer = Arc::new(Compress::new().half(DType::BF16));
    /// let step = || with_packing(packer, || (&x + 0.5).exp()).sum().backward();
    /// let ((), report) = memory_report(step)?;
    /// assert_eq!(report.most.activations, 64 * 64 * 2);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Panics
    /// If the dtype is another one.
    #[track_caller]
    #[must_use]
    pub fn half(mut self, dtype: DType) -> Compress {
        if !matches!(dtype, DType::BF16 | DType::F16) {
            let message = format!("saved values are kept in bf16 or f16, not in {dtype}");
            let at = crate::mode::user_line(pullback_ir::Line::caller());
            crate::raise(Error::argument("compress", message).at(at));
        }
        self.half = Some(dtype);
        self
    }

    /// Quantises floats to eight bits, in blocks of 64 elements with a scale each: the error is at
    /// most 1/254 of the largest magnitude in the block, in addition to the rounding of the dtype
    /// itself. Used where the error of the derivative is then at most 4/254, 1.6 %, for all values:
    ///
    /// - of the largest slope in the block: products (`mul`, matrix products, convolutions),
    ///   `square`, `recip`, `rsqrt`, `exp`, `exp2`, `tan`;
    /// - of 1, or of the largest slope, if that is more: `tanh`, `sigmoid`, `expm1`;
    /// - the same, but only in blocks of which no value is above 4 in magnitude, the others being
    ///   kept whole: `gelu`, `silu`, `erf`, `erfc`, `log_ndtr`, `atan`, `asinh`, `sin`, `cos`.
    ///
    /// As with [`Compress::half`], the bound is that of one op and of the first derivative. It is
    /// relative to the largest: an element that is small relative to its block is lost, which shows
    /// where a large gradient arrives at it (that of `hypot` or of a norm near 0 does). Blocks that
    /// hold what is not finite, or numbers near the ends of the range, are kept whole.
    ///
    /// ```
    /// use pullback::{Compress, Tensor, memory_report, with_packing};
    /// use std::sync::Arc;
    /// let x = Tensor::full([64, 64], 0.5f32).requires_grad();
    /// let packer = Arc::new(Compress::new().blocks8());
    /// let step = || with_packing(packer, || (&x + 0.5).exp()).sum().backward();
    /// let ((), report) = memory_report(step)?;
    /// assert_eq!(report.most.activations, 64 * 64 + 64 * 4); // and a scale for each 64
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn blocks8(mut self) -> Compress {
        self.blocks = true;
        self
    }

    /// Passes on what was compressed, and what was left alone, to another packer:
    /// `Compress::new().masks().then(offload)` compresses and writes the result to disk.
    ///
    /// ```
    /// use pullback::{Compress, Offload, Tensor, with_packing};
    /// use std::sync::Arc;
    /// # let dir = std::env::temp_dir().join(format!("compress-then-{}", std::process::id()));
    /// let offload = Offload::to_disk(&dir)?.min_bytes(1);
    /// let packer = Arc::new(Compress::new().masks().then(offload.clone()));
    /// let x = Tensor::full([64, 64], 0.5f32).requires_grad();
    /// let y = with_packing(packer, || (&x + 0.5).relu()).sum();
    /// offload.flush()?;
    /// assert!(offload.stats().written_bytes < 1024); // bits, not floats
    /// y.backward()?;
    /// assert_eq!(x.grad().unwrap().to_vec::<f32>()[0], 1.0);
    /// # drop((y, offload));
    /// # std::fs::remove_dir_all(&dir).unwrap();
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn then(mut self, next: impl Pack + 'static) -> Compress {
        self.next = Some(Arc::new(next));
        self
    }

    /// What may be done with a value, the best first.
    fn encodings(&self, value: &SavedValue<'_>) -> impl Iterator<Item = Encoding> {
        let (op, dtype) = (value.op(), value.tensor().dtype());
        let relu = matches!(op, Some(Op::Unary(Unary::Relu))) && value.is_output();
        let need = op.map_or(Need::Exact, Need::of);
        let reach = need.takes_blocks().filter(|_| self.blocks && dtype.is_float());
        let half = self.half.filter(|low| dtype.size() > low.size() && dtype.is_float());
        let half = half.filter(|_| need != Need::Exact);
        let all = [
            (self.masks && relu, Encoding::Sign),
            (self.masks, Encoding::Two),
            (self.integers && matches!(dtype, DType::I64 | DType::I32), Encoding::Integers),
            (reach == Some(f64::INFINITY), Encoding::Blocks),
            (reach == Some(MAX_ERROR), Encoding::NearBlocks),
            (half == Some(DType::BF16), Encoding::Bf16),
            (half == Some(DType::F16), Encoding::F16),
        ];
        all.into_iter().filter(|(may, _)| *may).map(|(_, encoding)| encoding)
    }
}

impl Pack for Compress {
    fn pack(&self, value: &SavedValue<'_>) -> Result<Option<Arc<dyn Packed>>> {
        let x = value.tensor();
        let pass_on = || self.next.as_ref().map_or(Ok(None), |next| next.pack(value));
        if value.is_parameter() || !trace::on_host(x) {
            return pass_on();
        }
        let piece = Piece::of(x);
        if piece.bytes() < SMALL {
            return pass_on();
        }
        let mut dense = None;
        for encoding in self.encodings(value) {
            let kept = match self.memo.find(&piece, encoding as u8) {
                Some(kept) if encoding.is_for(value, kept.value.form) => kept,
                Some(_) => continue,
                None => {
                    let dense = dense.get_or_insert_with(|| piece.dense());
                    let Some((form, parts)) = encoding.apply(dense) else { continue };
                    if !encoding.is_for(value, form) {
                        continue;
                    }
                    let parts = parts.into_iter().map(|part| self.place(part, value));
                    let parts = parts.collect::<Result<_>>()?;
                    let small = Small { form, parts, dtype: x.dtype(), len: dense.len() };
                    self.memo.note(&piece, encoding as u8, small)
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
    fn place(&self, part: Tensor, value: &SavedValue<'_>) -> Result<StoredPart> {
        let Some(next) = &self.next else { return Ok(StoredPart::Here(part)) };
        let (op, name, at, is_output) = (value.op, value.name, value.at, value.is_output);
        let offer =
            SavedValue { tensor: part.clone(), op, name, at, is_output, is_parameter: false };
        Ok(match next.pack(&offer)? {
            Some(packed) => StoredPart::Packed(packed, part.spec().clone()),
            None => StoredPart::Here(part),
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
#[derive(Clone, Copy)]
enum PartEncoding {
    /// Two numbers, by their bytes, and which.
    Bits([[u8; 8]; 2]),
    /// Integers in a narrower dtype.
    Cast,
    /// Half precision, of elements within a range.
    Half(Range),
    Blocks,
}

/// A value in less memory.
struct Small {
    form: PartEncoding,
    parts: Vec<StoredPart>,
    dtype: DType,
    len: usize,
}

enum StoredPart {
    Here(Tensor),
    Packed(Arc<dyn Packed>, Spec),
}

impl StoredPart {
    fn tensor(&self) -> Result<Tensor> {
        match self {
            StoredPart::Here(x) => Ok(x.clone()),
            StoredPart::Packed(packed, spec) => packing::unpack(&**packed, spec),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            StoredPart::Here(x) => x.spec().bytes(),
            StoredPart::Packed(packed, _) => packed.bytes(),
        }
    }

    fn bytes_at_rest(&self) -> usize {
        match self {
            StoredPart::Here(x) => x.spec().bytes(),
            StoredPart::Packed(packed, _) => packed.bytes_at_rest(),
        }
    }
}

impl Encoding {
    /// Whether what was made has what the derivative of the saving op needs. The same value may be
    /// saved by several.
    fn is_for(self, value: &SavedValue<'_>, form: PartEncoding) -> bool {
        let PartEncoding::Half(range) = form else { return true };
        let low = if matches!(self, Encoding::F16) { DType::F16 } else { DType::BF16 };
        value.op().is_some_and(|op| Need::of(op).takes_half(low, range))
    }

    /// What is kept of a dense value; `None` where this is not for it.
    fn apply(self, x: &Tensor) -> Option<(PartEncoding, Vec<Tensor>)> {
        let bits = |(numbers, bits): ([[u8; 8]; 2], Vec<u8>)| {
            (PartEncoding::Bits(numbers), vec![Tensor::from_vec(&bits, [bits.len()])])
        };
        let cast = |x: Tensor| (PartEncoding::Cast, vec![x]);
        match self {
            Encoding::Sign => bits::of_signs(x).map(bits),
            Encoding::Two => bits::of_two(x).map(bits),
            Encoding::Integers => narrowest(x).map(|dtype| cast(x.cast(dtype))),
            Encoding::Blocks => {
                blocks::encode(x, f64::INFINITY).map(|parts| (PartEncoding::Blocks, parts))
            }
            Encoding::NearBlocks => {
                blocks::encode(x, MAX_ERROR).map(|parts| (PartEncoding::Blocks, parts))
            }
            Encoding::Bf16 => halved(x, DType::BF16),
            Encoding::F16 => halved(x, DType::F16),
        }
    }
}

/// The value in half precision, if no element becomes infinite or zero that was not.
fn halved(x: &Tensor, dtype: DType) -> Option<(PartEncoding, Vec<Tensor>)> {
    let half = x.cast(dtype);
    let range = with_host_bytes(x, |x_bytes| {
        with_host_bytes(&half, |half_bytes| match (x.dtype(), dtype) {
            (DType::F64, DType::F16) => range::<f64, f16>(x_bytes, half_bytes),
            (DType::F64, _) => range::<f64, bf16>(x_bytes, half_bytes),
            (_, DType::F16) => range::<f32, f16>(x_bytes, half_bytes),
            _ => range::<f32, bf16>(x_bytes, half_bytes),
        })
    });
    Some((PartEncoding::Half(range???), vec![half]))
}

/// The range of the elements, if half precision makes none infinite or zero.
fn range<T, H>(x: &[u8], half: &[u8]) -> Option<Range>
where
    T: HostElement + Into<f64>,
    H: HostElement + Into<f32>,
{
    let (x, half) = (elements::<T>(T::DTYPE, x)?, elements::<H>(H::DTYPE, half)?);
    // The bits of a magnitude order as it does, and integers are compared several at a time. One
    // less, so that 0 is the last.
    let of_piece = |at: std::ops::Range<usize>| {
        let (mut largest, mut before_smallest) = (0, f64::INFINITY.to_bits() - 1);
        for (x, half) in x[at.clone()].chunks(1024).zip(half[at].chunks(1024)) {
            let mut spoilt = false;
            for (&x, &half) in x.iter().zip(half) {
                let (x, half): (f64, f32) = (x.into(), half.into());
                let (x, half) = (x.abs(), half.abs());
                spoilt |=
                    (half == f32::INFINITY) & (x != f64::INFINITY) | (half == 0.0) & (x != 0.0);
                let bits = if x.is_nan() { 0 } else { x.to_bits() };
                largest = bits.max(largest);
                before_smallest = bits.wrapping_sub(1).min(before_smallest);
            }
            if spoilt {
                return None;
            }
        }
        Some((before_smallest, largest))
    };
    let pieces = made_of(x.len(), of_piece)?;
    let (before_smallest, largest) = pieces
        .into_iter()
        .fold((f64::INFINITY.to_bits() - 1, 0), |(low, high), (l, h)| (low.min(l), high.max(h)));
    let [smallest, largest] = [before_smallest + 1, largest].map(f64::from_bits);
    Some(Range { smallest, largest })
}

/// A narrower dtype that holds all elements.
fn narrowest(x: &Tensor) -> Option<DType> {
    fn range<T: HostElement + Into<i64>>(bytes: &[u8]) -> Option<(i64, i64)> {
        let values = elements::<T>(T::DTYPE, bytes)?;
        let fold = |values: &mut dyn Iterator<Item = (i64, i64)>| {
            values.fold((i64::MAX, i64::MIN), |(low, high), (l, h)| (low.min(l), high.max(h)))
        };
        let pieces = made_of(values.len(), |at| {
            Some(fold(&mut values[at].iter().map(|&v| (v.into(), v.into()))))
        })?;
        Some(fold(&mut pieces.into_iter()))
    }
    let (low, high) = with_host_bytes(x, |bytes| match x.dtype() {
        DType::I64 => range::<i64>(bytes),
        _ => range::<i32>(bytes),
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
    kept: Arc<Memoized<Small>>,
    spec: Spec,
    /// Its layout on what is restored.
    layout: Layout,
}

impl Packed for Compressed {
    fn unpack(&self) -> Result<Tensor> {
        let Small { form, parts, dtype, len } = &self.kept.value;
        let parts = parts.iter().map(StoredPart::tensor).collect::<Result<Vec<Tensor>>>()?;
        let dense = match form {
            PartEncoding::Bits(numbers) => bits::spread(&parts[0], numbers, *dtype, *len)?,
            PartEncoding::Cast | PartEncoding::Half(_) => parts[0].cast(*dtype),
            PartEncoding::Blocks => blocks::decode(&parts, *dtype, *len)?,
        };
        Ok(Tensor::new(self.spec.clone(), self.layout.clone(), dense.0.storage.clone()))
    }

    /// Holders of the same value count their share of it.
    fn bytes(&self) -> usize {
        self.kept.value.parts.iter().map(StoredPart::bytes).sum::<usize>()
            / Arc::strong_count(&self.kept)
    }

    fn bytes_at_rest(&self) -> usize {
        let parts = self.kept.value.parts.iter();
        parts.map(StoredPart::bytes_at_rest).sum::<usize>() / Arc::strong_count(&self.kept)
    }
}
