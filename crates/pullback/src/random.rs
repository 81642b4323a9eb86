//! Random numbers as pure functions of a key.
//!
//! A draw has no hidden state: an element is determined by the key and its index alone, so the same
//! key gives the same bits for any number of threads, and drawing again (as recomputation in a
//! checkpoint does) gives the same values. Where new randomness is wanted, a new key is made:
//! [`Key::split`] and [`Key::fold_in`] give keys whose draws are independent of each other and of
//! those of the key they came from.
//!
//! For programs that do not want to carry keys there is one global generator, which returns a
//! fresh key per call: [`next_key`], seeded by [`manual_seed`].

mod generator;

pub(crate) use generator::{Draws, States, noting, repeating, states};
pub use generator::{
    manual_seed, next_key, next_key_on, random_state, random_states, set_random_state,
};

use crate::apply::apply;
use crate::checked_alloc::{TENSOR, check_list};
use crate::create::known_shape;
use crate::ops::cat;
use crate::{
    DType, Device, Error, IntoDevice, IntoShape, Op, Shape, Spec, Tensor, fail, mode, trace,
};
use pullback_ir::{Line, Random};

/// What all the numbers of one draw are determined by.
///
/// A key is not used up: two draws from one key are the same draw. Use each key once.
///
/// ```
/// use pullback::{DType, Key};
/// let (a, b) = Key::new(42).split();
/// let x = a.normal([3], DType::F64, 0.0, 1.0);
/// assert_eq!(x.to_vec::<f64>(), a.normal([3], DType::F64, 0.0, 1.0).to_vec::<f64>());
/// assert_ne!(x.to_vec::<f64>(), b.normal([3], DType::F64, 0.0, 1.0).to_vec::<f64>());
/// ```
#[derive(Clone, Debug)]
pub struct Key(Tensor);

/// Added to a key before new keys are drawn from it, so that they are independent of the numbers
/// drawn from it.
const SPLIT: u64 = 0x9E37_79B9_7F4A_7C15;

/// A bijection that spreads small differences over all bits (the finaliser of SplitMix64).
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[track_caller]
fn refuse(op: &'static str, message: String, on: &[&Spec]) -> ! {
    let at = mode::user_line(Line::caller());
    fail::raise(Error::argument(op, message).on(on.iter().copied()).at(at))
}

#[track_caller]
fn refuse_dtype(op: &'static str, dtype: DType) -> ! {
    let at = mode::user_line(Line::caller());
    fail::raise(Error::dtype(op, format!("draws floats, not {dtype}")).at(at))
}

impl Key {
    /// The key of a seed.
    ///
    /// ```
    /// # use pullback::{DType, Key};
    /// assert_eq!(Key::new(42).uniform([2, 3], DType::F32, 0.0, 1.0).shape(), [2, 3]);
    /// ```
    ///
    /// # Panics
    /// Never.
    #[track_caller]
    #[must_use]
    pub fn new(seed: u64) -> Key {
        Key::from_parts(seed, 0)
    }

    #[track_caller]
    fn from_parts(seed: u64, stream: u64) -> Key {
        Key(Tensor::from([seed as i64, stream as i64]))
    }

    /// The same key on a device: what is drawn from it is made there.
    ///
    /// ```
    /// # use pullback::{DType, Device, Key};
    /// let x = Key::new(0).to("cpu").uniform([2], DType::F32, 0.0, 1.0);
    /// assert_eq!(x.device(), Device::Cpu);
    /// ```
    ///
    /// # Panics
    /// If the device is not available.
    #[track_caller]
    #[must_use]
    pub fn to(&self, device: impl IntoDevice) -> Key {
        Key(self.0.to(device))
    }

    /// The key as a tensor, `i64[2]`.
    ///
    /// ```
    /// # use pullback::Key;
    /// assert_eq!(Key::new(7).tensor().to_vec::<i64>(), [7, 0]);
    /// ```
    pub fn tensor(&self) -> &Tensor {
        &self.0
    }

    /// The key that a tensor of two `i64` holds, as [`Key::tensor`] gave it.
    ///
    /// ```
    /// # use pullback::Key;
    /// let key = Key::from_tensor(Key::new(7).tensor());
    /// assert_eq!(key.tensor().to_vec::<i64>(), [7, 0]);
    /// ```
    ///
    /// # Panics
    /// If the tensor is not `i64[2]`.
    #[track_caller]
    #[must_use]
    pub fn from_tensor(tensor: &Tensor) -> Key {
        if tensor.dtype() != DType::I64 || tensor.shape() != [2] {
            refuse("key", format!("a key is i64[2], not {}", tensor.spec()), &[tensor.spec()]);
        }
        Key(tensor.clone())
    }

