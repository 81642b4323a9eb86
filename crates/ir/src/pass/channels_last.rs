//! Keeps images with their channels last in memory.
//!
//! A GPU convolves with the channels last: an image that has them elsewhere is transposed before
//! and after each convolution. This pass lets convolutions give `[n, s…, c]`, and computes what
//! follows on that array too: pointwise ops, batch norm, pooling and sums over all but the first
//! axes. Everything else reads it through a permuted view. So between convolutions no image is
//! transposed, and loops over images are flat.
//!
//! Guarantees: the same values; batch norms and sums add up in another order. Programs without
//! convolutions of these dtypes stay as they are.

use super::dead_code;
use super::rebuild::Rebuild;
use crate::window::{Conv, Frame, Pool, Pooling, Role, Window};
use crate::{Axes, DType, Equation, Fused, Line, Op, Program, Shape, Var, Vars, View};
use rustc_hash::FxHashMap;

/// Computes images with the channels last where convolutions of these dtypes give them.
///
/// ```
/// use pullback_ir::{DType, Program, pass::channels_last};
/// let text = "program (x: bf16[2,8,5,5], w: bf16[4,8,3,3], v: bf16[4,4,1,1]) {
///     let a: bf16[2,4,3,3] = conv{[3:1:1:0:0, 3:1:1:0:0],groups=1} x w;
///     let b: bf16[2,4,3,3] = relu a;
///     let c: bf16[2,4,3,3] = conv{[1:1:1:0:0, 1:1:1:0:0],groups=1} b v;
///     return c
/// }";
/// let program: Program = text.parse().unwrap();
/// let names: Vec<&str> =
///     channels_last(&program, &[DType::BF16]).equations.iter().map(|e| e.op.name()).collect();
/// assert_eq!(names, ["conv", "relu", "permute", "conv", "permute"]);
/// ```
#[must_use]
pub fn channels_last(program: &Program, dtypes: &[DType]) -> Program {
    let converts = |e: &Equation| matches!(&e.op, Op::Conv(conv) if gives(conv, program.spec(e.outputs[0]).dtype, dtypes));
    let inside = |e: &Equation| matches!(e.op, Op::Flow(_));
    if !program.equations.iter().any(|e| converts(e) || inside(e)) {
        return program.clone();
    }
    let mut images = Images {
        new: Rebuild::new(program),
        last: FxHashMap::default(),
        places: pooled_places(program),
        dtypes,
    };
    for e in &program.equations {
        if images.rewrite(e).is_none() {
            images.new.keep(e, |inner| channels_last(inner, dtypes));
        }
    }
    dead_code(&images.new.finish())
}

/// Whether a convolution gives an image, in one of these dtypes.
fn gives(conv: &Conv, dtype: DType, dtypes: &[DType]) -> bool {
    let image = match conv.role {
        Role::Forward | Role::Input(_) => true,
        Role::Filter => false,
    };
    image && !conv.last && dtypes.contains(&dtype)
}

/// Which variables are positions that only poolings read, which count them in their own way.
fn pooled_places(program: &Program) -> Vec<bool> {
    let mut places = vec![true; program.specs.len()];
    program.outputs.iter().for_each(|v| places[v.index()] = false);
    for e in &program.equations {
        let by_places = matches!(&e.op, Op::Pool(of) if of.kind.takes_places());
        for (i, v) in e.inputs.iter().enumerate() {
            places[v.index()] &= by_places && i == 1;
        }
    }
    places
}

/// An axis of channels, for pooling: each is a piece.
const EACH: Frame = Frame::Sliding(Window { size: 1, stride: 1, dilation: 1, before: 0, after: 0 });

struct Images<'a> {
    new: Rebuild<'a>,
    /// The array with the channels last of an image, both new variables.
    last: FxHashMap<Var, Var>,
    /// Old variables that only poolings read.
    places: Vec<bool>,
    dtypes: &'a [DType],
}

/// The order of axes that moves the channels to the end, and back.
fn to_last(rank: usize) -> Axes {
    [0].into_iter().chain(2..rank).chain([1]).collect()
}

fn to_second(rank: usize) -> Axes {
    [0, rank - 1].into_iter().chain(1..rank - 1).collect()
}

