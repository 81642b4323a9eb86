//! Images at another size: nearest, linear, cubic and area interpolation over the last one, two or
//! three axes.
//!
//! Every mode is separable: along one axis, an output is a weighted sum of a few inputs ("taps"),
//! whose places and weights depend on the lengths alone. So each axis is one pass: a gather per
//! tap, times its weights, added up. Where an output has fewer taps than others, its last one is
//! taken again with weight 0. Area has as many taps as the image shrinks by, and is adaptive
//! average pooling instead.

use crate::checked_alloc::check_list;
use crate::create::known_shape;
use crate::{DType, Error, IntoShape, Tensor};

/// Longer than any image: positions and weights are listed.
const LONGEST: usize = 1 << 28;

/// How [`Interpolate`] computes a value between the given ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterpolateMode {
    /// The element at or before the place: output i takes input ⌊i·in/out⌋.
    Nearest,
    /// The element whose centre is nearest: output i takes input ⌊(i + ½)·in/out⌋.
    NearestExact,
    /// Linear along each axis: linear, bilinear or trilinear by the number of axes.
    Linear,
    /// Cubic convolution along each axis (Keys' kernel with a = −¾).
    Cubic,
    /// The mean of the inputs that an output covers, as adaptive average pooling.
    Area,
}

/// Options for changing the size of an image `[n, c, …]` with one to three axes after the channels.
///
/// ```
/// use pullback::{Interpolate, InterpolateMode, Tensor};
/// let x = Tensor::from([[[1.0, 3.0]]]);
/// let y = Interpolate::to([4]).mode(InterpolateMode::Linear).of(&x);
/// assert_eq!(y.to_vec::<f64>(), [1.0, 1.5, 2.5, 3.0]);
/// let y = Interpolate::by([2.0]).of(&x);
/// assert_eq!(y.to_vec::<f64>(), [1.0, 1.0, 3.0, 3.0]);
/// ```
#[derive(Clone, Debug)]
pub struct Interpolate {
    goal: Goal,
    mode: InterpolateMode,
    align_corners: bool,
    antialias: bool,
    recompute_scale: bool,
}

#[derive(Clone, Debug)]
enum Goal {
    Size(Vec<usize>),
    Factor(Vec<f64>),
}

impl Interpolate {
    fn new(goal: Goal) -> Interpolate {
        let mode = InterpolateMode::Nearest;
        Interpolate { goal, mode, align_corners: false, antialias: false, recompute_scale: false }
    }

    /// To this size: one length for each axis after the channels, or one for all of them.
    ///
    /// ```
    /// use pullback::{Interpolate, Tensor};
    /// let x = Tensor::zeros([1, 3, 8, 8]);
    /// assert_eq!(Interpolate::to([4, 16]).of(&x).shape(), [1, 3, 4, 16]);
    /// ```
    ///
    /// # Panics
    /// If a length is negative.
    #[track_caller]
    #[must_use]
    pub fn to(size: impl IntoShape) -> Interpolate {
        Interpolate::new(Goal::Size(known_shape("interpolate", size).to_vec()))
    }

    /// By these factors: one for each axis after the channels, or one for all of them. A length
    /// becomes ⌊length · factor⌋; along an axis whose length stays, linear (and antialiased)
    /// interpolation copies.
    ///
    /// ```
    /// use pullback::{Interpolate, Tensor};
    /// let x = Tensor::zeros([1, 3, 8, 8]);
    /// assert_eq!(Interpolate::by([0.5, 2.0]).of(&x).shape(), [1, 3, 4, 16]);
    /// ```
    ///
    /// # Panics
    /// Never; [`Interpolate::of`] checks the factors.
    #[must_use]
    pub fn by(factors: impl AsRef<[f64]>) -> Interpolate {
        Interpolate::new(Goal::Factor(factors.as_ref().to_vec()))
    }

    /// The mode; [`InterpolateMode::Nearest`] by default.
    ///
    /// ```
    /// use pullback::{Interpolate, InterpolateMode, Tensor};
    /// let x = Tensor::from([[[1.0, 3.0, 5.0, 9.0]]]);
    /// assert_eq!(Interpolate::to([2]).mode(InterpolateMode::Area).of(&x).to_vec::<f64>(), [2.0, 7.0]);
    /// ```
    #[must_use]
    pub fn mode(mut self, mode: InterpolateMode) -> Interpolate {
        self.mode = mode;
        self
    }

