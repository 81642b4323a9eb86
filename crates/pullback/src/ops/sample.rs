//! Images sampled at any position: `grid_sample`, and the grids of affine maps.
//!
//! A position has a coordinate for each axis. Along one axis a coordinate becomes a few taps, each
//! an index, a weight and whether it is inside; over all axes the taps multiply out. All taps of
//! all places are one gather, whose transpose is one scatter-add. The gradient with respect to the
//! grid comes from the weights, which are polynomials in the fraction of the coordinate.

use crate::create::known_shape;
use crate::kinks::{self, KinkKind};
use crate::ops::cast::one_float;
use crate::{DType, Error, Tensor};

/// How [`Tensor::grid_sample`] computes a value between the given ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GridSampleMode {
    /// The nearest element, ties to even. The gradient of the grid is zero.
    Nearest,
    /// Linear along each axis.
    Linear,
    /// Cubic convolution along each axis (Keys' kernel with a = −¾).
    Cubic,
}

/// What [`Tensor::grid_sample`] finds outside the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GridPaddingMode {
    /// Zeros.
    Zeros,
    /// The element at the border.
    Border,
    /// The image reflected at its borders, repeatedly.
    Reflection,
}

/// Longer than any image: coordinates are listed.
const LONGEST: usize = 1 << 28;

/// The taps along one axis: index, whether it is inside, and weight (none is 1).
struct Tap {
    index: Tensor,
    inside: Option<Tensor>,
    weight: Option<Tensor>,
}

/// Coordinates clamped to [0, n − 1]; the gradient passes on the open interval.
fn held(x: &Tensor, n: usize) -> Tensor {
    x.hardtanh(0.0, n as f64 - 1.0)
}

/// Mirrored at both ends until inside: at the centres of the outer elements, or at their outer
/// edges.
fn reflected(x: &Tensor, n: usize, align_corners: bool) -> Tensor {
    let (low, span) = if align_corners { (0.0, n as f64 - 1.0) } else { (-0.5, n as f64) };
    if span == 0.0 {
        return x * 0.0;
    }
    let away = (x - low).abs();
    let turns = (&away / span).floor().detach();
    let rest = &away - &turns * span;
    let odd = turns.remainder(2.0).eq(1.0);
    held(&(odd.select(&(span - &rest), &rest) + low), n)
}

fn bounded(x: &Tensor, n: usize, outside: GridPaddingMode, align_corners: bool) -> Tensor {
    match outside {
        GridPaddingMode::Zeros => x.clone(),
        GridPaddingMode::Border => held(x, n),
        GridPaddingMode::Reflection => reflected(x, n, align_corners),
    }
}

/// Whole numbers as indices that are inside, and whether they were.
fn placed(at: &Tensor, n: usize, outside: GridPaddingMode) -> (Tensor, Option<Tensor>) {
    let last = n as f64 - 1.0;
    let at = at.detach();
    // NaN is not inside; its index is 0.
    let safe = at.ge(0.0).select(&at, at.zeros_like_splat()).clamp_max(last);
    let inside = at.ge(0.0).logical_and(at.le(last));
    (safe.cast(DType::I64), (outside == GridPaddingMode::Zeros).then_some(inside))
}

