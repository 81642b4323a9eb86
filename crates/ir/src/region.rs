//! A region: fused pointwise ops and reductions, as one small list of instructions.
//!
//! A region runs over a *domain*: rows times columns, where a row is the trailing `inner` axes of
//! `shape` taken together, and rows are numbered by the axes before them. Every instruction
//! computes one value, which is either an *element* value (one number for each index of the domain)
//! or a *row* value (one number for each row). Loads are element values, also if the layout has
//! stride 0 along the row; literals are row values; a pointwise op of row values only is a row
//! value, any other an element value; a reduction computes a row value from an element value. A row
//! value used together with element values is broadcast along the row.
//!
//! Results are values, and sums of values over the rows (*columns*): the gradient of a bias beside
//! that of what it was added to. No instruction reads such a sum, since it is known only at the
//! end.
//!
//! ```text
//! region{shape=[32,512],inner=1,inputs=[f32[32,512]],body=[
//!   v0 = load 0; v1 = max v0; v2 = sub v0 v1; v3 = exp v2; v4 = sum v3; v5 = div v3
//! v4],outputs=[v5]}
//! ```
//!
//! is softmax over rows of 512. Each instruction computes in the dtype of its value and rounds to
//! it, exactly as the unfused op does: a region of pointwise ops has the same bits as its unfused
//! ops.
//!
//! The CPU runs the list with tile kernels, other devices compile it to a kernel: it is independent
//! of tiles, registers and threads.

use crate::infer::{Specs, fits_memory, infer};
use crate::op::{Op, Random, Reduction};
use crate::{
    Axes, DType, Device, Error, ErrorKind, Layout, Result, Scalar, Shape, Spec, element_count,
};
use smallvec::SmallVec;

/// A fused piece of a program. See the head of this file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    /// The device it runs on: that of its operands, if it has any.
    pub device: Device,
    /// The domain.
    pub shape: Shape,
    /// How many trailing axes make up a row. Only reductions and sums over the rows use it; without
    /// any it is ignored.
    pub inner: usize,
    /// The operands, each a dense tensor viewed through a layout of the domain's shape.
    pub inputs: Vec<Load>,
    /// The values, in order: an instruction refers to earlier ones by their number.
    pub body: Vec<Inst>,
    /// The results: element values have the domain's shape, row values the shape of the axes before
    /// the row.
    pub outputs: Vec<usize>,
    /// More results, after those: element values, of a float dtype, that are summed over the rows.
    /// They have the shape of a row, and are rounded once, as by a sum over the axes before it.
    pub columns: Vec<usize>,
}

/// An operand of a region.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Load {
    /// The spec of the operand, which is dense, in row-major order.
    pub spec: Spec,
    /// The element for each index of the domain. For the key of random numbers (`i64[2]`) it is not
    /// used.
    pub layout: Layout,
}

/// One instruction of a region.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Inst {
    /// An operand.
    Load(usize),
    /// A number.
    Literal(Scalar, DType),
    /// The index along an axis of the domain, as a number.
    Index(usize, DType),
    /// Random numbers of the operand that is the key; the draw has the domain's shape.
    Random(Random, usize, DType),
    /// A pointwise op (`Unary`, `UnaryVjp`, `Binary`, `Compare`, `Select`, `Cast`) of earlier
    /// values.
    Point(Op, SmallVec<[usize; 3]>),
    /// A reduction of an element value over its row.
    Reduce(Reduction, usize),
}

/// The kind of value an instruction computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// Its dtype.
    pub dtype: DType,
    /// One number per row, not one per element.
    pub row: bool,
}

impl Region {
    /// The axes that number the rows.
    pub fn outer(&self) -> &[usize] {
        &self.shape[..self.shape.len() - self.inner]
    }

    /// How many results there are.
    pub fn results(&self) -> usize {
        self.outputs.len() + self.columns.len()
    }

    /// Whether anything is added up: along rows, or over them.
    pub fn reduces(&self) -> bool {
        let reduction = |inst: &Inst| matches!(inst, Inst::Reduce(..));
        !self.columns.is_empty() || self.body.iter().any(reduction)
    }

    /// The same with each value that is summed over the rows as a result instead, after the others.
    #[must_use]
    pub fn with_columns_stored(&self) -> Region {
        let mut out = Region { columns: Vec::new(), ..self.clone() };
        out.outputs.extend(&self.columns);
        out
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        element_count(self.outer())
    }

    /// How many elements a row has.
    pub fn row_len(&self) -> usize {
        element_count(&self.shape[self.shape.len() - self.inner..])
    }

