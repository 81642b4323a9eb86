//! A list of instructions as the text of a kernel in CUDA C.
//!
//! # Forms
//!
//! - *Flat*: all operands are dense or one element; a thread computes a vector of 16 bytes.
//! - *Strided*: any layouts; a thread computes one element, or a vector if all operands are
//!   contiguous or constant along the last axis.
//! - *Rows*: there are reductions. A row has 1 thread, a warp or a block. As on the CPU there is
//!   one pass over the row for each level of reductions, and one more for the results; values are
//!   computed again in each pass that needs them. Long rows may be split: then a group of threads
//!   reduces a part of a row, and a second kernel the parts.
//! - *Held*: the same for contiguous rows that fit into registers: they are loaded once, by vectors
//!   (`register_rows.rs`). A group of threads may take several rows and add up columns on the way.
//!
//! Shapes and strides are parameters of the kernel, so the text depends on the instructions, the
//! dtypes, the form and the number of axes alone.

use crate::functions::{PRELUDE, name_of, name_of_vjp, special};
use pullback_ir::{Compare, DType, Inst, Ints, Op, Pointwise, Random, Reduction, Scalar, Value};
use smallvec::SmallVec;
use std::fmt::Write;

const RANDOM: &str = include_str!("kernels/random.cu");

/// Threads of a block of a loop without reductions.
pub(crate) const THREADS: usize = 256;

/// Everything that the text of a loop follows from.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct LoopText {
    pub body: SmallVec<[Inst; 4]>,
    pub inputs: SmallVec<[DType; 4]>,
    pub outputs: SmallVec<[usize; 2]>,
    pub form: LoopForm,
    /// Bit `k`: operand `k` is one element, whose bits are passed in place of its address.
    pub immediate: u64,
    /// Indices need 64 bits.
    pub wide: bool,
}

/// See the head of the file.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum LoopForm {
    Flat {
        /// Elements of a thread.
        vector: u32,
        /// Bit `k`: operand `k` is one element.
        single: u64,
    },
    Strided {
        rank: u32,
        /// Elements of a thread.
        vector: u32,
        /// Bit `k`: operand `k` is constant along the last axis.
        single: u64,
    },
    Rows {
        outer: u32,
        inner: u32,
        /// Threads of a row.
        threads: u32,
        /// Rows are split into parts.
        split: bool,
    },
    Held(RegisterRows),
}

/// Rows in registers.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct RegisterRows {
    pub outer: u32,
    /// Threads of a row: a warp, or the block.
    pub threads: u32,
    /// Elements of a vector.
    pub vector: u32,
    /// Vectors of a thread.
    pub count: u32,
    /// The threads' vectors are the row, so that none is beyond its end.
    pub full: bool,
    /// Bit `k`: operand `k` is constant along the row.
    pub single: u64,
    /// Bit `k`: operand `k` is the same for all rows. Used where a group takes several.
    pub still: u64,
    /// The next row is loaded while one is computed. Used where a group takes several.
    pub ahead: bool,
    /// Values whose sums over the rows are results too, as shares of blocks.
    pub columns: SmallVec<[usize; 2]>,
    /// Threads of a block.
    pub block: u32,
    /// As many blocks must fit on a multiprocessor (0: as many as do).
    pub resident: u32,
}

/// The struct of an element in memory.
pub(crate) fn element(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "F64",
        DType::F32 => "F32",
        DType::BF16 => "BF16",
        DType::F16 => "F16",
        DType::I64 => "I64",
        DType::I32 => "I32",
        DType::U8 => "U8",
        DType::Bool => "Bool",
    }
}

/// The type in which values are computed.
pub(crate) fn compute(dtype: DType) -> &'static str {
    match dtype.compute() {
        DType::F64 => "double",
        DType::F32 => "float",
        _ => "i64",
    }
}

/// A number in the compute type of a dtype.
fn number(value: Scalar, dtype: DType) -> String {
    match dtype {
        DType::F64 | DType::F32 | DType::BF16 | DType::F16 => {
            let bits = value.as_f64().to_bits();
            format!("Cast<{}>::of(__longlong_as_double(0x{bits:016x}LL))", element(dtype))
        }
        DType::Bool => i64::from(value.as_f64() != 0.0).to_string(),
        DType::I64 | DType::I32 | DType::U8 => {
            let (low, high) = match dtype {
                DType::I32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
                DType::U8 => (0, 255),
                _ => (i64::MIN, i64::MAX),
            };
            format!("(i64)0x{:016x}ull", value.as_i64().clamp(low, high))
        }
    }
}

