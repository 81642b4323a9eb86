//! Scaled dot-product attention: one op whose kernels never store the scores, forward or backward.
//!
//! The row is hand-written: backward needs the operands, the result and the log-sum-exp of the
//! scores, and it runs as one kernel. Where backward itself is differentiated, or a mask or the
//! log-sum-exp takes part in a derivative, the formulas here run instead: they do store the scores.

use crate::apply::{apply, apply_all};
use crate::ops::cast::one_float;
use crate::rule::{ByHand, Derivatives, Grad, RuleContext, Tensors, Val};
use crate::{DType, Error, Key, Op, Result, Shape, Spec, Tensor, autocast};
use pullback_ir::{Attention as How, Fused, Random, Real};
use smallvec::{SmallVec, smallvec};

pub(super) fn row() -> Grad {
    use Val::{In, Out};
    Grad::ByHand(ByHand {
        uses: &[In(0), In(1), In(2), In(3), In(4), Out(0), Out(1)],
        vjp,
        jvp,
        formula: "with `p = softmax(q·kᵀ·scale + mask)`, `ds = p * (dy·vᵀ - sum(dy * y))`: `dq = ds·k * scale`, `dk = dsᵀ·q * scale`, `dv = pᵀ·dy`, `dmask = ds`",
    })
}

pub(super) fn vjp_row() -> Grad {
    Grad::Decompose(|op, inputs| {
        let how = how(op);
        let (operands, rest) = inputs.split_at(how.operands());
        let mut slopes = Scores::new(how, operands, rest[1]).slopes(rest[0], rest[2], None);
        slopes.truncate(3);
        slopes
    })
}

fn how(op: &Op) -> How {
    match op {
        Op::Fused(Fused::Attention(how) | Fused::AttentionVjp(how)) => *how,
        _ => unreachable!("called for attention"),
    }
}

fn operands<'a>(f: &'a RuleContext) -> SmallVec<[&'a Tensor; 5]> {
    (0..how(f.op).operands()).map(|i| f.x(i)).collect()
}

fn vjp(f: &RuleContext, dys: &Derivatives) -> Derivatives {
    let how = how(f.op);
    let dy = match (&dys[0], &dys[1]) {
        (Some(dy), _) => dy.clone(),
        (None, None) => return smallvec![None; how.operands()],
        (None, Some(_)) => f.y(0).zeros_like_splat(),
    };
    let mut given = operands(f);
    let of_mask = how.masked && f.needs(3) && f.x(3).dtype().is_float();
    let mut out: Derivatives = if of_mask || dys[1].is_some() {
        let slopes = Scores::new(how, &given, f.y(1)).slopes(f.y(0), &dy, dys[1].as_ref());
        slopes.into_iter().map(Some).collect()
    } else {
        given.extend([f.y(0), f.y(1), &dy]);
        apply_all(Op::Fused(Fused::AttentionVjp(how)), &given).into_iter().map(Some).collect()
    };
    if !of_mask {
        out.truncate(3);
    }
    out.resize(how.operands(), None);
    out
}

fn jvp(f: &RuleContext, t: &Derivatives) -> Tensors {
    let how = how(f.op);
    let scores = Scores::new(how, &operands(f), f.y(1));
    let (q, k, v) = (&scores.q, &scores.k, &scores.v);
    let along = |i: usize| t.get(i).and_then(Option::as_ref).map(|t| scores.split(t));
    let ds = [
        along(0).map(|tq| tq.matmul(&k.t()) * how.scale.0),
        along(1).map(|tk| q.matmul(&tk.t()) * how.scale.0),
        // The fourth operand may be a key, which has no tangent.
        along(3),
    ];
    let (y, lse) = (f.y(0), f.y(1));
    let mut dy = along(2).map(|tv| scores.kept().matmul(&tv));
    let mut dlse = lse.zeros_like_splat();
    if let Some(ds) = ds.into_iter().flatten().reduce(|a, b| a + b) {
        let mean = (&scores.p * &ds).sum_keep(-1);
        let dp = scores.times_kept(&scores.p * (ds - &mean)).matmul(v);
        dy = Some(dy.map_or(dp.clone(), |dy| dy + dp));
        dlse = mean.reshape(lse.shape());
    }
    let dy = dy.map_or_else(|| y.zeros_like_splat(), |dy| dy.reshape(y.shape()).cast(y.dtype()));
    Tensors::from([dy, dlse])
}

