//! Sorting, ranking and choosing, softly: functions with a slope where the hard ones are steps.
//!
//! `soft_sort` and `soft_rank` are projections onto the permutahedron, the convex hull of all
//! orders of a vector (Blondel, Teboul, Berthet and Djolonga, 2020). With s the vector to project,
//! in order, w the corners' coordinates, in order, and the strength ε, the projection of s/ε is
//!
//! ```text
//!   (s − mean(s))/ε + mean(w),   means over blocks,
//! ```
//!
//! where the blocks are those of the isotonic regression of s − ε·w: elements share a block where
//! their differences are small relative to ε. A block of one element is exactly the hard result;
//! one block of all is the mean. The regression takes linear time, after a sort.
//!
//! Only the blocks need code without tensor operations: a [`CustomOp`]. They do not change under
//! small changes of the values, so the derivative is that of the means, in both modes and at every
//! order.

use crate::{
    CustomBatching, CustomOp, DType, Derivative, Error, External, HostElement, HostInput,
    HostOutput, Result, Spec, Tensor, custom_op, kinks,
};
use std::sync::OnceLock;

/// The isotonic regression along the last axis, and for each element the index of the first one of
/// its block.
struct Isotonic;

impl CustomOp for Isotonic {
    fn name(&self) -> &'static str {
        "isotonic"
    }

    fn specs(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        match inputs {
            [x] if matches!(x.dtype, DType::F32 | DType::F64) && !x.shape.is_empty() => {
                Ok(vec![x.clone(), x.with_dtype(DType::I64)])
            }
            _ => Err(Error::shape(self.name(), "takes one f32 or f64 tensor with an axis")),
        }
    }

    fn forward(&self, inputs: &[HostInput<'_>], outputs: &mut [HostOutput<'_>]) -> Result<()> {
        match inputs[0].dtype() {
            DType::F32 => regress::<f32>(&inputs[0], outputs, f64::from, |v| v as f32),
            _ => regress::<f64>(&inputs[0], outputs, |v| v, |v| v),
        }
    }

    fn derivative(&self) -> Derivative {
        Derivative::Jvp
    }

    fn jvp(&self, _: &[Tensor], y: &[Tensor], t: &[Tensor]) -> Vec<Tensor> {
        let blocks = Blocks::new(&y[1], t[0].dtype());
        vec![blocks.means(&t[0]), y[1].zeros_like()]
    }

    fn batching(&self) -> CustomBatching {
        CustomBatching::LeadingAxes
    }
}

/// Pool adjacent violators: blocks of equal values, each merged with the one before while it lies
/// below it.
fn regress<T: HostElement + Copy>(
    x: &HostInput<'_>,
    outputs: &mut [HostOutput<'_>],
    wide: fn(T) -> f64,
    narrow: fn(f64) -> T,
) -> Result<()> {
    let n = x.shape().last().copied().unwrap_or(1).max(1);
    let [values, firsts] = outputs else { unreachable!("the shape rule gives two results") };
    let (values, firsts) = (values.as_mut_slice::<T>()?, firsts.as_mut_slice::<i64>()?);
    let rows = x.as_slice::<T>()?.chunks(n).zip(values.chunks_mut(n).zip(firsts.chunks_mut(n)));
    let mut blocks: Vec<(usize, f64)> = Vec::new(); // first element, mean
    for (x, (values, firsts)) in rows {
        blocks.clear();
        for (i, &x) in x.iter().enumerate() {
            let (mut first, mut mean) = (i, wide(x));
            // NaN compares with nothing: it is its own block.
            while let Some(&(start, before)) = blocks.last().filter(|b| b.1 > mean) {
                let (left, right) = ((first - start) as f64, (i + 1 - first) as f64);
                mean = (before * left + mean * right) / (left + right);
                first = start;
                blocks.pop();
            }
            blocks.push((first, mean));
        }
        let ends = blocks.iter().skip(1).map(|b| b.0).chain([x.len()]);
        for (&(first, mean), end) in blocks.iter().zip(ends) {
            // Alone, an element is itself: a mean of one.
            values[first..end].fill(narrow(mean));
            firsts[first..end].fill(first as i64);
        }
    }
    Ok(())
}

fn isotonic() -> &'static External {
    static OP: OnceLock<External> = OnceLock::new();
    OP.get_or_init(|| custom_op(Isotonic).trusted())
}

/// Blocks along the last axis.
struct Blocks<'a> {
    firsts: &'a Tensor,
    sizes: Tensor,
}

impl Blocks<'_> {
    fn new(firsts: &Tensor, dtype: DType) -> Blocks<'_> {
        let zeros = firsts.new_zeros_with(firsts.shape(), dtype);
        let sizes = zeros.scatter_add(-1, firsts, &zeros.ones_like()).gather(-1, firsts);
        Blocks { firsts, sizes }
    }

    /// Each element replaced by the mean of its block.
    fn means(&self, x: &Tensor) -> Tensor {
        let sums = x.zeros_like().scatter_add(-1, self.firsts, x).gather(-1, self.firsts);
        sums / &self.sizes
    }
}

/// The projection of `s` over the strength onto the permutahedron of `w`, both ascending along the
/// last axis.
fn projected(s: &Tensor, w: &Tensor, strength: f64) -> Tensor {
    let firsts = isotonic().call(&[&(s.detach() - w.detach() * strength)]).swap_remove(1);
    let blocks = Blocks::new(&firsts, s.dtype());
    // A value alone in its block is its own mean, also if it is infinite. NaN stays.
    let alone = blocks.sizes.eq(1.0).logical_and(s.is_inf());
    let spread = alone.select_or(0.0, s - blocks.means(s));
    spread / strength + blocks.means(w)
}