/// The name of the struct that combines two values, and the value of no elements.
pub(crate) fn reduction(kind: Reduction, dtype: DType) -> (&'static str, String) {
    let extreme = |sign: f64| match dtype {
        DType::Bool => number(Scalar::Bool(sign > 0.0), dtype),
        _ => number(Scalar::from(sign * f64::INFINITY), dtype),
    };
    match kind {
        Reduction::Sum => ("Sum", "0".into()),
        Reduction::Prod => ("Prod", "1".into()),
        Reduction::Max => ("Max", extreme(-1.0)),
        Reduction::Min => ("Min", extreme(1.0)),
    }
}

/// The value of a pointwise op, rounded to its dtype.
fn point(op: &Op, x: &[String], from: DType, to: DType) -> String {
    let two = |name: &str| format!("{name}({}, {})", x[0], x[1]);
    let Some(op) = op.pointwise() else { unreachable!("a region has pointwise ops, not {op}") };
    let (value, exact) = match op {
        Pointwise::Unary(f) => {
            if f.ints() == Some(Ints::Not) && from == DType::Bool {
                return format!("({} ^ 1)", x[0]);
            }
            (format!("{}({})", name_of(f, from, to), x[0]), f.is_exact())
        }
        Pointwise::UnaryVjp(f) => (two(&name_of_vjp(f, to)), false),
        Pointwise::Binary(f) => (two(&format!("b_{}", f.name())), f.is_exact()),
        Pointwise::Compare(how) => {
            let sign = match how {
                Compare::Eq => "==",
                Compare::Ne => "!=",
                Compare::Lt => "<",
                Compare::Le => "<=",
                Compare::Gt => ">",
                Compare::Ge => ">=",
            };
            (format!("(i64)({} {sign} {})", x[0], x[1]), true)
        }
        Pointwise::Copy => (x[0].clone(), true),
        Pointwise::Select => (format!("({} != 0 ? {} : {})", x[0], x[1], x[2]), true),
        Pointwise::Cast(_) if from == to => (x[0].clone(), true),
        Pointwise::Cast(_) => (format!("Cast<{}>::of({})", element(to), x[0]), true),
    };
    match exact || matches!(to, DType::F64 | DType::F32 | DType::I64) {
        true => value,
        false => format!("rounded<{}>({value})", element(to)),
    }
}

/// How many reductions are below each value.
pub(crate) fn levels(body: &[Inst]) -> Vec<usize> {
    let mut levels: Vec<usize> = Vec::with_capacity(body.len());
    for inst in body {
        let level = match inst {
            Inst::Point(_, of) => of.iter().map(|&v| levels[v]).max().unwrap_or(0),
            Inst::Reduce(_, v) => levels[*v] + 1,
            _ => 0,
        };
        levels.push(level);
    }
    levels
}

/// Writes the text of a loop. `values` are those of its body.
pub(crate) fn text(of: &LoopText, values: &[Value]) -> String {
    let mut source = PRELUDE.to_string();
    source += special(of.body.iter().filter_map(|inst| match inst {
        Inst::Point(op, _) => Some(op),
        _ => None,
    }));
    if of.body.iter().any(|inst| matches!(inst, Inst::Random(..))) {
        source += RANDOM;
    }
    source + &own_text(of, values)
}

/// The text without what it shares with others.
pub(crate) fn own_text(of: &LoopText, values: &[Value]) -> String {
    let (mut source, writer) = (String::new(), LoopWriter { of, values, levels: levels(&of.body) });
    let _ = writer.kernel(&mut source);
    source
}

pub(crate) struct LoopWriter<'a> {
    pub of: &'a LoopText,
    pub values: &'a [Value],
    pub levels: Vec<usize>,
}