    /// Checks the instructions and returns the dtype and extent of each value.
    ///
    /// # Errors
    /// If an instruction refers to a missing value or operand, or does not accept its dtype.
    pub fn values(&self) -> Result<Vec<Value>> {
        let wrong = |i: usize, message: &str| {
            Error::argument("region", format!("instruction {i} {message}"))
        };
        if self.inner > self.shape.len() {
            return Err(Error::shape("region", "a row has more axes than the domain"));
        }
        if !fits_memory(&self.shape) {
            let message = format!("a domain of {:?} exceeds the addressable size", self.shape);
            return Err(Error::shape("region", message));
        }
        let mut values: Vec<Value> = Vec::with_capacity(self.body.len());
        for (i, inst) in self.body.iter().enumerate() {
            let get =
                |v: usize| values.get(v).copied().ok_or_else(|| wrong(i, "reads a later value"));
            let operand =
                |k: usize| self.inputs.get(k).ok_or_else(|| wrong(i, "reads a missing operand"));
            values.push(match inst {
                Inst::Load(k) => {
                    let load = operand(*k)?;
                    if load.layout.shape != self.shape {
                        return Err(wrong(i, "reads through a layout of another shape"));
                    }
                    Value { dtype: load.spec.dtype, row: false }
                }
                Inst::Literal(value, dtype) => {
                    if matches!(value, Scalar::Float(_)) && !dtype.is_float() {
                        return Err(wrong(i, "has a fraction that is not an integer"));
                    }
                    Value { dtype: *dtype, row: true }
                }
                Inst::Index(axis, dtype) => {
                    if *axis >= self.shape.len() || *dtype == DType::Bool {
                        return Err(wrong(i, "counts along a missing axis, or in bool"));
                    }
                    Value { dtype: *dtype, row: false }
                }
                Inst::Random(kind, key, dtype) => {
                    let draw = Op::Random { kind: *kind, shape: self.shape.clone(), dtype: *dtype };
                    let key = &operand(*key)?.spec;
                    // Each of several keys would draw for a separate domain.
                    if infer(&draw, &[key])?[0].shape != self.shape {
                        return Err(wrong(i, "draws from several keys"));
                    }
                    Value { dtype: *dtype, row: false }
                }
                Inst::Point(op, of) => {
                    if !op.is_pointwise() || matches!(op, Op::Copy) {
                        return Err(wrong(i, "is not pointwise"));
                    }
                    let of =
                        of.iter().map(|&v| get(v)).collect::<Result<SmallVec<[Value; 3]>>>()?;
                    let specs: SmallVec<[Spec; 3]> =
                        of.iter().map(|v| Spec::on(self.device, v.dtype, Shape::new())).collect();
                    let refs: SmallVec<[&Spec; 3]> = specs.iter().collect();
                    let dtype = infer(op, &refs)?[0].dtype;
                    Value { dtype, row: of.iter().all(|v| v.row) }
                }
                Inst::Reduce(kind, v) => {
                    let of = get(*v)?;
                    if of.row {
                        return Err(wrong(i, "reduces a row value"));
                    }
                    let one = Spec::on(self.device, of.dtype, [1].as_slice());
                    let reduce = Op::Reduce(*kind, Axes::from_slice(&[0]));
                    Value { dtype: infer(&reduce, &[&one])?[0].dtype, row: true }
                }
            });
        }
        Ok(values)
    }

    /// Checks the operands and returns the specs of the results.
    ///
    /// # Errors
    /// As [`Region::values`], or if the operands differ from the stored specs, or a layout reaches
    /// outside one.
    pub fn infer(&self, inputs: &[&Spec]) -> Result<Specs> {
        if !self.inputs.iter().map(|load| &load.spec).eq(inputs.iter().copied()) {
            return Err(Error::argument("region", "the operands differ from its specs")
                .on(inputs.iter().copied()));
        }
        for load in &self.inputs {
            if load.spec.device != self.device {
                let message =
                    format!("runs on {}, but an operand is on another device", self.device);
                return Err(Error::new(ErrorKind::Device, "region", message).on([&load.spec]));
            }
            if !load.layout.is_within(load.spec.len()) {
                return Err(Error::argument("region", "a layout reaches outside its operand")
                    .on([&load.spec]));
            }
        }
        let values = self.values()?;
        if self.results() == 0 {
            return Err(Error::argument("region", "has no result"));
        }
        let result = |&v: &usize| match values.get(v) {
            Some(value) if value.row => Ok(Spec::on(self.device, value.dtype, self.outer())),
            Some(value) => Ok(Spec::on(self.device, value.dtype, self.shape.clone())),
            None => Err(Error::argument("region", format!("there is no value {v} to store"))),
        };
        let row = &self.shape[self.outer().len()..];
        let column = |&v: &usize| match values.get(v) {
            Some(value) if value.row || !value.dtype.is_float() => {
                let message = format!("sums value {v} over the rows, which has no float elements");
                Err(Error::argument("region", message))
            }
            Some(value) => Ok(Spec::on(self.device, value.dtype, row)),
            None => Err(Error::argument("region", format!("there is no value {v} to sum"))),
        };
        let outputs = self.outputs.iter().map(result);
        outputs.chain(self.columns.iter().map(column)).collect()
    }

    /// As [`Region::infer`], for [`Op::DotRegion`].
    ///
    /// # Errors
    /// Also if the product does not match.
    pub fn infer_after_dot(&self, inputs: &[&Spec]) -> Result<Specs> {
        let [a, b, rest @ ..] = inputs else {
            return Err(Error::argument(
                "dot_region",
                format!("takes at least 2 operands, not {}", inputs.len()),
            ));
        };
        let product = infer(&Op::Dot, &[a, b])?;
        let all: SmallVec<[&Spec; 6]> = product.iter().chain(rest.iter().copied()).collect();
        self.infer(&all)
    }
}