    #[track_caller]
    fn draw(&self, kind: Random, shape: &[usize], dtype: DType) -> Tensor {
        apply(Op::Random { kind, shape: Shape::from_slice(shape), dtype }, &[&self.0])
    }

    /// The key of another stream of the same seed.
    #[track_caller]
    fn stream(&self, offset: u64) -> Key {
        let numbers = match self.0.device() {
            Device::Cpu => self.0.new_tensor([0, offset as i64]),
            // Made there: an upload costs more than an op.
            Device::Cuda(_) => self.0.new_iota(2) * offset as i64,
        };
        Key(&self.0 + numbers)
    }

    /// Two new keys.
    ///
    /// ```
    /// # use pullback::Key;
    /// let (model, data) = Key::new(0).split();
    /// assert_ne!(model.tensor().to_vec::<i64>(), data.tensor().to_vec::<i64>());
    /// ```
    ///
    /// # Panics
    /// Never.
    #[track_caller]
    #[must_use]
    pub fn split(&self) -> (Key, Key) {
        let bits = self.stream(SPLIT).draw(Random::Bits, &[2, 2], DType::I64);
        (Key(bits.select_at(0, 0)), Key(bits.select_at(0, 1)))
    }

    /// `n` new keys; the first two are those of [`Key::split`].
    ///
    /// ```
    /// # use pullback::Key;
    /// assert_eq!(Key::new(0).split_n(5).len(), 5);
    /// ```
    ///
    /// # Panics
    /// If the list is larger than memory.
    #[track_caller]
    #[must_use]
    pub fn split_n(&self, n: usize) -> Vec<Key> {
        check_list("split_n", n, TENSOR, &[]);
        let bits = self.stream(SPLIT).draw(Random::Bits, &[n, 2], DType::I64);
        let mut keys = Vec::with_capacity(n);
        for i in 0..n {
            keys.push(Key(bits.select_at(0, i as isize)));
        }
        keys
    }

    /// `n` new keys as one tensor, `i64[n,2]`.
    #[track_caller]
    pub(crate) fn split_tensor(&self, n: usize) -> Tensor {
        self.stream(SPLIT).draw(Random::Bits, &[n, 2], DType::I64)
    }

    /// A new key for each number: a step count, the index of a layer.
    ///
    /// ```
    /// # use pullback::Key;
    /// let key = Key::new(0);
    /// let first = key.fold_in(1).tensor().to_vec::<i64>();
    /// assert_eq!(first, key.fold_in(1).tensor().to_vec::<i64>());
    /// assert_ne!(first, key.fold_in(2).tensor().to_vec::<i64>());
    /// ```
    ///
    /// # Panics
    /// Never.
    #[track_caller]
    #[must_use]
    pub fn fold_in(&self, data: u64) -> Key {
        // Mixing zero gives zero, so what is mixed is never the number itself.
        let offset = mix(data.wrapping_add(SPLIT));
        Key(self.stream(offset).draw(Random::Bits, &[2], DType::I64))
    }

    /// Uniform numbers in [low, high), of a float dtype. (Rounding may give `high` itself where it
    /// is the neighbour of a number below it.)
    ///
    /// ```
    /// # use pullback::{DType, Key};
    /// let x = Key::new(0).uniform([100], DType::F64, -1.0, 1.0).to_vec::<f64>();
    /// assert!(x.iter().all(|x| (-1.0..1.0).contains(x)));
    /// ```
    ///
    /// # Panics
    /// If the dtype is not a float, or the bounds are not finite and in order.
    #[track_caller]
    #[must_use]
    pub fn uniform(&self, shape: impl IntoShape, dtype: DType, low: f64, high: f64) -> Tensor {
        let shape = known_shape("uniform", shape);
        if !dtype.is_float() {
            refuse_dtype("uniform", dtype);
        }
        if !(low <= high && (high - low).is_finite()) {
            refuse(
                "uniform",
                format!("the bounds must be finite and in order, not {low} and {high}"),
                &[],
            );
        }
        let unit = self.draw(Random::Uniform, &shape, dtype);
        match (low, high) {
            (0.0, 1.0) => unit,
            (0.0, _) => unit * high,
            _ => unit * (high - low) + low,
        }
    }

    /// Normal numbers of a float dtype.
    ///
    /// ```
    /// # use pullback::{DType, Key};
    /// let x = Key::new(0).normal([2, 3], DType::F32, 0.0, 0.02);
    /// assert_eq!(x.spec().to_string(), "f32[2,3]");
    /// ```
    ///
    /// # Panics
    /// If the dtype is not a float, or the deviation is negative or NaN.
    #[track_caller]
    #[must_use]
    pub fn normal(&self, shape: impl IntoShape, dtype: DType, mean: f64, std: f64) -> Tensor {
        let shape = known_shape("normal", shape);
        if !dtype.is_float() {
            refuse_dtype("normal", dtype);
        }
        if !(std >= 0.0 && std.is_finite() && mean.is_finite()) {
            refuse(
                "normal",
                format!("no distribution has mean {mean} and standard deviation {std}"),
                &[],
            );
        }
        let standard = self.draw(Random::Normal, &shape, dtype);
        match (mean, std) {
            (0.0, 1.0) => standard,
            (0.0, _) => standard * std,
            _ => standard * std + mean,
        }
    }