/// The weights of all queries, with heads in groups: `[b…, g, h/g, l, s]`.
struct Scores {
    how: How,
    groups: usize,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    p: Tensor,
    /// 0 for what is dropped, 1/(1−p) for what is not.
    kept: Option<Tensor>,
}

impl Scores {
    /// From the operands and the log-sum-exp of the scores.
    fn new(how: How, x: &[&Tensor], lse: &Tensor) -> Scores {
        let groups = x[1].shape()[x[1].rank() - 3];
        let [q, k, v] = [x[0], x[1], x[2]].map(|x| split(&x.wide(), groups));
        let mut s = q.matmul(&k.t()) * how.scale.0;
        let (l, keys) = (s.shape()[s.rank() - 2], s.shape()[s.rank() - 1]);
        if how.causal {
            let seen = s.new_iota(keys).le(s.new_iota(l).unsqueeze(1));
            s = seen.logical_not().select_or(f64::NEG_INFINITY, s);
        }
        if how.masked {
            s = match x[3].dtype() {
                DType::Bool => split(x[3], groups).logical_not().select_or(f64::NEG_INFINITY, s),
                _ => s + split(&x[3].wide(), groups),
            };
        }
        // A query that sees nothing has weights exp(−∞ − 0) = 0.
        let lse = lse.cast(s.dtype()).unsqueeze(-1);
        let lse = split(&lse.eq(f64::NEG_INFINITY).select_or(0.0, lse), groups);
        let kept = how.drops().then(|| {
            let key = x[how.operands() - 1];
            // Each key of several draws for its own part of the batch.
            let mut shape = Shape::from_slice(&x[0].shape()[key.rank() - 1..]);
            *shape.last_mut().expect("queries have features") = keys;
            let draw = Op::Random { kind: Random::Uniform, shape, dtype: DType::F32 };
            let dropped = apply(draw, &[key]).lt(how.dropout.0);
            let factors = dropped.logical_not().cast(s.dtype()) * how.keep_scale();
            split(&factors, groups)
        });
        Scores { how, groups, p: (s - lse).exp(), q, k, v, kept }
    }

    fn split(&self, x: &Tensor) -> Tensor {
        split(&x.wide(), self.groups)
    }

    fn times_kept(&self, x: Tensor) -> Tensor {
        match &self.kept {
            Some(kept) => x * kept,
            None => x,
        }
    }

    /// The weights after dropout.
    fn kept(&self) -> Tensor {
        self.times_kept(self.p.clone())
    }

    /// dq, dk, dv and dmask, from the results and the cotangents of both.
    fn slopes(&self, out: &Tensor, dy: &Tensor, dlse: Option<&Tensor>) -> Tensors {
        let (narrow, heads) = (dy.dtype(), dy.rank() - 3);
        let (out, dy) = (self.split(out), self.split(dy));
        let mut delta = (&dy * out).sum_keep(-1);
        if let Some(dlse) = dlse {
            delta -= split(&dlse.wide().unsqueeze(-1), self.groups);
        }
        let ds = &self.p * (self.times_kept(dy.matmul(&self.v.t())) - delta);
        let scale = self.how.scale.0;
        let dq = ds.matmul(&self.k) * scale;
        // Keys and values are shared by the heads of a group.
        let shared = |x: Tensor| x.sum_over(heads as isize + 1);
        let dk = shared(ds.t().matmul(&self.q) * scale);
        let dv = shared(self.kept().t().matmul(&dy));
        let join = |x: Tensor| x.flatten(heads as isize, heads as isize + 1).cast(narrow);
        Tensors::from([join(dq), dk.cast(narrow), dv.cast(narrow), join(ds)])
    }
}

/// `[b…, h, …]` as `[b…, groups, h / groups, …]`, with `…` two axes.
fn split(x: &Tensor, groups: usize) -> Tensor {
    let at = x.rank() - 3;
    let each = x.shape()[at].checked_div(groups).unwrap_or(0);
    let mut shape = x.shape().to_vec();
    shape.splice(at..=at, [groups, each]);
    x.reshape(&shape[..])
}