    /// For linear and cubic: the first and last elements keep their places, rather than the outer
    /// edges of the image.
    ///
    /// ```
    /// use pullback::{Interpolate, InterpolateMode, Tensor};
    /// let x = Tensor::from([[[0.0, 3.0]]]);
    /// let resize = Interpolate::to([4]).mode(InterpolateMode::Linear).align_corners(true);
    /// assert_eq!(resize.of(&x).to_vec::<f64>(), [0.0, 1.0, 2.0, 3.0]);
    /// ```
    #[must_use]
    pub fn align_corners(mut self, yes: bool) -> Interpolate {
        self.align_corners = yes;
        self
    }

    /// For bilinear and bicubic: when shrinking, the kernel is widened to cover all inputs.
    ///
    /// ```
    /// use pullback::{Interpolate, InterpolateMode, Tensor};
    /// let x = Tensor::ones([1, 1, 8, 8]);
    /// let resize = Interpolate::to([3]).mode(InterpolateMode::Linear).antialias(true);
    /// let y = resize.of(&x);
    /// assert_eq!(y.shape(), [1, 1, 3, 3]);
    /// assert!((y - 1.0).abs().max().item::<f32>() < 1e-6);
    /// ```
    #[must_use]
    pub fn antialias(mut self, yes: bool) -> Interpolate {
        self.antialias = yes;
        self
    }

    /// Coordinates are computed from the lengths, also where a factor is given; else from the
    /// factor itself.
    ///
    /// ```
    /// use pullback::{Interpolate, InterpolateMode, Tensor};
    /// let x = Tensor::from([[[0.0, 6.0]]]);
    /// // ⌊2 · 1.7⌋ = 3 elements, a distance of 2/3 apart.
    /// let resize = Interpolate::by([1.7]).mode(InterpolateMode::Linear).recompute_scale(true);
    /// let y = resize.of(&x);
    /// assert!((y - Tensor::from([[[0.0, 3.0, 6.0]]])).abs().max().item::<f64>() < 1e-12);
    /// ```
    #[must_use]
    pub fn recompute_scale(mut self, yes: bool) -> Interpolate {
        self.recompute_scale = yes;
        self
    }

    /// The image at its new size.
    ///
    /// Derivative: linear in x; the transpose adds each gradient back with the weight it was taken
    /// with.
    ///
    /// ```
    /// use pullback::{Interpolate, Tensor};
    /// let y = Interpolate::to([4]).of(&Tensor::from([[[1.0, 3.0]]]));
    /// assert_eq!(y.to_vec::<f64>(), [1.0, 1.0, 3.0, 3.0]);
    /// ```
    ///
    /// # Panics
    /// If the image does not have one to three axes after the channels, or the size does not fit
    /// it.
    #[track_caller]
    #[must_use]
    pub fn of(&self, x: &Tensor) -> Tensor {
        let plan = x.checked(self.plan(x));
        let mut shape = x.shape()[..2].to_vec();
        shape.extend(plan.iter().map(|(out, _)| out));
        let _ = known_shape("interpolate", shape);
        if self.mode == InterpolateMode::Area {
            let sizes: Vec<Option<usize>> = plan.iter().map(|&(out, _)| Some(out)).collect();
            return match sizes.len() {
                1 => x.adaptive_avg_pool1d(&sizes[..]),
                2 => x.adaptive_avg_pool2d(&sizes[..]),
                _ => x.adaptive_avg_pool3d(&sizes[..]),
            };
        }
        let dtype = x.dtype();
        let exact = matches!(self.mode, InterpolateMode::Nearest | InterpolateMode::NearestExact);
        let mut y = if exact { x.clone() } else { x.wide() };
        for (k, &(out, scale)) in plan.iter().enumerate() {
            let length = x.shape()[k + 2];
            // Up to four taps, or as many as an output is narrower than the image.
            let taps = if self.antialias { length / out + 4 } else { 4 };
            check_list("interpolate", out.saturating_mul(taps), 16, &[x.spec()]);
            let taps = self.taps(length, out, scale, dtype);
            y = y.tapped(k + 2, &taps);
        }
        if exact { y.unaliased_with(&[x]) } else { y.cast(x.real_dtype()).unaliased_with(&[x]) }
    }

