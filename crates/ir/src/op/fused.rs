//! Fused operations: one kernel for a composition of other ops.

use crate::Real;

/// Operations that are compositions of others, with one fused kernel.
///
/// The `…Vjp` ones are what backward runs; when backward itself is differentiated, their
/// decomposition is differentiated, so no double backward is written by hand.
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
    /// From `x` `[n, c, …]`, `w` `[c]`, `b` `[c]`: each channel normalised over all other axes,
    /// then `· w + b`; and the mean and the (biased) variance of each channel, in the compute type,
    /// which `w` and `b` may have too.
    BatchNorm(Real),
    /// From `x`, `w`, the mean, the variance and `dy`: `dx`, `dw`, `db`.
    BatchNormVjp(Real),
    /// From logits `[n, c]` and classes `i64[n]`: `logsumexp(row) − row[class]`, `[n]`, in the
    /// compute type.
    CrossEntropy,
    /// From logits, classes and `dy` in the compute type: `(softmax(row) − onehot(class)) · dy`,
    /// in the dtype of the logits, and the losses of [`Fused::CrossEntropy`], which it computes
    /// on the way.
    CrossEntropyVjp,
    /// From queries `[b…, h, l, d]`, keys `[b…, g, s, d]`, values `[b…, g, s, e]`, a mask
    /// `[b…, h, l, s]` if it has one (added, or of `bool`: true where a query may attend), and a
    /// random key `i64[2]` with dropout (or one for each index of the first batch axes,
    /// `i64[p…, 2]`, from which the weights of that part are drawn):
    /// `softmax(q·kᵀ·scale + mask)·v`, and the log-sum-exp of each row of scores, in the compute
    /// type.
    Attention(Attention),
    /// From the operands of [`Fused::Attention`], its two results and the cotangent of the first:
    /// `dq`, `dk`, `dv`.
    AttentionVjp(Attention),
    /// From the rows of `x` `[b…, n, d]` and of `y` `[b…, m, d]`: the Euclidean distance of each
    /// pair, `[b…, n, m]`. Within `x` alone: of each pair of rows i < j, `[b…, n·(n − 1)/2]`,
    /// ordered by i.
    Distances {
        /// Of pairs of rows of the one operand.
        within: bool,
    },
    /// From the operands of [`Fused::Distances`], its result and the cotangent of that: those of
    /// the operands. A distance of 0 has the derivative 0.
    DistancesVjp {
        /// As of [`Fused::Distances`].
        within: bool,
    },
    /// The losses of connectionist temporal classification, `[n]` in the compute type: from
    /// log-probabilities `[t, n, c]`, labels `i64[n, most]` and, of each sample, how many times
    /// and how many labels there are, `i64[n]`. More than there are count as all.
    Ctc {
        /// The class of the blank label.
        blank: usize,
    },
    /// From the operands of [`Fused::Ctc`] and the cotangent of the losses: that of the
    /// log-probabilities. A sample whose labels do not fit has none.
    CtcVjp {
        /// As of [`Fused::Ctc`].
        blank: usize,
    },
    /// A step of gradient descent, from a parameter, its momentum if there is one, its gradient,
    /// the number of the step (`i64[]`, the first is 1) if there is momentum, and the learning rate
    /// (a float `[]`): the new parameter and momentum.
    Sgd(Sgd),
    /// A step of Adam, from a parameter, the running means of its gradient and of its gradient's
    /// square, the largest of the latter (AMSGrad), the gradient, the number of the step (`i64[]`,
    /// the first is 1) and the learning rate (a float `[]`): new values of all but the last three.
    Adam(Adam),
}

/// The properties of a fused op: its row.
struct FusedRow {
    name: &'static str,
    results: usize,
    may_fail: bool,
    updates: bool,
    replaces: bool,
    strided: usize,
    axis: Option<usize>,
}

impl FusedRow {
    /// A class is an index, which may be out of range.
    fn may_fail(self) -> FusedRow {
        FusedRow { may_fail: true, ..self }
    }

    fn along(self, axis: usize) -> FusedRow {
        FusedRow { axis: Some(axis), ..self }
    }

    /// Result `i` may be written over operand `i`.
    fn updates(self) -> FusedRow {
        FusedRow { updates: true, ..self }
    }

    /// The first result may be written over the first operand.
    fn replaces(self) -> FusedRow {
        FusedRow { replaces: true, ..self }
    }

    /// As many of the first results may have any strides, where a target's kernels write them so.
    fn strided(self, results: usize) -> FusedRow {
        FusedRow { strided: results, ..self }
    }
}

fn row(name: &'static str, results: usize) -> FusedRow {
    FusedRow {
        name,
        results,
        may_fail: false,
        updates: false,
        replaces: false,
        strided: 0,
        axis: None,
    }
}