impl Images<'_> {
    /// Defines the results of an equation by arrays with the channels last, if it has to do with
    /// some; `None`, and nothing is defined, otherwise.
    fn rewrite(&mut self, e: &Equation) -> Option<()> {
        let inputs = self.new.inputs(e);
        let known = |images: &Images, v: Var| images.last.contains_key(&v);
        match &e.op {
            Op::Conv(conv) if gives(conv, self.new.old_spec(e.outputs[0]).dtype, self.dtypes) => {
                let op = Op::Conv(Box::new(Conv { last: true, ..(**conv).clone() }));
                let made = self.new.emit(op, &inputs, e.at)?;
                self.image(e.outputs[0], made, e.at)
            }
            op if op.is_pointwise() && inputs.iter().any(|&v| known(self, v)) => {
                let seen = self.all_last(&inputs, e.at)?;
                let made = self.new.emit(op.clone(), &seen, e.at)?;
                self.image(e.outputs[0], made, e.at)
            }
            Op::After if known(self, inputs[0]) => {
                let array = self.last[&inputs[0]];
                let made = self.new.emit(Op::After, &[array, inputs[1]], e.at)?;
                self.image(e.outputs[0], made, e.at)
            }
            Op::Fused(of @ (Fused::BatchNorm(_) | Fused::BatchNormVjp(_))) => {
                let images: &[usize] = match of {
                    Fused::BatchNormVjp(_) => &[0, 4],
                    _ => &[0],
                };
                if !images.iter().any(|&i| known(self, inputs[i])) {
                    return None;
                }
                self.batch_norm(e, *of, images)
            }
            Op::Pool(pool) if known(self, inputs[0]) || self.counts_so(&inputs) => {
                self.pool(e, pool, &inputs)
            }
            Op::Reduce(kind, axes) if known(self, inputs[0]) => {
                let rank = self.new.spec(inputs[0]).shape.len();
                // What stays must not change its order.
                if !axes.contains(&1) && (2..rank).any(|axis| !axes.contains(&axis)) {
                    return None;
                }
                let order = to_last(rank);
                let moved = (0..rank).filter(|&d| axes.contains(&order[d])).collect();
                let array = self.last[&inputs[0]];
                let made = self.new.emit(Op::Reduce(*kind, moved), &[array], e.at)?;
                self.new.alias(e.outputs[0], made);
                Some(())
            }
            _ => None,
        }
    }

    /// Defines an old variable by an array with the channels last.
    fn image(&mut self, old: Var, array: Var, at: Option<Line>) -> Option<()> {
        let back = to_second(self.new.spec(array).shape.len());
        let seen = self.new.emit(Op::View(View::Permute(back)), &[array], at)?;
        self.last.insert(seen, array);
        self.new.alias(old, seen);
        Some(())
    }

    /// An image with the channels last: its array, or a view.
    fn as_last(&mut self, v: Var, at: Option<Line>) -> Option<Var> {
        if let Some(&array) = self.last.get(&v) {
            return Some(array);
        }
        let shape = self.new.spec(v).shape.clone();
        let order = to_last(shape.len());
        if let Some(Equation { op: Op::Literal { value, dtype, device, .. }, .. }) =
            self.new.made_by(v)
        {
            let shape: Shape = order.iter().map(|&d| shape[d]).collect();
            let literal = Op::Literal { value: *value, shape, dtype: *dtype, device: *device };
            return self.new.emit(literal, &[], at);
        }
        self.new.emit(Op::View(View::Permute(order)), &[v], at)
    }

    fn all_last(&mut self, of: &[Var], at: Option<Line>) -> Option<Vars> {
        of.iter().map(|&v| self.as_last(v, at)).collect()
    }

    /// On rows with an element of each channel.
    fn batch_norm(&mut self, e: &Equation, of: Fused, images: &[usize]) -> Option<()> {
        let mut inputs = self.new.inputs(e);
        let mut array = Shape::new();
        for &i in images {
            let seen = self.as_last(inputs[i], e.at)?;
            array = self.new.spec(seen).shape.clone();
            let channels = array[array.len() - 1];
            let rows = array[..array.len() - 1].iter().product();
            let rows = View::Reshape([rows, channels].into_iter().collect());
            inputs[i] = self.new.emit(Op::View(rows), &[seen], e.at)?;
        }
        let made = self.new.emit_all(Op::Fused(of), &inputs, e.at)?;
        let y = self.new.emit(Op::View(View::Reshape(array)), &[made[0]], e.at)?;
        self.image(e.outputs[0], y, e.at)?;
        for (&old, &new) in e.outputs.iter().zip(&made).skip(1) {
            self.new.alias(old, new);
        }
        Some(())
    }

    /// Whether the positions among these operands are counted with the channels last.
    fn counts_so(&self, of: &[Var]) -> bool {
        of.get(1).is_some_and(|v| self.last.contains_key(v))
    }

    /// With a piece for each channel behind the pieces of other axes.
    fn pool(&mut self, e: &Equation, pool: &Pool, of: &[Var]) -> Option<()> {
        let rank = self.new.spec(of[0]).shape.len();
        let takes = pool.kind.takes_places();
        let fits = pool.frames.len() + 2 == rank && rank <= 4 && (!takes || self.counts_so(of));
        if !fits || (pool.kind == Pooling::ArgMax && !self.places[e.outputs[0].index()]) {
            return None;
        }
        let channels = self.new.spec(of[0]).shape[1];
        let with_channels = |lengths: &Shape| lengths.iter().copied().chain([channels]).collect();
        let kind = match &pool.kind {
            Pooling::Spread(lengths) => Pooling::Spread(with_channels(lengths)),
            Pooling::Give(lengths) => Pooling::Give(with_channels(lengths)),
            kind @ (Pooling::Sum | Pooling::ArgMax | Pooling::Take) => kind.clone(),
        };
        let frames = pool.frames.iter().copied().chain([EACH]).collect();
        let operands = self.all_last(of, e.at)?;
        let op = Op::Pool(Box::new(Pool { kind, frames }));
        let made = self.new.emit(op, &operands, e.at)?;
        self.image(e.outputs[0], made, e.at)
    }
}