    /// The new length and the factor (if it counts) of each axis.
    fn plan(&self, x: &Tensor) -> crate::Result<Vec<(usize, Option<f64>)>> {
        let refuse = |message: String| Err(Error::argument("interpolate", message).on([x.spec()]));
        if !(3..=5).contains(&x.rank()) {
            let message = format!("takes [n, c, …] with one to three more axes, not {}", x.spec());
            return Err(Error::shape("interpolate", message).on([x.spec()]));
        }
        let lengths = &x.shape()[2..];
        let n = match &self.goal {
            Goal::Size(size) => size.len(),
            Goal::Factor(factors) => factors.len(),
        };
        if n != 1 && n != lengths.len() {
            return refuse(format!("{} has {} axes to resize, not {n}", x.spec(), lengths.len()));
        }
        if self.antialias
            && (lengths.len() != 2
                || !matches!(self.mode, InterpolateMode::Linear | InterpolateMode::Cubic))
        {
            return refuse("antialias is for bilinear and bicubic images `[n, c, h, w]`".into());
        }
        if self.mode == InterpolateMode::Cubic && lengths.len() != 2 {
            return refuse(format!("cubic takes [n, c, h, w], not {}", x.spec()));
        }
        if self.align_corners
            && !matches!(self.mode, InterpolateMode::Linear | InterpolateMode::Cubic)
        {
            return refuse(format!("align_corners is for linear and cubic, not {:?}", self.mode));
        }
        let mut plan = Vec::with_capacity(lengths.len());
        for (k, &length) in lengths.iter().enumerate() {
            let i = k.min(n - 1);
            let (out, scale) = match &self.goal {
                Goal::Size(size) => (size[i], None),
                Goal::Factor(factors) => {
                    let out = (length as f64 * factors[i]).floor();
                    if !(0.0..=1e15).contains(&out) {
                        return refuse(format!("{} is not a factor", factors[i]));
                    }
                    (out as usize, Some(factors[i]).filter(|_| !self.recompute_scale))
                }
            };
            if out == 0 || length == 0 || out > LONGEST {
                let message = format!("axis {} of {} cannot become {out} long", k + 2, x.spec());
                return Err(Error::shape("interpolate", message).on([x.spec()]));
            }
            plan.push((out, scale));
        }
        Ok(plan)
    }

    /// Where each output along an axis of this length comes from.
    fn taps(&self, length: usize, out: usize, factor: Option<f64>, dtype: DType) -> Taps {
        let (n, m) = (length as f64, out as f64);
        let scale = match (self.align_corners, factor) {
            (true, _) => {
                if out > 1 {
                    (n - 1.0) / (m - 1.0)
                } else {
                    0.0
                }
            }
            (false, Some(factor)) => 1.0 / factor,
            (false, None) => n / m,
        };
        let last = length as i64 - 1;
        // PyTorch copies along an axis whose length stays, whatever the factor.
        if length == out && (self.mode == InterpolateMode::Linear || self.antialias) {
            return Taps::of(out, 1, |i, _| (i as i64, 1.0));
        }
        match self.mode {
            InterpolateMode::Nearest | InterpolateMode::NearestExact => {
                let shift = if self.mode == InterpolateMode::NearestExact { 0.5 } else { 0.0 };
                // As PyTorch, in the precision of the image: which of two elements is taken may
                // depend on it.
                let place = |i: usize| match dtype {
                    DType::F64 => ((i as f64 + shift) * scale) as f32,
                    _ => (i as f32 + shift as f32) * scale as f32,
                };
                Taps::of(out, 1, |i, _| ((place(i).floor() as i64).min(last), 1.0))
            }
            InterpolateMode::Linear | InterpolateMode::Cubic if self.antialias => {
                self.smooth(length, out, scale)
            }
            InterpolateMode::Linear => Taps::of(out, 2, |i, tap| {
                let place = match self.align_corners {
                    true => scale * i as f64,
                    false => (scale * (i as f64 + 0.5) - 0.5).max(0.0),
                };
                let at = (place.floor() as i64).min(last);
                let t = (place - at as f64).clamp(0.0, 1.0);
                if tap == 0 { (at, 1.0 - t) } else { ((at + 1).min(last), t) }
            }),
            InterpolateMode::Cubic => Taps::of(out, 4, |i, tap| {
                let place = match self.align_corners {
                    true => scale * i as f64,
                    false => scale * (i as f64 + 0.5) - 0.5,
                };
                let at = place.floor();
                let index = at as i64 + tap as i64 - 1;
                (index.clamp(0, last), cubic(place - at + 1.0 - tap as f64, -0.75))
            }),
            InterpolateMode::Area => unreachable!("pooled instead"),
        }
    }

