//! Right operands packed before the products that use them (prepacked).

#[cfg(target_arch = "x86_64")]
use super::pairs;
use super::tile::Tiled;
use super::{DotTask, Method, Shared, half_packed, method};
use crate::buffer::Buffer;
use crate::elem::Elem;
use crate::operand::{Sink, Source};
use ::half::{bf16, f16};
use pullback_ir::DType;

/// The right operand of a product, and its panels if it was prepacked.
#[derive(Clone, Copy)]
pub(crate) struct Right<'a> {
    pub source: Source<'a>,
    /// Made by [`panels`] from the values the source still has.
    pub panels: Option<&'a Panels>,
}

impl<'a> From<Source<'a>> for Right<'a> {
    fn from(source: Source<'a>) -> Right<'a> {
        Right { source, panels: None }
    }
}

/// All the panels of a right operand, one after the other, each with all of its steps: blocks of
/// steps follow each other in it.
pub(crate) struct Panels {
    buffer: Buffer,
    /// Rows, columns and steps of the product they are for, and the type of its result.
    made_for: (usize, usize, usize, DType),
}

impl Panels {
    /// The first panel, for a product of this kind. `C` is what its type computes in.
    pub(super) fn of<C>(&self, m: usize, n: usize, k: usize, dtype: DType) -> Option<Shared<C>> {
        // Products only read them.
        let first = Shared(self.buffer.as_ptr().cast_mut().cast());
        (self.made_for == (m, n, k, dtype)).then_some(first)
    }
}

/// Packs the right operand of a product that will be computed many times, with other left operands
/// of the same layout. `None` where the product needs no packing, or where packing is cheap
/// relative to the product.
pub(crate) fn panels(a: Source, b: Source, shape: &[usize], dtype: DType) -> Option<Panels> {
    let job = DotTask::new(a, b, Sink { ptr: std::ptr::null_mut(), shape, dtype })?;
    match dtype {
        DType::F64 => job.pack::<f64, f64>(),
        DType::F32 => job.pack::<f32, f32>(),
        DType::BF16 => job.pack_bf16(),
        DType::F16 => job.pack::<f16, f32>(),
        DType::I64 | DType::I32 | DType::U8 | DType::Bool => None,
    }
}

impl DotTask<'_> {
    fn pack_bf16(&self) -> Option<Panels> {
        #[cfg(target_arch = "x86_64")]
        if super::multiplies_pairs() {
            let (m, _, b) = self.as_one::<bf16>()?;
            let buffer = pairs::panels(m, self.n, self.k, b)?;
            return Some(Panels { buffer, made_for: (m, self.n, self.k, self.out.dtype) });
        }
        self.pack::<bf16, f32>()
    }

    fn pack<S: Elem<Compute = C>, C: Tiled + Default>(&self) -> Option<Panels> {
        let (n, k) = (self.n, self.k);
        let (m, a, b) = self.as_one::<S>()?;
        if method::<S, C>(m, n, k, a.col, b.col) != Method::HalfPacked {
            return None;
        }
        let (buffer, _) = half_packed::pack_all::<S, C>(n, k, b);
        Some(Panels { buffer, made_for: (m, n, k, self.out.dtype) })
    }
}