/// Keys' kernel for a tap at distance x, on its inner or outer part.
fn cubic(x: &Tensor, outer: bool) -> Tensor {
    let a = -0.75;
    match outer {
        false => (x * (a + 2.0) - (a + 3.0)) * x.square() + 1.0,
        true => ((x * a - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a,
    }
}

/// Where the slope of the interpolation jumps, or the value itself.
fn kink_mask(x: &Tensor, n: usize, how: GridSampleMode, outside: GridPaddingMode) -> Tensor {
    let on = match how {
        GridSampleMode::Nearest => (x - x.floor()).eq(0.5),
        GridSampleMode::Linear => x.floor().eq(x),
        // The pieces join smoothly.
        GridSampleMode::Cubic => x.ne(x),
    };
    let (low, high) = match outside {
        GridPaddingMode::Zeros => (-1.0, n as f64),
        GridPaddingMode::Border => (0.0, n as f64 - 1.0),
        GridPaddingMode::Reflection => return on,
    };
    on.logical_and(x.ge(low)).logical_and(x.le(high))
}

fn taps(
    x: &Tensor,
    n: usize,
    how: GridSampleMode,
    outside: GridPaddingMode,
    align_corners: bool,
) -> Vec<Tap> {
    match how {
        GridSampleMode::Nearest => {
            let at = bounded(x, n, outside, align_corners).round();
            let (index, inside) = placed(&at, n, outside);
            vec![Tap { index, inside, weight: None }]
        }
        GridSampleMode::Linear => {
            let x = bounded(x, n, outside, align_corners);
            let floor = x.floor().detach();
            let t = &x - &floor;
            let tap = |at: &Tensor, weight: Tensor| {
                let (index, inside) = placed(at, n, outside);
                Tap { index, inside, weight: Some(weight) }
            };
            vec![tap(&floor, 1.0 - &t), tap(&(&floor + 1.0), t.clone())]
        }
        GridSampleMode::Cubic => {
            let floor = x.floor().detach();
            let t = x - &floor;
            let weights = [
                cubic(&(&t + 1.0), true),
                cubic(&t, false),
                cubic(&(1.0 - &t), false),
                cubic(&(2.0 - &t), true),
            ];
            let tap = |(k, weight): (usize, Tensor)| {
                let at = bounded(&(&floor + (k as f64 - 1.0)), n, outside, align_corners);
                let (index, inside) = placed(&at.round(), n, outside);
                Tap { index, inside, weight: Some(weight) }
            };
            weights.into_iter().enumerate().map(tap).collect()
        }
    }
}

impl Tensor {
    /// The image `[n, c, h, w]` (or `[n, c, d, h, w]`) read at the places of a grid `[n, …, 2]` (or
    /// 3): `[n, c, …]`. A place holds x, then y (then z), from −1 to 1 over the image: between the
    /// centres of its outer elements with `align_corners`, else between their outer edges.
    ///
    /// Derivative: in the image, each gradient added back with the weight it was taken with; in the
    /// grid, by the slope of the interpolation, 0 for [`GridSampleMode::Nearest`] and where a place
    /// is held at the border.
    ///
    /// ```
    /// use pullback::{GridPaddingMode, GridSampleMode, Tensor};
    /// let image = Tensor::from_vec([1.0, 2.0, 3.0, 4.0], [1, 1, 2, 2]);
    /// let middle = Tensor::zeros_with([1, 1, 1, 2], image.dtype());
    /// let y = image.grid_sample(&middle, GridSampleMode::Linear, GridPaddingMode::Zeros, false);
    /// assert_eq!(y.to_vec::<f64>(), [2.5]);
    /// ```
    ///
    /// # Panics
    /// If the image and the grid do not fit each other, or the image is empty.
    #[track_caller]
    #[must_use]
    pub fn grid_sample(
        &self,
        grid: &Tensor,
        how: GridSampleMode,
        outside: GridPaddingMode,
        align_corners: bool,
    ) -> Tensor {
        self.checked(self.check_grid(grid));
        one_float("grid_sample", [self, grid]);
        let spatial = &self.shape()[2..];
        let (n, c) = (self.shape()[0], self.shape()[1]);
        let mut shape = vec![n, c];
        shape.extend(&grid.shape()[1..grid.rank() - 1]);
        let places: usize = shape[2..].iter().product();
        let dtype = self.real_dtype().promote(grid.real_dtype());
        let coordinates = grid.wide().reshape([n, places, spatial.len()]);
        // Over all axes: indices into the flattened image, one for each combination of taps.
        let mut all: Vec<Tap> = Vec::new();
        for (axis, &length) in spatial.iter().enumerate() {
            let g = coordinates.select_at(-1, (spatial.len() - 1 - axis) as isize);
            let x = match align_corners {
                true => (g + 1.0) * ((length as f64 - 1.0) / 2.0),
                false => ((g + 1.0) * length as f64 - 1.0) * 0.5,
            };
            kinks::at("grid_sample", KinkKind::Sample, &[&x], |x| {
                kink_mask(&x[0], length, how, outside)
            });
            let here = kinks::uncounted_part(|| taps(&x, length, how, outside, align_corners));
            if all.is_empty() {
                all = here;
                continue;
            }
            let both = |a: &Option<Tensor>,
                        b: &Option<Tensor>,
                        f: fn(&Tensor, &Tensor) -> Tensor| match (a, b) {
                (Some(a), Some(b)) => Some(f(a, b)),
                (a, b) => a.clone().or(b.clone()),
            };
            let join = |a: &Tap, b: &Tap| Tap {
                index: &a.index * length + &b.index,
                inside: both(&a.inside, &b.inside, |a, b| a.logical_and(b)),
                weight: both(&a.weight, &b.weight, |a, b| a * b),
            };
            all = all
                .iter()
                .flat_map(|a| here.iter().map(|b| join(a, b)).collect::<Vec<_>>())
                .collect();
        }
        let image = self.wide().reshape([n, c, spatial.iter().product::<usize>()]);
        let mut sum: Option<Tensor> = None;
        for tap in &all {
            let index = tap.index.unsqueeze(1).expand([n, c, places]);
            let mut term = image.gather(2, &index);
            if let Some(inside) = &tap.inside {
                term = term.only(&inside.unsqueeze(1).expand([n, c, places]));
            }
            if let Some(weight) = &tap.weight {
                term *= weight.unsqueeze(1);
            }
            sum = Some(sum.map_or_else(|| term.clone(), |sum| sum + &term));
        }
        sum.unwrap_or(image).cast(dtype).reshape(&shape[..])
    }

    fn check_grid(&self, grid: &Tensor) -> crate::Result<()> {
        let (x, g) = (self.shape(), grid.shape());
        let message = if !(4..=5).contains(&x.len()) {
            format!("takes [n, c, h, w] or [n, c, d, h, w], not {}", self.spec())
        } else if g.len() != x.len() || g[0] != x[0] || g[g.len() - 1] != x.len() - 2 {
            let places = x.len() - 2;
            format!("{} requires a grid [{}, …, {places}], not {}", self.spec(), x[0], grid.spec())
        } else if x[2..].contains(&0) {
            format!("{} has no elements to read", self.spec())
        } else {
            return Ok(());
        };
        Err(Error::shape("grid_sample", message).on([self.spec(), grid.spec()]))
    }

    /// The grid `[n, h, w, 2]` (or `[n, d, h, w, 3]`) for [`Tensor::grid_sample`] of affine maps
    /// `[n, 2, 3]` (or `[n, 3, 4]`), for images of this `size` (`[n, c, h, w]` or
    /// `[n, c, d, h, w]`).
    ///
    /// Derivative: linear in the maps: dθ = dyᵀ · the places before the map.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let identity = Tensor::from([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]);
    /// let grid = identity.affine_grid(&[1, 1, 1, 2], true);
    /// assert_eq!(grid.to_vec::<f64>(), [-1.0, 0.0, 1.0, 0.0]);
    /// ```
    ///
    /// # Panics
    /// If the maps and the size do not fit each other.
    #[track_caller]
    #[must_use]
    pub fn affine_grid(&self, size: &[usize], align_corners: bool) -> Tensor {
        let k = size.len().saturating_sub(2);
        if !(2..=3).contains(&k)
            || self.shape() != [size[0], k, k + 1]
            || size[1..].contains(&0)
            || size[2..].iter().any(|&n| n > LONGEST)
        {
            let message = format!("maps {} do not fit images of size {size:?}", self.spec());
            return self.checked(Err(Error::shape("affine_grid", message).on([self.spec()])));
        }
        let lengths = &size[2..];
        let shape = known_shape("affine_grid", [&[size[0]], lengths, &[k]].concat());
        let line = |n: usize| -> Vec<f64> {
            let edge = if align_corners { 1.0 } else { (n as f64 - 1.0) / n as f64 };
            let step = if n > 1 { 2.0 * edge / (n as f64 - 1.0) } else { 0.0 };
            (0..n).map(|i| if n > 1 { step * i as f64 - edge } else { 0.0 }).collect()
        };
        // x, y (, z) and 1 at every place.
        let mut columns = vec![self.new_ones_with(lengths, DType::F64)];
        for (axis, &n) in lengths.iter().enumerate() {
            let mut thin = vec![1; k];
            thin[axis] = n;
            columns.insert(0, self.new_from_vec(line(n), &thin[..]).expand(lengths));
        }
        let columns: Vec<Tensor> = columns.iter().map(|x| x.reshape([-1])).collect();
        let places = crate::stack(&columns.iter().collect::<Vec<_>>(), 1).cast(self.real_dtype());
        places.product(&self.real().t()).reshape(&shape[..])
    }

    /// Channels `[n, c, …]` in groups, interleaved: the first of each group, then the second of
    /// each, and so on.
    ///
    /// Derivative: dx = dy, put back in order.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([[[1.0], [2.0], [3.0], [4.0]]]);
    /// assert_eq!(x.channel_shuffle(2).to_vec::<f64>(), [1.0, 3.0, 2.0, 4.0]);
    /// ```
    ///
    /// # Panics
    /// If the channels are not divisible by the groups.
    #[track_caller]
    #[must_use]
    pub fn channel_shuffle(&self, groups: usize) -> Tensor {
        let c = self.shape().get(1).copied().unwrap_or(0);
        if self.rank() < 3 || groups == 0 || c % groups != 0 {
            let message =
                format!("the channels of {} are not divisible by {groups} groups", self.spec());
            return self.checked(Err(Error::shape("channel_shuffle", message).on([self.spec()])));
        }
        let rest: usize = self.shape()[2..].iter().product();
        let split = self.reshape([self.shape()[0], groups, c / groups, rest]);
        split.transpose(1, 2).reshape(self.shape()).unaliased_with(&[self])
    }
}
