//! Rotary position embeddings: queries and keys rotated by angles that grow with their position, so
//! that their products depend on distances alone.

use crate::refuse::refuse;
use pullback::{DType, Error, Tensor, Tree, cat, stack};

/// Rotary position embeddings (RoPE): rotates pairs of features by the angle position ·
/// base^(−2i/d), where i is the number of the pair and d the number of rotated features. The shape
/// `[.., positions, features]` stays.
///
/// Pairs are the features i and i + d/2 (as in GPT-NeoX and Llama's files), or neighbours if
/// [`Rotary::interleaved`] (as in the paper). It has no parameters. Angles are computed in `f64`,
/// so that far positions do not lose digits.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::Rotary;
/// let rotary = Rotary::new(4);
/// let x = Tensor::ones([2, 3, 4]);
/// // The first position is not rotated.
/// assert_eq!(rotary.rotate(&x, 0).at((0, 0)).to_vec::<f32>(), [1.0; 4]);
/// // Position 2 of a sequence is position 0 of one that starts two later.
/// let (a, b) = (rotary.rotate(&x, 0).at((0, 2)), rotary.rotate(&x, 2).at((0, 0)));
/// assert_eq!(a.to_vec::<f32>(), b.to_vec::<f32>());
/// ```
#[derive(Clone, Copy, Debug, Tree)]
#[must_use]
pub struct Rotary {
    features: usize,
    base: f64,
    interleaved: bool,
}

impl Rotary {
    /// Rotates the first `features` features of a head (an even number), with a base of 10000.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::Rotary;
    /// let x = Tensor::randn([2, 3, 8]);
    /// let y = Rotary::new(4).rotate(&x, 0);
    /// assert_eq!(y.shape(), [2, 3, 8]);
    /// // The other features stay as they are.
    /// assert_eq!(y.narrow(-1, 4, 4).to_vec::<f32>(), x.narrow(-1, 4, 4).to_vec::<f32>());
    /// ```
    pub fn new(features: usize) -> Rotary {
        Rotary { features, base: 10_000.0, interleaved: false }
    }

    /// The base of the angles, 10000 by default: the larger it is, the slower the angles of later
    /// pairs grow with the position.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::Rotary;
    /// let x = Tensor::from([[0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 1.0, 0.0]]);
    /// let angle =
    ///     |rotary: Rotary| rotary.interleaved().rotate(&x, 0).at((1, 3)).item::<f64>().asin();
    /// assert!((angle(Rotary::new(4)) - 0.01).abs() < 1e-9);
    /// assert!((angle(Rotary::new(4).base(1e6)) - 0.001).abs() < 1e-9);
    /// ```
    pub fn base(self, base: f64) -> Rotary {
        Rotary { base, ..self }
    }

    /// Pairs neighbouring features, instead of i and i + d/2.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::Rotary;
    /// let x = Tensor::from([[1.0, 0.0, 0.0, 0.0]]);
    /// let y = Rotary::new(4).interleaved().rotate(&x, 1).to_vec::<f64>();
    /// assert!((y[0] - 1f64.cos()).abs() < 1e-12 && (y[1] - 1f64.sin()).abs() < 1e-12);
    /// ```
    pub fn interleaved(self) -> Rotary {
        Rotary { interleaved: true, ..self }
    }

    /// Rotates `x`, `[.., positions, features]`, whose first position has the number `offset`.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::Rotary;
    /// let x = Tensor::from([[1.0, 0.0]]);
    /// let y = Rotary::new(2).rotate(&x, 3).to_vec::<f64>();
    /// assert!((y[0] - 3f64.cos()).abs() < 1e-12 && (y[1] - 3f64.sin()).abs() < 1e-12);
    /// ```
    ///
    /// # Panics
    /// If `x` has fewer features than are rotated, or their number is odd.
    #[track_caller]
    #[must_use]
    pub fn rotate(&self, x: &Tensor, offset: usize) -> Tensor {
        let length = x.shape().len().checked_sub(2).map_or(0, |axis| x.shape()[axis]);
        self.rotate_at(x, &x.new_arange(offset as i64, (offset + length) as i64))
    }

    /// Rotates `x`, `[.., positions, features]`, with these positions (`[positions]`, integers).
    /// They may be values that a compiled function computes.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// # use pullback_nn::Rotary;
    /// let x = Tensor::from([[1.0, 0.0], [1.0, 0.0]]);
    /// let y = Rotary::new(2).rotate_at(&x, &Tensor::from([0i64, 3]));
    /// assert!((y.at((1, 0)).item::<f64>() - 3f64.cos()).abs() < 1e-12);
    /// ```
    ///
    /// # Panics
    /// If `x` has fewer features than are rotated, their number is odd, or there is not one
    /// position for each of `x`.
    #[track_caller]
    #[must_use]
    pub fn rotate_at(&self, x: &Tensor, positions: &Tensor) -> Tensor {
        let turned = self.features;
        if x.rank() < 2 || x.shape()[x.rank() - 1] < turned || turned % 2 == 1 {
            let message = match turned % 2 {
                1 => {
                    format!("rotates pairs of features, so their number must be even, not {turned}")
                }
                _ => format!("takes [.., positions, {turned} features or more], not {}", x.spec()),
            };
            refuse(Error::shape("Rotary", message).on([x.spec()]));
        }
        if positions.rank() != 1 || positions.len() != x.shape()[x.rank() - 2] {
            let message = format!("{} takes one position each, not {}", x.spec(), positions.spec());
            refuse(Error::shape("Rotary", message).on([x.spec(), positions.spec()]));
        }
        let pairs = turned / 2;
        let speed = |i: usize| self.base.powf(-2.0 * i as f64 / turned as f64);
        let speeds = x.new_tensor((0..pairs).map(speed).collect::<Vec<f64>>());
        let angles = positions.cast(DType::F64).unsqueeze(1) * speeds;
        let (cos, sin) = (angles.cos().cast(x.dtype()), angles.sin().cast(x.dtype()));
        let part = x.narrow(-1, 0, turned);
        let (a, b) = if self.interleaved {
            let split = part.unflatten(-1, [pairs, 2]);
            (split.select_at(-1, 0), split.select_at(-1, 1))
        } else {
            (part.narrow(-1, 0, pairs), part.narrow(-1, pairs as isize, pairs))
        };
        let (first, second) = (&a * &cos - &b * &sin, a * sin + b * cos);
        let y = match self.interleaved {
            true => stack(&[&first, &second], -1).flatten(-2, -1),
            false => cat(&[&first, &second], -1),
        };
        let rest = x.shape()[x.rank() - 1] - turned;
        match rest {
            0 => y,
            _ => cat(&[&y, &x.narrow(-1, turned as isize, rest)], -1),
        }
    }
}