impl LoopWriter<'_> {
    pub fn operands(&self) -> usize {
        self.of.inputs.len() + self.of.outputs.len()
    }

    pub fn dtype(&self, operand: usize) -> DType {
        match self.of.inputs.get(operand) {
            Some(dtype) => *dtype,
            None => self.values[self.of.outputs[operand - self.of.inputs.len()]].dtype,
        }
    }

    /// The parameters: addresses, sizes, what indices need, then axes and strides.
    fn parameters(&self, out: &mut String, axes: u32) -> std::fmt::Result {
        writeln!(out, "struct P {{")?;
        let columns = if let LoopForm::Held(held) = &self.of.form { held.columns.len() } else { 0 };
        writeln!(out, "  u64 p[{}];", (self.operands() + columns).max(1))?;
        writeln!(out, "  u64 rows, width, parts, part;")?;
        let indices = self.of.body.iter().filter(|i| matches!(i, Inst::Index(..))).count();
        if indices > 0 {
            writeln!(out, "  u64 repeat[{indices}], length[{indices}];")?;
        }
        if axes > 0 {
            writeln!(out, "  u64 n[{axes}]; i64 s[{}][{axes}];", self.operands())?;
        }
        writeln!(out, "}};")?;
        writeln!(out, "typedef {} Ix;", if self.of.wide { "u64" } else { "u32" })
    }

    fn kernel(&self, out: &mut String) -> std::fmt::Result {
        let (axes, block) = match &self.of.form {
            LoopForm::Flat { .. } => (0, THREADS as u32),
            LoopForm::Strided { rank, .. } => (*rank, THREADS as u32),
            LoopForm::Rows { outer, inner, threads, .. } => (outer + inner, (*threads).max(256)),
            LoopForm::Held(held) => (held.outer, held.block),
        };
        self.parameters(out, axes)?;
        let resident = match &self.of.form {
            LoopForm::Held(RegisterRows { resident: n @ 1.., .. }) => format!(", {n}"),
            LoopForm::Held(_)
            | LoopForm::Flat { .. }
            | LoopForm::Strided { .. }
            | LoopForm::Rows { .. } => String::new(),
        };
        let bounds = format!("__launch_bounds__({block}{resident})");
        writeln!(out, "extern \"C\" __global__ void {bounds} k(P p) {{")?;
        for (k, inst) in self.of.body.iter().enumerate() {
            if let Inst::Random(_, key, _) = inst {
                writeln!(
                    out,
                    "  const i64 key{k}[2] = {{((const i64*)p.p[{key}])[0], ((const i64*)p.p[{key}])[1]}};"
                )?;
            }
        }
        for k in self.loaded().filter(|k| self.of.immediate >> k & 1 == 1) {
            let kind = element(self.dtype(k));
            writeln!(out, "  const {kind} x{k} = *(const {kind}*)&p.p[{k}];")?;
        }
        match &self.of.form {
            LoopForm::Flat { vector, single } => self.flat(out, *vector, *single)?,
            LoopForm::Strided { rank, vector: 1, .. } => self.strided(out, *rank)?,
            LoopForm::Strided { rank, vector, single } => {
                self.vectors(out, *rank, *vector, *single)?
            }
            LoopForm::Rows { outer, inner, threads, split } => {
                self.rows(out, *outer, *inner, *threads, *split)?;
            }
            LoopForm::Held(held) => self.held(out, held)?,
        }
        writeln!(out, "}}")
    }

    fn flat(&self, out: &mut String, vector: u32, single: u64) -> std::fmt::Result {
        let inputs = self.of.inputs.len();
        writeln!(out, "  const Ix first = ((Ix)blockIdx.x * {THREADS} + threadIdx.x) * {vector};")?;
        writeln!(out, "  if (first >= p.rows) return;")?;
        for k in self.stored().filter(|k| single >> k & 1 == 1) {
            let kind = element(self.dtype(k));
            writeln!(out, "  const {kind} x{k} = *(const {kind}*)p.p[{k}];")?;
        }
        let dense = || self.stored().filter(move |k| single >> k & 1 == 0);
        let element_code = |out: &mut String| -> std::fmt::Result {
            self.instructions(out, &self.needed(&self.of.outputs, None), None)
        };
        if vector > 1 {
            writeln!(out, "  if (first + {vector} <= p.rows) {{")?;
            self.vector(out, vector, &dense().collect::<Vec<_>>(), &|_| "first".into())?;
            writeln!(out, "    return;\n  }}")?;
        }
        writeln!(out, "  for (Ix at = first; at < first + {vector} && at < p.rows; at++) {{")?;
        for k in dense() {
            let kind = element(self.dtype(k));
            writeln!(out, "    const {kind} x{k} = ((const {kind}*)p.p[{k}])[at];")?;
        }
        element_code(out)?;
        for (j, v) in self.of.outputs.iter().enumerate() {
            let k = inputs + j;
            writeln!(out, "    put((({}*)p.p[{k}])[at], v{v});", element(self.dtype(k)))?;
        }
        writeln!(out, "  }}")
    }

    /// Loads vectors of the operands `dense` from the offsets that `offset` names, computes, and
    /// stores vectors.
    fn vector(
        &self,
        out: &mut String,
        vector: u32,
        dense: &[usize],
        offset: &dyn Fn(usize) -> String,
    ) -> std::fmt::Result {
        let inputs = self.of.inputs.len();
        for k in dense.iter().copied().chain(inputs..self.operands()) {
            let kind = element(self.dtype(k));
            let bytes = self.dtype(k).size() as u32 * vector;
            writeln!(out, "    struct __align__({bytes}) A{k} {{ {kind} e[{vector}]; }} a{k};")?;
            if k < inputs {
                let from = offset(k);
                writeln!(out, "    a{k} = *(const A{k}*)((const {kind}*)p.p[{k}] + {from});")?;
            }
        }
        writeln!(out, "#pragma unroll\n    for (int j = 0; j < {vector}; j++) {{")?;
        writeln!(out, "      const Ix at = first + j;")?;
        for k in dense {
            writeln!(out, "      const {} x{k} = a{k}.e[j];", element(self.dtype(*k)))?;
        }
        self.instructions(out, &self.needed(&self.of.outputs, None), None)?;
        for (j, v) in self.of.outputs.iter().enumerate() {
            writeln!(out, "      put(a{}.e[j], v{v});", inputs + j)?;
        }
        writeln!(out, "    }}")?;
        for k in inputs..self.operands() {
            let (kind, to) = (element(self.dtype(k)), offset(k));
            writeln!(out, "    *(A{k}*)(({kind}*)p.p[{k}] + {to}) = a{k};")?;
        }
        Ok(())
    }

    /// A vector of each thread, within the last axis.
    fn vectors(&self, out: &mut String, rank: u32, vector: u32, single: u64) -> std::fmt::Result {
        writeln!(out, "  const Ix first = ((Ix)blockIdx.x * {THREADS} + threadIdx.x) * {vector};")?;
        writeln!(out, "  if (first >= p.rows) return;")?;
        let operands: Vec<usize> =
            self.stored().chain(self.of.inputs.len()..self.operands()).collect();
        self.offsets(out, "first", "o", 0..rank, &operands)?;
        for k in self.stored().filter(|k| single >> k & 1 == 1) {
            let kind = element(self.dtype(k));
            writeln!(out, "    const {kind} x{k} = ((const {kind}*)p.p[{k}])[o{k}];")?;
        }
        let dense: Vec<usize> = self.stored().filter(|k| single >> k & 1 == 0).collect();
        self.vector(out, vector, &dense, &|k| format!("o{k}"))
    }

    /// Offsets `o{k}` of operands from an index, over axes `from..to`.
    pub fn offsets(
        &self,
        out: &mut String,
        index: &str,
        name: &str,
        axes: std::ops::Range<u32>,
        operands: &[usize],
    ) -> std::fmt::Result {
        for k in operands {
            writeln!(out, "    i64 {name}{k} = 0;")?;
        }
        if axes.len() == 1 {
            for k in operands {
                writeln!(out, "    {name}{k} = (i64){index} * p.s[{k}][{}];", axes.start)?;
            }
            return Ok(());
        }
        writeln!(out, "    {{ Ix q = {index};")?;
        for d in axes.clone().rev() {
            match d == axes.start {
                true => writeln!(out, "      {{ const i64 c = (i64)q;")?,
                false => {
                    writeln!(
                        out,
                        "      {{ const i64 c = (i64)(q % (Ix)p.n[{d}]); q /= (Ix)p.n[{d}];"
                    )?;
                }
            }
            for k in operands {
                writeln!(out, "        {name}{k} += c * p.s[{k}][{d}];")?;
            }
            writeln!(out, "      }}")?;
        }
        writeln!(out, "    }}")
    }

    /// The operands that are loaded from memory.
    pub fn stored(&self) -> impl Iterator<Item = usize> + '_ {
        self.loaded().filter(|k| self.of.immediate >> k & 1 == 0)
    }

    /// The operands that instructions load, keys not among them.
    pub fn loaded(&self) -> impl Iterator<Item = usize> + '_ {
        let loads = |k: usize| self.of.body.iter().any(|i| matches!(i, Inst::Load(n) if *n == k));
        (0..self.of.inputs.len()).filter(move |&k| loads(k))
    }

    fn strided(&self, out: &mut String, rank: u32) -> std::fmt::Result {
        writeln!(out, "  const Ix at = (Ix)blockIdx.x * {THREADS} + threadIdx.x;")?;
        writeln!(out, "  if (at >= p.rows) return;")?;
        let operands: Vec<usize> =
            self.stored().chain(self.of.inputs.len()..self.operands()).collect();
        self.offsets(out, "at", "o", 0..rank, &operands)?;
        for k in self.stored() {
            let kind = element(self.dtype(k));
            writeln!(out, "    const {kind} x{k} = ((const {kind}*)p.p[{k}])[o{k}];")?;
        }
        self.instructions(out, &self.needed(&self.of.outputs, None), None)?;
        for (j, v) in self.of.outputs.iter().enumerate() {
            let k = self.of.inputs.len() + j;
            writeln!(out, "    put((({}*)p.p[{k}])[o{k}], v{v});", element(self.dtype(k)))?;
        }
        Ok(())
    }

    /// The values that these need: all, or only element values (row values are there already).
    pub fn needed(&self, of: &[usize], elements_only: Option<()>) -> Vec<bool> {
        let mut needed = vec![false; self.of.body.len()];
        for &v in of {
            needed[v] = true;
        }
        for v in (0..self.of.body.len()).rev() {
            if !needed[v] || (elements_only.is_some() && self.values[v].row) {
                continue;
            }
            if let Inst::Point(_, of) = &self.of.body[v] {
                of.iter().for_each(|&u| needed[u] = true);
            }
        }
        needed
    }

    /// The text of some instructions; `rows` says whether only row values (of a level) or only
    /// element values are written.
    pub fn instructions(
        &self,
        out: &mut String,
        needed: &[bool],
        rows: Option<(bool, usize)>,
    ) -> std::fmt::Result {
        let mut indices = 0;
        for (v, inst) in self.of.body.iter().enumerate() {
            let number_of_index = indices;
            indices += usize::from(matches!(inst, Inst::Index(..)));
            let wanted = match rows {
                None => needed[v],
                Some((true, level)) => self.values[v].row && self.levels[v] == level,
                Some((false, _)) => needed[v] && !self.values[v].row,
            };
            if !wanted || matches!(inst, Inst::Reduce(..)) {
                continue;
            }
            let dtype = self.values[v].dtype;
            let value = match inst {
                Inst::Load(k) => format!("load(x{k})"),
                Inst::Literal(value, dtype) => number(*value, *dtype),
                Inst::Index(_, dtype) => {
                    let j = number_of_index;
                    let index = format!("(i64)((at / (Ix)p.repeat[{j}]) % (Ix)p.length[{j}])");
                    format!("Cast<{}>::of({index})", element(*dtype))
                }
                Inst::Random(kind, _, dtype) => random(*kind, *dtype, &format!("key{v}"), "at"),
                Inst::Point(op, of) => {
                    let x: Vec<String> = of.iter().map(|u| format!("v{u}")).collect();
                    point(op, &x, self.values[of[0]].dtype, dtype)
                }
                Inst::Reduce(..) => continue,
            };
            writeln!(out, "    const {} v{v} = {value};", compute(dtype))?;
        }
        Ok(())
    }
}

/// The draw of one element.
pub(crate) fn random(kind: Random, dtype: DType, key: &str, at: &str) -> String {
    match (kind, dtype) {
        (Random::Bits, _) => format!("draw_bits({key}, {at})"),
        (Random::Uniform, DType::F64) => format!("draw_uniform64({key}, {at})"),
        (Random::Uniform, DType::BF16) => format!("draw_uniform32<8>({key}, {at})"),
        (Random::Uniform, DType::F16) => format!("draw_uniform32<11>({key}, {at})"),
        (Random::Uniform, _) => format!("draw_uniform32<24>({key}, {at})"),
        (Random::Normal, DType::F64) => format!("draw_normal64({key}, {at})"),
        (Random::Normal, _) => {
            format!("rounded<{}>(draw_normal32({key}, {at}))", element(dtype))
        }
    }
}

/// The text of a kernel with random numbers of its own.
pub(crate) fn with_random(body: &str) -> String {
    format!("{PRELUDE}{RANDOM}{body}")
}