/// Options of [`Tensor::attention`]: a mask, causal masking, the scale, dropout, grouped heads.
///
/// ```
/// use pullback::{Attention, Tensor};
/// let x = Tensor::ones([1, 3, 2]);
/// let y = x.attention(&x, &x, Attention::new().causal().scale(0.5));
/// assert_eq!(y.to_vec::<f32>(), [1.0; 6]);
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub struct Attention<'a> {
    mask: Option<&'a Tensor>,
    causal: bool,
    scale: Option<f64>,
    dropout: Option<(f64, &'a Key)>,
    grouped: bool,
}

impl<'a> Attention<'a> {
    /// Every query attends to every key; scores are scaled by 1/√d, where d is the number of
    /// features.
    ///
    /// ```
    /// use pullback::{Attention, Tensor};
    /// let (q, k) = (Tensor::zeros([2, 4]), Tensor::from([[1f32, 2., 3., 4.], [3., 4., 5., 6.]]));
    /// // Equal scores: the mean of the values.
    /// let y = q.attention(&k, &k, Attention::new());
    /// assert_eq!(y.select_at(0, 0).to_vec::<f32>(), [2.0, 3.0, 4.0, 5.0]);
    /// ```
    pub fn new() -> Attention<'a> {
        Attention::default()
    }

    /// An attention mask. Of `bool`: true where a query attends to a key; of a float dtype: added
    /// to the scores. It broadcasts to `[.., heads, queries, keys]`.
    ///
    /// ```
    /// use pullback::{Attention, Tensor};
    /// let x = Tensor::from([[1f32, 0.], [0., 1.]]);
    /// // Each query attends to the other position alone.
    /// let mask = Tensor::from([[false, true], [true, false]]);
    /// let y = x.attention(&x, &x, Attention::new().mask(&mask));
    /// assert_eq!(y.to_vec::<f32>(), [0.0, 1.0, 1.0, 0.0]);
    /// ```
    pub fn mask(self, mask: &'a Tensor) -> Attention<'a> {
        Attention { mask: Some(mask), ..self }
    }

    /// Causal masking: query i attends to the keys up to i, also where there are more or fewer keys
    /// than queries.
    ///
    /// ```
    /// use pullback::{Attention, Tensor};
    /// let (q, v) = (Tensor::zeros([2, 1]), Tensor::from([[1f32], [3.]]));
    /// let y = q.attention(&q, &v, Attention::new().causal());
    /// assert_eq!(y.to_vec::<f32>(), [1.0, 2.0]);
    /// ```
    pub fn causal(self) -> Attention<'a> {
        Attention { causal: true, ..self }
    }

    /// What scores are multiplied by, instead of 1/√d.
    ///
    /// ```
    /// use pullback::{Attention, Tensor};
    /// let (x, v) = (Tensor::from([[1f32, 0.], [0., 1.]]), Tensor::from([[1f32], [3.]]));
    /// // A scale of 0 makes all scores equal.
    /// let y = x.attention(&x, &v, Attention::new().scale(0.0));
    /// assert_eq!(y.to_vec::<f32>(), [2.0, 2.0]);
    /// ```
    pub fn scale(self, scale: f64) -> Attention<'a> {
        Attention { scale: Some(scale), ..self }
    }

    /// Drops each weight with probability `p` and multiplies the others by 1/(1 − p). The same key
    /// drops the same weights.
    ///
    /// ```
    /// use pullback::{Attention, Key, Tensor};
    /// let x = Tensor::ones([1, 4, 2]);
    /// let key = Key::new(0);
    /// let y = || x.attention(&x, &x, Attention::new().dropout(0.5, &key)).to_vec::<f32>();
    /// assert_eq!(y(), y());
    /// ```
    pub fn dropout(self, p: f64, key: &'a Key) -> Attention<'a> {
        Attention { dropout: Some((p, key)), ..self }
    }

    /// Grouped-query attention: several heads of queries may share a head of keys and values, the
    /// first h/g heads the first of g, and so on.
    ///
    /// ```
    /// use pullback::{Attention, Tensor};
    /// let (q, k) = (Tensor::ones([8, 5, 4]), Tensor::ones([2, 6, 4]));
    /// assert_eq!(q.attention(&k, &k, Attention::new().grouped()).shape(), [8, 5, 4]);
    /// ```
    pub fn grouped(self) -> Attention<'a> {
        Attention { grouped: true, ..self }
    }
}