impl Fused {
    /// The rows.
    #[rustfmt::skip]
    fn row(self) -> FusedRow {
        match self {
            Fused::Softmax(axis)       => row("softmax", 1).along(axis),
            Fused::SoftmaxVjp(axis)    => row("vjp.softmax", 1).along(axis),
            Fused::LogSoftmax(axis)    => row("log_softmax", 1).along(axis),
            Fused::LogSoftmaxVjp(axis) => row("vjp.log_softmax", 1).along(axis),
            Fused::LogSumExp(axis)     => row("logsumexp", 1).along(axis),
            Fused::LayerNorm(_)        => row("layer_norm", 1),
            Fused::LayerNormVjp(_)     => row("vjp.layer_norm", 3),
            Fused::BatchNorm(_)        => row("batch_norm", 3),
            Fused::BatchNormVjp(_)     => row("vjp.batch_norm", 3),
            Fused::CrossEntropy        => row("cross_entropy", 1).may_fail(),
            Fused::CrossEntropyVjp     => row("vjp.cross_entropy", 2).may_fail().replaces(),
            Fused::Attention(_)        => row("attention", 2).strided(1),
            Fused::AttentionVjp(_)     => row("vjp.attention", 3).strided(3),
            Fused::Distances { .. }    => row("distances", 1),
            Fused::DistancesVjp { within } => row("vjp.distances", if within { 1 } else { 2 }),
            Fused::Ctc { .. }          => row("ctc", 1).may_fail(),
            Fused::CtcVjp { .. }       => row("vjp.ctc", 1).may_fail(),
            Fused::Sgd(how)            => row("sgd", 1 + usize::from(how.remembers())).updates(),
            Fused::Adam(how)           => row("adam", 3 + usize::from(how.amsgrad)).updates(),
        }
    }

    /// The name of the operation: `softmax`.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// How many results the op has.
    pub fn results(self) -> usize {
        self.row().results
    }

    /// Whether a kernel may reject a value.
    pub fn may_fail(self) -> bool {
        self.row().may_fail
    }

    /// The axis along which it computes, if it has one.
    pub fn axis(self) -> Option<usize> {
        self.row().axis
    }

    /// Whether each result is the new value of an operand, element by element, and may be written
    /// over it.
    pub fn updates(self) -> bool {
        self.row().updates
    }

    /// Whether a row of the first result is written after that of the first operand was read for
    /// the last time, so that it may be written over it if no other operand is there.
    pub fn replaces(self) -> bool {
        self.row().replaces
    }

    /// How many of the first results a kernel may write through strides
    /// ([`Target::strided_results`](crate::pass::Target::strided_results)).
    pub fn strided_results(self) -> usize {
        self.row().strided
    }

    /// One of each kind: on axis 0, with an epsilon of 0, without options.
    #[rustfmt::skip]
    pub fn forms() -> impl Iterator<Item = Fused> {
        use Fused::*;
        let zero = Real(0.0);
        let plain = super::Attention { causal: false, masked: false, scale: Real(1.0), dropout: zero };
        let descent = super::Sgd {
            momentum: zero, dampening: zero, decay: zero, nesterov: false, maximize: false,
        };
        let adam = super::Adam {
            beta1: zero, beta2: zero, eps: zero, decay: zero, decoupled: false, amsgrad: false, maximize: false,
        };
        [
            Softmax(0), SoftmaxVjp(0), LogSoftmax(0), LogSoftmaxVjp(0), LogSumExp(0),
            LayerNorm(zero), LayerNormVjp(zero), BatchNorm(zero), BatchNormVjp(zero),
            CrossEntropy, CrossEntropyVjp,
            Attention(plain), AttentionVjp(plain),
            Distances { within: false }, DistancesVjp { within: false },
            Ctc { blank: 0 }, CtcVjp { blank: 0 }, Sgd(descent), Adam(adam),
        ]
        .into_iter()
    }
}

/// Options of SGD.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sgd {
    /// The momentum factor.
    pub momentum: Real,
    /// The dampening of the momentum.
    pub dampening: Real,
    /// The weight decay, added to the gradient.
    pub decay: Real,
    /// Nesterov momentum.
    pub nesterov: bool,
    /// Maximizes instead of minimizing.
    pub maximize: bool,
}

impl Sgd {
    /// Whether there is momentum.
    pub fn remembers(&self) -> bool {
        self.momentum != Real(0.0)
    }
}

/// Options of Adam.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Adam {
    /// The decay rate of the mean of gradients.
    pub beta1: Real,
    /// The decay rate of the mean of squares.
    pub beta2: Real,
    /// Added to the root of the mean square.
    pub eps: Real,
    /// The weight decay: added to the gradient or, if decoupled, subtracted from the parameter
    /// times the learning rate.
    pub decay: Real,
    /// As in AdamW.
    pub decoupled: bool,
    /// AMSGrad: divides by the largest mean square so far.
    pub amsgrad: bool,
    /// Maximizes instead of minimizing.
    pub maximize: bool,
}

/// Options of attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Attention {
    /// Query `i` attends to the keys up to `i`.
    pub causal: bool,
    /// There is a mask among the operands.
    pub masked: bool,
    /// What scores are multiplied by.
    pub scale: Real,
    /// The dropout probability of weights; if it is not zero, there is a random key among the
    /// operands.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The compiler rejects a list of numbers that lacks a variant, and the test a list of forms.
    #[test]
    #[rustfmt::skip]
    fn forms_hold_every_variant_once() {
        let number = |f: Fused| match f {
            Fused::Softmax(_) => 0,      Fused::SoftmaxVjp(_) => 1,  Fused::LogSoftmax(_) => 2,
            Fused::LogSoftmaxVjp(_) => 3, Fused::LogSumExp(_) => 4,  Fused::LayerNorm(_) => 5,
            Fused::LayerNormVjp(_) => 6, Fused::BatchNorm(_) => 7,   Fused::BatchNormVjp(_) => 8,
            Fused::CrossEntropy => 9,    Fused::CrossEntropyVjp => 10, Fused::Attention(_) => 11,
            Fused::AttentionVjp(_) => 12, Fused::Distances { .. } => 13,
            Fused::DistancesVjp { .. } => 14, Fused::Ctc { .. } => 15,
            Fused::CtcVjp { .. } => 16,  Fused::Sgd(_) => 17,        Fused::Adam(_) => 18,
        };
        assert!(Fused::forms().map(number).eq(0..19));
    }
}
