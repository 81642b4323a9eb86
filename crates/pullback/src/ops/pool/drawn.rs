//! The largest elements of windows that begin at drawn places, by a loop: where they are is an
//! index, which has no derivative.

use crate::backend::{elements, with_host_bytes};
use crate::ops::one_pass::is_value_alone;
use crate::{DType, HostElement, Tensor, no_grad};

#[inline(always)]
#[allow(clippy::eq_op)] // unequal to itself: NaN
fn is_nan<T: PartialEq>(x: T) -> bool {
    x != x
}

/// Windows of two or three axes.
pub(super) struct Windows<'a> {
    pub(super) spatial: &'a [usize],
    pub(super) kernel: &'a [usize],
    pub(super) lengths: &'a [usize],
}

impl Windows<'_> {
    /// Where the largest element of each window of `[n, c, pixels]` is, the first of equals, or the
    /// first NaN: `[n, c, windows]`. `None` where values are not on the host, or observed.
    #[track_caller]
    pub(super) fn largest(&self, x: &Tensor, samples: &Tensor) -> Option<Tensor> {
        let (x, samples) = (x.detach(), samples.detach());
        if !is_value_alone(&x) || !is_value_alone(&samples) {
            return None;
        }
        let samples = samples.cast(DType::F64).to_vec::<f64>();
        let x = no_grad(|| x.contiguous());
        let best = match x.dtype() {
            DType::F32 => self.best::<f32>(&x, &samples),
            DType::F64 => self.best::<f64>(&x, &samples),
            _ => None,
        }?;
        let count: usize = self.lengths.iter().product();
        Some(x.new_from_vec(best, [x.shape()[0], x.shape()[1], count]))
    }

    fn best<T: HostElement + PartialOrd>(&self, x: &Tensor, samples: &[f64]) -> Option<Vec<i64>> {
        let (axes, pixels) = (self.spatial.len(), x.shape()[2]);
        let all = |x: &[T]| {
            let mut found = Vec::new();
            for (plane, u) in x.chunks_exact(pixels.max(1)).zip(samples.chunks_exact(axes)) {
                self.of_plane(plane, u, &mut found);
            }
            found
        };
        with_host_bytes(x, |bytes| elements::<T>(T::DTYPE, bytes).map(all))?
    }

    /// Where the windows along an axis begin, in PyTorch's formula.
    fn starts(&self, axis: usize, u: f64) -> Vec<usize> {
        let (space, last) = (self.spatial[axis] - self.kernel[axis], self.lengths[axis] - 1);
        let alpha = if last > 0 { space as f64 / last as f64 } else { 0.0 };
        let drawn = (0..last).map(|o| ((o as f64 + u) * alpha).floor() - (u * alpha).floor());
        drawn.map(|start| (start as usize).min(space)).chain([space]).collect()
    }

    fn of_plane<T: Copy + PartialOrd>(&self, plane: &[T], u: &[f64], found: &mut Vec<i64>) {
        let axes = self.spatial.len();
        // Two axes are three, the first of which has one place.
        let at = |list: &[usize], k: usize| if k + axes < 3 { 1 } else { list[k + axes - 3] };
        let starts: [Vec<usize>; 3] = std::array::from_fn(|k| match (k + axes).checked_sub(3) {
            // The samples of two axes are in the order width, height.
            Some(axis) => self.starts(axis, u[if axes == 2 { 1 - axis } else { axis }]),
            None => vec![0],
        });
        let [_, height, width] = std::array::from_fn(|k| at(self.spatial, k));
        let [depth, rows, columns] = std::array::from_fn(|k| at(self.kernel, k));
        for &z in &starts[0] {
            for &y in &starts[1] {
                for &x in &starts[2] {
                    let first = (z * height + y) * width + x;
                    let (mut best, mut value) = (first, plane[first]);
                    for dz in 0..depth {
                        for dy in 0..rows {
                            let from = first + (dz * height + dy) * width;
                            for (dx, &here) in plane[from..from + columns].iter().enumerate() {
                                // NaN beats all but NaN. By a mask: a branch would be guessed
                                // wrong.
                                let new_nan = is_nan(here) & !is_nan(value);
                                let takes = 0usize.wrapping_sub(((here > value) | new_nan).into());
                                best ^= (best ^ (from + dx)) & takes;
                                value = plane[best];
                            }
                        }
                    }
                    found.push(best as i64);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Tensor, jit};

    /// The loop gives what the composite gives, which a trace takes; with ties and NaN.
    #[test]
    fn windows_agree_with_the_composite() {
        let numbers = |n: usize| {
            let value = |i: usize| if i % 37 == 5 { f64::NAN } else { ((i * 29) % 11) as f64 };
            Tensor::from_vec((0..n).map(value).collect::<Vec<_>>(), [n])
        };
        let samples = |n: usize| {
            let value = |i: usize| ((i * 17) % 10) as f64 * 0.1;
            Tensor::from_vec((0..n).map(value).collect::<Vec<_>>(), [n])
        };
        let flat = (numbers(2 * 3 * 9 * 7).reshape([2, 3, 9, 7]), samples(12).reshape([2, 3, 2]));
        let deep = (numbers(2 * 6 * 5 * 4).reshape([1, 2, 6, 5, 4]), samples(6).reshape([1, 2, 3]));
        let of_flat = |(x, u): &(Tensor, Tensor)| x.fractional_max_pool2d(3, [4, 3], u);
        let of_deep = |(x, u): &(Tensor, Tensor)| x.fractional_max_pool3d(2, [3, 2, 3], u);
        let pairs =
            [(of_flat(&flat), jit(of_flat).of(&flat)), (of_deep(&deep), jit(of_deep).of(&deep))];
        for ((values, places), (other_values, other_places)) in pairs {
            assert_eq!(places.to_vec::<i64>(), other_places.to_vec::<i64>());
            let bits =
                |x: &Tensor| x.to_vec::<f64>().iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&values), bits(&other_values));
        }
    }
}