impl Tensor {
    /// Scaled dot-product attention, softmax(q·kᵀ·scale + mask)·v with this tensor as the queries
    /// q: `[.., heads, queries, d]`, keys `[.., heads, keys, d]`, values `[.., heads, keys, e]`, to
    /// `[.., heads, queries, e]`. Axes before the last two broadcast, and may be left out.
    ///
    /// The scores are never stored, forward or backward; a derivative of the gradient, of the mask,
    /// or in forward mode does store them. A query that sees no key gives zeros.
    ///
    /// Derivative: with p = softmax(q·kᵀ·scale + mask) and ds = p·(dy·vᵀ − Σ dy·y): dq =
    /// ds·k·scale, dk = dsᵀ·q·scale, dv = pᵀ·dy, dmask = ds.
    /// PyTorch's name: `nn.functional.scaled_dot_product_attention`.
    ///
    /// ```
    /// use pullback::{Attention, Key, Tensor};
    /// let x = Tensor::from([[0.0f32, 1.0], [1.0, 0.0]]);
    /// // The first query sees the first key alone.
    /// let y = x.attention(&x, &x, Attention::new().causal());
    /// assert_eq!(y.select_at(0, 0).to_vec::<f32>(), [0.0, 1.0]);
    /// // Eight heads of queries share two of keys, and a tenth of the weights is dropped.
    /// let (q, k) = (Tensor::ones([8, 5, 4]), Tensor::ones([2, 6, 4]));
    /// let y = q.attention(&k, &k, Attention::new().grouped().dropout(0.1, &Key::new(0)));
    /// assert_eq!(y.shape(), [8, 5, 4]);
    /// ```
    ///
    /// # Panics
    /// If an operand has fewer than two axes, the dtypes are not one float dtype, the shapes do not
    /// fit, or the dropout probability is not in [0, 1].
    #[doc(alias = "scaled_dot_product_attention")]
    #[track_caller]
    #[must_use]
    pub fn attention(&self, keys: &Tensor, values: &Tensor, how: Attention) -> Tensor {
        const OP: &str = "attention";
        if let Some([q, k, v]) = autocast::lowered([self, keys, values]) {
            return q.attention(&k, &v, how);
        }
        let all = [self, keys, values];
        let specs = all.map(Tensor::spec);
        if let Some(x) = all.iter().find(|x| x.rank() < 2) {
            let message = format!("takes [.., positions, features], not {}", x.spec());
            return self.checked(Err(Error::shape(OP, message).on(specs)));
        }
        if all.iter().any(|x| x.dtype() != self.dtype() || !x.dtype().is_float()) {
            let [q, k, v] = specs;
            let message = format!("takes operands of one float dtype, not {q}, {k} and {v}");
            return self.checked(Err(Error::dtype(OP, message).on(specs)));
        }
        // All of one rank, with an axis for heads.
        let rank = all.iter().map(|x| x.rank()).max().unwrap_or(2).max(3);
        let lifted = |x: &Tensor| x.reshape([&vec![1; rank - x.rank()], x.shape()].concat());
        let [q, mut k, mut v] = all.map(lifted);
        let at = rank - 3;
        let heads = [&q, &k, &v].map(|x| x.shape()[at]);
        let most = self.checked(heads_of(heads, how.grouped).map_err(|e| e.on(specs)));
        if heads[1] != heads[2] {
            let times = |n: usize| most.checked_div(n).unwrap_or(1);
            k = k.repeat_each(times(heads[1]), at as isize);
            v = v.repeat_each(times(heads[2]), at as isize);
        }
        let batch = batch_of([&q, &k, &v].map(|x| &x.shape()[..at]));
        let Some(batch) = batch else {
            let [q, k, v] = specs;
            let message = format!("the batches of {q}, {k} and {v} do not broadcast");
            return self.checked(Err(Error::shape(OP, message).on(specs)));
        };
        let widened = |x: &Tensor, heads: usize| {
            let mut shape: Vec<usize> = batch.to_vec();
            shape.push(heads);
            shape.extend_from_slice(&x.shape()[at + 1..]);
            x.expand(&shape[..])
        };
        let shared = k.shape()[at];
        let (q, k, v) = (widened(&q, most), widened(&k, shared), widened(&v, shared));
        let mut scores = q.shape().to_vec();
        scores[rank - 1] = k.shape()[rank - 2];
        // A match, not a closure, which would lose the caller's line.
        #[allow(clippy::manual_map)]
        let mask = match how.mask {
            None => None,
            Some(mask) => Some(q.mask_over(mask, &scores, specs)),
        };
        let (dropout, key) =
            how.dropout.filter(|d| d.0 != 0.0).map_or((0.0, None), |(p, key)| (p, Some(key)));
        // Without features all scores are 0: a scale of 1/√0 would make them NaN.
        let features = q.shape()[rank - 1].max(1) as f64;
        let scale = how.scale.unwrap_or_else(|| features.powf(-0.5));
        let how = How {
            causal: how.causal,
            masked: mask.is_some(),
            scale: Real(scale),
            dropout: Real(dropout),
        };
        let mut operands: SmallVec<[&Tensor; 5]> = smallvec![&q, &k, &v];
        operands.extend(mask.as_ref());
        operands.extend(key.map(Key::tensor));
        let y = apply_all(Op::Fused(Fused::Attention(how)), &operands).into_first();
        // The axes that were put in front.
        let lead =
            rank - [self.rank(), keys.rank(), values.rank()].into_iter().max().unwrap_or(rank);
        y.reshape(&y.shape()[lead..])
    }

