//! Operations with a kernel that does in one go what others compose.

use crate::Real;

/// Operations that are compositions of others, with a kernel that does them in one go.
///
/// The `…Vjp` ones are what backward runs; where backward itself is differentiated, their
/// decomposition is, so no double backward is written by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fused {
    /// `exp(x) / sum(exp(x))` along an axis.
    Softmax(usize),
    /// From `y`, `dy`: `y · (dy − sum(y·dy))`.
    SoftmaxVjp(usize),
    /// `x − log(sum(exp(x)))` along an axis.
    LogSoftmax(usize),
    /// From `y`, `dy`: `dy − exp(y) · sum(dy)`.
    LogSoftmaxVjp(usize),
    /// `log(sum(exp(x)))` along an axis, which disappears.
    LogSumExp(usize),
    /// From `x`, `w`, `b`: normalised over the axes of `w` (the last ones), then `· w + b`.
    LayerNorm(Real),
    /// From `x`, `w`, `dy`: `dx`, `dw`, `db`.
    LayerNormVjp(Real),
    /// From `x` `[n, c, …]`, `w` `[c]`, `b` `[c]`: each channel normalised over all other axes, then `· w + b`; and the mean and the
    /// (biased) variance of each channel, in the compute type.
    BatchNorm(Real),
    /// From `x`, `w`, the mean, the variance and `dy`: `dx`, `dw`, `db`.
    BatchNormVjp(Real),
    /// From logits `[n, c]` and classes `i64[n]`: `logsumexp(row) − row[class]`, `[n]`.
    CrossEntropy,
    /// From logits, classes and `dy`: `(softmax(row) − onehot(class)) · dy`.
    CrossEntropyVjp,
    /// From queries `[b…, h, l, d]`, keys `[b…, g, s, d]`, values `[b…, g, s, e]`, a mask `[b…, h, l, s]` if it has one
    /// (added, or of `bool`: true where a query may look), and a key `i64[2]` if it drops (or one for each index of the first
    /// batch axes, `i64[p…, 2]`, from which the weights of that part are drawn):
    /// `softmax(q·kᵀ·scale + mask)·v`, and the log-sum-exp of each row of scores, in the compute type.
    Attention(Attention),
    /// From the operands of [`Fused::Attention`], its two results and the cotangent of the first: `dq`, `dk`, `dv`.
    AttentionVjp(Attention),
    /// A step of gradient descent, from a parameter, its momentum if there is one, its gradient, the number of the
    /// step (`i64[]`, the first is 1) if there is momentum, and the rate (a float `[]`): the new parameter and momentum.
    Sgd(Sgd),
    /// A step of Adam, from a parameter, the running means of its gradient and of its gradient's square, the largest of the
    /// latter if it is kept, the gradient, the number of the step (`i64[]`, the first is 1) and the rate (a float `[]`): all but the
    /// last three anew.
    Adam(Adam),
}

/// How gradient descent steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sgd {
    /// How much of the momentum stays.
    pub momentum: Real,
    /// How much of the gradient does not go into the momentum.
    pub dampening: Real,
    /// This much of the parameter is added to its gradient.
    pub decay: Real,
    /// Looks ahead along the momentum.
    pub nesterov: bool,
    /// Ascends.
    pub maximize: bool,
}

impl Sgd {
    /// Whether there is momentum.
    pub fn remembers(&self) -> bool {
        self.momentum != Real(0.0)
    }
}

/// How Adam steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Adam {
    /// How much of the mean of gradients stays.
    pub beta1: Real,
    /// How much of the mean of squares stays.
    pub beta2: Real,
    /// Added to the root of the mean square.
    pub eps: Real,
    /// This much of the parameter is added to its gradient or, decoupled, times the rate taken off it.
    pub decay: Real,
    /// As in AdamW.
    pub decoupled: bool,
    /// Divides by the largest mean square so far.
    pub amsgrad: bool,
    /// Ascends.
    pub maximize: bool,
}

/// How queries look at keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Attention {
    /// Query `i` sees the keys up to `i`.
    pub causal: bool,
    /// There is a mask among the operands.
    pub masked: bool,
    /// What scores are multiplied by.
    pub scale: Real,
    /// The share of weights that is dropped, the others being scaled up; with one, there is a key among the operands.
    pub dropout: Real,
}

impl Attention {
    /// Whether weights are dropped.
    pub fn drops(&self) -> bool {
        self.dropout != Real(0.0)
    }

    /// What weights that are not dropped are multiplied by.
    pub fn keep_scale(&self) -> f64 {
        if self.dropout.0 < 1.0 { 1.0 / (1.0 - self.dropout.0) } else { 0.0 }
    }

    /// How many operands [`Fused::Attention`] has.
    pub fn operands(&self) -> usize {
        3 + usize::from(self.masked) + usize::from(self.drops())
    }
}