    /// 1 with probability `p` of that element, 0 otherwise, in the dtype of `p`. The gradient with
    /// respect to `p` is zero.
    ///
    /// ```
    /// # use pullback::{Key, Tensor};
    /// let x = Key::new(0).bernoulli(&Tensor::from([0.0, 1.0]));
    /// assert_eq!(x.to_vec::<f64>(), [0.0, 1.0]);
    /// ```
    ///
    /// # Panics
    /// If `p` is not of a float dtype, or has an element outside [0, 1].
    #[track_caller]
    #[must_use]
    pub fn bernoulli(&self, p: &Tensor) -> Tensor {
        if !p.dtype().is_float() {
            refuse_dtype("bernoulli", p.dtype());
        }
        // In the dtype that kernels compute in: 8 bits of a `bf16` are too coarse for a
        // probability.
        let chance = p.cast(p.dtype().compute());
        let seen = chance.detach();
        if trace::on_host(&seen) && !seen.ge(0.0).logical_and(seen.le(1.0)).all().item::<bool>() {
            let range = format!("from {} to {}", seen.min(), seen.max());
            refuse(
                "bernoulli",
                format!("probabilities must be between 0 and 1, not {range}"),
                &[p.spec()],
            );
        }
        self.draw(Random::Uniform, p.shape(), chance.dtype()).lt(&chance).cast(p.dtype())
    }

    /// True with probability `p`, as `bool`.
    ///
    /// ```
    /// # use pullback::Key;
    /// assert!(Key::new(0).bernoulli_mask([10], 1.0).all().item::<bool>());
    /// ```
    ///
    /// # Panics
    /// If `p` is outside [0, 1].
    #[track_caller]
    #[must_use]
    pub fn bernoulli_mask(&self, shape: impl IntoShape, p: f64) -> Tensor {
        let shape = known_shape("bernoulli_mask", shape);
        if !(0.0..=1.0).contains(&p) {
            refuse(
                "bernoulli_mask",
                format!("a probability must be between 0 and 1, not {p}"),
                &[],
            );
        }
        self.draw(Random::Uniform, &shape, DType::F32).lt(p)
    }

    /// Integers from `low` up to, not including, `high`, as `i64`.
    ///
    /// They are 64 random bits modulo the number n of integers in the range, so that some are
    /// likelier than others by a factor of at most 1 + n/2⁶³: for a range of a billion, by one part
    /// in nine billion.
    ///
    /// ```
    /// # use pullback::Key;
    /// let dice = Key::new(0).randint([100], 1, 7).to_vec::<i64>();
    /// assert!(dice.iter().all(|n| (1..7).contains(n)));
    /// ```
    ///
    /// # Panics
    /// If the range is empty, or longer than an `i64` can count.
    #[track_caller]
    #[must_use]
    pub fn randint(&self, shape: impl IntoShape, low: i64, high: i64) -> Tensor {
        let shape = known_shape("randint", shape);
        let Some(count) = high.checked_sub(low).filter(|&n| n > 0) else {
            let why = if low < high { "is too long" } else { "is empty" };
            refuse("randint", format!("the range from {low} up to {high} {why}"), &[]);
        };
        self.draw(Random::Bits, &shape, DType::I64).remainder(count) + low
    }

    /// 0, 1, …, n − 1 in random order; every order is as likely.
    ///
    /// ```
    /// # use pullback::Key;
    /// let mut order = Key::new(0).permutation(5).to_vec::<i64>();
    /// order.sort();
    /// assert_eq!(order, [0, 1, 2, 3, 4]);
    /// ```
    ///
    /// # Panics
    /// If the elements do not fit in memory.
    #[track_caller]
    #[must_use]
    pub fn permutation(&self, n: usize) -> Tensor {
        self.draw(Random::Bits, &[n], DType::I64).argsort(0, false)
    }