    /// The mask, a constant or in the dtype of these queries, over scores of this shape.
    #[track_caller]
    fn mask_over(&self, mask: &Tensor, scores: &[usize], specs: [&Spec; 3]) -> Tensor {
        const OP: &str = "attention";
        let with_mask = |error: Error| error.on(specs.into_iter().chain([mask.spec()]));
        let lowered = match mask.dtype() {
            DType::Bool => mask.clone(),
            dtype if dtype.is_float() => {
                // A mask of f32 may be used with 16-bit queries, as in PyTorch.
                one_float(OP, [&self.wide(), &mask.wide()]);
                mask.cast(self.dtype())
            }
            _ => {
                let message = format!("takes a mask of bool or a float dtype, not {}", mask.spec());
                let error = with_mask(Error::dtype(OP, message));
                return self.checked(Err(error.hint("for a boolean mask use `mask.ne(0)`")));
            }
        };
        let pairs = mask.shape().iter().rev().zip(scores.iter().rev());
        if mask.rank() > scores.len() || !pairs.into_iter().all(|(&m, &n)| m == n || m == 1) {
            let message =
                format!("the mask {} does not broadcast to the scores {scores:?}", mask.spec());
            return self.checked(Err(with_mask(Error::shape(OP, message))));
        }
        lowered.expand(scores)
    }
}

/// The most heads of queries, keys and values. Those of keys and values are repeated where their
/// numbers differ, or where one is shared by all.
fn heads_of(heads: [usize; 3], grouped: bool) -> Result<usize> {
    let most = if heads.contains(&0) { 0 } else { heads.into_iter().max().unwrap_or(1) };
    let shares = |n: usize| grouped && n > 0 && most > 0 && most % n == 0;
    let divides = |n: usize| n == most || n == 1 || shares(n);
    if (heads[0] == most || heads[0] == 1) && divides(heads[1]) && divides(heads[2]) {
        return Ok(most);
    }
    let [a, b, c] = heads;
    Err(match grouped {
        true => {
            let message =
                format!("{a} heads of queries cannot share {b} of keys and {c} of values");
            Error::shape("attention", message)
        }
        false => {
            let message =
                format!("{a} heads of queries, {b} of keys and {c} of values do not broadcast");
            Error::shape("attention", message)
                .hint("`Attention::grouped` lets heads of queries share those of keys")
        }
    })
}

/// The shape to which the batches of all three broadcast.
fn batch_of(shapes: [&[usize]; 3]) -> Option<Shape> {
    let mut batch = Shape::new();
    for i in 0..shapes[0].len() {
        let lengths = shapes.map(|shape| shape[i]);
        let n = lengths.into_iter().find(|&n| n != 1).unwrap_or(1);
        if lengths.iter().any(|&m| m != n && m != 1) {
            return None;
        }
        batch.push(n);
    }
    Some(batch)
}