impl Tensor {
    /// The axis last, in f32 or f64.
    #[track_caller]
    fn softly(
        &self,
        op: &'static str,
        axis: isize,
        along: impl FnOnce(&Tensor) -> Tensor,
    ) -> Tensor {
        let axis = self.axis(op, axis) as isize;
        if self.rank() == 0 {
            return along(&self.wide().reshape([1]))
                .reshape(&[] as &[usize])
                .cast(self.real_dtype());
        }
        along(&self.wide().move_axis(axis, -1)).move_axis(-1, axis).cast(self.real_dtype())
    }

    /// The ascending sequence nearest to this one along an axis, by squares: isotonic regression,
    /// in linear time. It consists of blocks of equal values, each the mean of its elements.
    ///
    /// Derivative: the mean of `dy` over each block.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([1.0, 3.0, 2.0, 4.0]).isotonic(0);
    /// assert_eq!(y.to_vec::<f64>(), [1.0, 2.5, 2.5, 4.0]);
    /// ```
    ///
    /// # Panics
    /// If the axis is out of range.
    #[track_caller]
    #[must_use]
    pub fn isotonic(&self, axis: isize) -> Tensor {
        self.softly("isotonic", axis, |x| isotonic().one(&[x]))
    }

    /// Values in order along an axis, softly: as `strength` goes to 0 they are those of
    /// [`Tensor::sort`], as it goes to infinity all are the mean. Neighbours in that order are
    /// averaged where they differ by more than 1/strength; the others are exact.
    ///
    /// Derivative: `dy` back in the old order, averaged over the same blocks.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([3.0, 1.0, 2.0]);
    /// assert_eq!(x.soft_sort(0, false, 0.1).to_vec::<f64>(), [1.0, 2.0, 3.0]);
    /// let y = x.soft_sort(0, false, 10.0).to_vec::<f64>();
    /// assert!(y.iter().zip([1.9, 2.0, 2.1]).all(|(y, e)| (y - e).abs() < 1e-12), "{y:?}");
    /// ```
    ///
    /// # Panics
    /// If `strength` is not a positive number.
    #[track_caller]
    #[must_use]
    pub fn soft_sort(&self, axis: isize, descending: bool, strength: f64) -> Tensor {
        self.check_positive("soft_sort", "the strength", strength);
        self.softly("soft_sort", axis, |x| {
            let y = projected(&places(x), &x.sort(-1, false).0, strength);
            if descending { y.flip(-1) } else { y }
        })
    }

    /// The rank of each element along an axis, from 1 for the smallest, softly: as `strength` goes
    /// to 0 the ranks are integers (elements that are equal share the mean of theirs), as it
    /// goes to infinity all are (n + 1)/2. Elements that differ by more than the strength have
    /// whole ranks.
    ///
    /// Derivative: (`dy` − its mean)/strength over blocks of elements that are nearer to each other
    /// than the strength; 0 for elements that are alone.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([3.0, 1.0, 2.5]);
    /// assert_eq!(x.soft_rank(0, 0.1).to_vec::<f64>(), [3.0, 1.0, 2.0]);
    /// assert_eq!(x.soft_rank(0, 1.0).to_vec::<f64>(), [2.75, 1.0, 2.25]);
    /// ```
    ///
    /// # Panics
    /// If `strength` is not a positive number.
    #[track_caller]
    #[must_use]
    pub fn soft_rank(&self, axis: isize, strength: f64) -> Tensor {
        self.check_positive("soft_rank", "the strength", strength);
        self.softly("soft_rank", axis, |x| {
            // Equal elements share a block: it is smooth there.
            let (s, order) = kinks::uncounted_part(|| x.sort(-1, false));
            projected(&s, &places(x), strength).gather(-1, &order.argsort(-1, false))
        })
    }

    /// Where the largest element along an axis is, softly: the mean of the indices, weighted by
    /// softmax(x/temperature). As the temperature goes to 0 it is [`Tensor::argmax`], as it goes to
    /// infinity the middle.
    ///
    /// Derivative: through the softmax, dx = p·(index − y)·dy/temperature with its weights p.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([0.0, 5.0, 1.0]);
    /// assert!((x.soft_argmax(0, 0.1).item::<f64>() - 1.0).abs() < 1e-12);
    /// assert!((x.soft_argmax(0, 1e9).item::<f64>() - 1.0).abs() < 1e-6);
    /// ```
    ///
    /// # Panics
    /// If `temperature` is not a positive number, or the axis is empty.
    #[track_caller]
    #[must_use]
    pub fn soft_argmax(&self, axis: isize, temperature: f64) -> Tensor {
        self.check_positive("soft_argmax", "the temperature", temperature);
        let x = self.wide();
        let x = if x.rank() == 0 {
            x.reshape([1])
        } else {
            x.move_axis(self.axis("soft_argmax", axis) as isize, -1)
        };
        if x.shape().last() == Some(&0) {
            self.checked(Err(Error::shape("soft_argmax", "the axis is empty").on([self.spec()])))
        }
        let index = places(&x) - 1.0;
        ((x / temperature).softmax(-1) * index).sum_over(-1).cast(self.real_dtype())
    }
}

/// 1, 2, 3, … along the last axis.
fn places(x: &Tensor) -> Tensor {
    let n = x.shape().last().copied().unwrap_or(1);
    (x.new_iota(n) + 1i64).cast(x.dtype()).expand(x.shape())
}