    /// Indices into the last axis of `weights`, each as likely as its weight: `[.., k]` gives
    /// `i64[.., samples]`.
    ///
    /// Weights need not sum to one; one of zero is never drawn. Without replacement the indices of
    /// a row are distinct, and are in the order in which they were drawn.
    ///
    /// ```
    /// # use pullback::{Key, Tensor};
    /// let weights = Tensor::from([0.0, 3.0, 0.0, 1.0]);
    /// let mut both = Key::new(0).multinomial(&weights, 2, false).to_vec::<i64>();
    /// both.sort();
    /// assert_eq!(both, [1, 3]);
    /// ```
    ///
    /// # Panics
    /// If a weight is negative, NaN or infinite, a row has only zeros, or has fewer positive
    /// weights than samples are to be drawn without replacement. Inside a trace the weights are not
    /// known, and such a row gives `k`, which is past the last index.
    #[track_caller]
    #[must_use]
    pub fn multinomial(&self, weights: &Tensor, samples: usize, replacement: bool) -> Tensor {
        let op = "multinomial";
        if weights.rank() == 0 {
            refuse(op, "the weights have no axis to draw from".to_string(), &[weights.spec()]);
        }
        let w = weights.detach().cast(DType::F64);
        let mut shape: Shape = Shape::from_slice(w.shape());
        shape[w.rank() - 1] = samples;
        if shape.iter().product::<usize>() == 0 {
            return weights.new_zeros_with(&shape[..], DType::I64);
        }
        if w.is_empty() {
            refuse(op, "there are no weights to draw by".to_string(), &[weights.spec()]);
        }
        let positive = w.gt(0.0);
        if trace::on_host(&w) {
            check_weights(weights, &w, &positive, (samples, replacement));
        }
        let drawn = match replacement {
            true => self.with_replacement(&(&w / w.max()), &positive, &shape),
            false => self.exponential_race(&w, &positive, samples),
        };
        if trace::on_host(&w) {
            return drawn;
        }
        // Checked when the program runs: an index past the last, which indexing refuses.
        let enough = if replacement { 1 } else { samples as i64 };
        let right = w.ge(0.0).logical_and(w.is_finite()).all_over(-1);
        let right = right.logical_and(positive.sum_over(-1).ge(enough)).unsqueeze(-1);
        right.select(drawn, w.shape()[w.rank() - 1] as i64)
    }

    /// An exponential race: waiting times of rate w finish in the order of draws without
    /// replacement. In logarithms, so that no weight is too small.
    #[track_caller]
    fn exponential_race(&self, w: &Tensor, positive: &Tensor, samples: usize) -> Tensor {
        let unit = 1.0 - self.draw(Random::Uniform, w.shape(), DType::F64);
        let time = (-unit.log()).log() - w.log();
        let never = w.new_tensor(f64::INFINITY);
        positive.select(&time, &never).argsort(-1, false).narrow(-1, 0, samples)
    }

    /// The inverse of the cumulative weights, found by sorting them together with uniform numbers:
    /// the number of cumulative weights that are sorted before a number is its index.
    #[track_caller]
    fn with_replacement(&self, w: &Tensor, positive: &Tensor, shape: &[usize]) -> Tensor {
        let (k, samples) = (w.shape()[w.rank() - 1], shape[shape.len() - 1]);
        // Rounding may make a running sum uneven, also over a weight of zero: its step is exactly
        // none here.
        let none = w.new_tensor(f64::NEG_INFINITY);
        let below = positive.select(w.cumsum(-1), &none).cummax(-1);
        let total = below.narrow(-1, k as isize - 1, 1);
        let points = self.draw(Random::Uniform, shape, DType::F64) * total;
        // Sorting is stable, so a cumulative weight comes before a number equal to it.
        let order = cat(&[&below, &points], -1).argsort(-1, false);
        let seen = order.lt(k).cast(DType::I64).cumsum(-1);
        let counts = order.zeros_like_splat().scatter(-1, &order, &seen);
        counts.narrow(-1, k as isize, samples).contiguous()
    }
}

/// Refuses weights that cannot be drawn by.
#[track_caller]
fn check_weights(weights: &Tensor, w: &Tensor, positive: &Tensor, draws: (usize, bool)) {
    let (op, on) = ("multinomial", &[weights.spec()]);
    let (low, high) = (w.min().item::<f64>(), w.max().item::<f64>());
    if low.is_nan() || low.is_infinite() || high.is_infinite() {
        let odd = if low.is_nan() || low.is_infinite() { low } else { high };
        refuse(op, format!("weights must be finite, and one is {odd}"), on);
    }
    if low < 0.0 {
        refuse(op, format!("weights must not be negative, and one is {low}"), on);
    }
    let choices = positive.sum_over(-1).min().item::<i64>();
    if choices == 0 {
        refuse(op, "the weights of a row are all zero".to_string(), on);
    }
    let (samples, replacement) = draws;
    if !replacement && (choices as usize) < samples {
        let message = format!(
            "{samples} samples without replacement need as many positive weights, but a row has {choices}"
        );
        refuse(op, message, on);
    }
}