    /// The kernel widened by the scale where that is above 1, its weights adding up to 1.
    fn smooth(&self, length: usize, out: usize, scale: f64) -> Taps {
        let radius = if self.mode == InterpolateMode::Linear { 1.0 } else { 2.0 };
        let support = radius * scale.max(1.0);
        let inverse = 1.0 / scale.max(1.0);
        let kernel = |x: f64| match self.mode {
            InterpolateMode::Linear => (1.0 - x.abs()).max(0.0),
            _ => cubic(x, -0.5),
        };
        let rows: Vec<(i64, Vec<f64>)> = (0..out)
            .map(|i| {
                let centre = scale * (i as f64 + 0.5);
                let from = ((centre - support + 0.5) as i64).max(0);
                let to = ((centre + support + 0.5) as i64).min(length as i64).max(from + 1);
                let weight = |j: i64| kernel((j as f64 - centre + 0.5) * inverse);
                let weights: Vec<f64> = (from..to).map(weight).collect();
                let total: f64 = weights.iter().sum();
                (
                    from,
                    weights.into_iter().map(|w| if total == 0.0 { w } else { w / total }).collect(),
                )
            })
            .collect();
        let widest = rows.iter().map(|(_, w)| w.len()).max().unwrap_or(1);
        Taps::of(out, widest, |i, tap| {
            let (from, weights) = &rows[i];
            let index = from + tap.min(weights.len() - 1) as i64;
            (index.min(length as i64 - 1), weights.get(tap).copied().unwrap_or(0.0))
        })
    }
}

/// Keys' cubic convolution kernel.
fn cubic(x: f64, a: f64) -> f64 {
    let x = x.abs();
    if x <= 1.0 {
        ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a
    } else {
        0.0
    }
}

/// For each tap the indices and weights of all outputs along an axis.
struct Taps(Vec<(Vec<i64>, Vec<f64>)>);

impl Taps {
    fn of(out: usize, taps: usize, f: impl Fn(usize, usize) -> (i64, f64)) -> Taps {
        Taps((0..taps).map(|tap| (0..out).map(|i| f(i, tap)).unzip()).collect())
    }
}

impl Tensor {
    /// The weighted sum of the taps along an axis.
    #[track_caller]
    fn tapped(&self, axis: usize, taps: &Taps) -> Tensor {
        let mut sum: Option<Tensor> = None;
        for (index, weights) in &taps.0 {
            let whole = index.len() == self.shape()[axis]
                && index.iter().enumerate().all(|(i, &k)| k == i as i64);
            let picked = match whole {
                true => self.clone(),
                false => self.index_select(axis as isize, &self.new_tensor(index.clone())),
            };
            let mut shape = vec![1; self.rank()];
            shape[axis] = weights.len();
            let weight = self.new_from_vec(weights, &shape[..]).cast(self.real_dtype());
            let term = if weights.iter().all(|&w| w == 1.0) { picked } else { picked * weight };
            sum = Some(match sum {
                Some(sum) => sum + term,
                None => term,
            });
        }
        sum.unwrap_or_else(|| self.clone())
    }

    /// Each element repeated `factor` times along every axis after the channels.
    ///
    /// Derivative: dx = the sum of dy over the repetitions.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([[[1.0, 3.0]]]).upsample_nearest(2);
    /// assert_eq!(y.to_vec::<f64>(), [1.0, 1.0, 3.0, 3.0]);
    /// ```
    ///
    /// # Panics
    /// If the image does not have one to three axes after the channels, or the factor gives an
    /// empty axis.
    #[track_caller]
    #[must_use]
    pub fn upsample_nearest(&self, factor: usize) -> Tensor {
        let lead = 2.min(self.rank());
        let grown = |n: &usize| n.saturating_mul(factor);
        Interpolate::to(self.shape()[lead..].iter().map(grown).collect::<Vec<_>>()).of(self)
    }

    /// [`Interpolate`] in linear mode by a factor, with the corners in place.
    ///
    /// Derivative: linear in x; the transpose adds each gradient back with the weight it was taken
    /// with.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let y = Tensor::from([[[0.0, 3.0]]]).upsample_bilinear(2.0);
    /// assert_eq!(y.to_vec::<f64>(), [0.0, 1.0, 2.0, 3.0]);
    /// ```
    ///
    /// # Panics
    /// If the image does not have one to three axes after the channels, or the factor gives an
    /// empty axis.
    #[track_caller]
    #[must_use]
    pub fn upsample_bilinear(&self, factor: f64) -> Tensor {
        Interpolate::by([factor]).mode(InterpolateMode::Linear).align_corners(true).of(self)
    }
}
