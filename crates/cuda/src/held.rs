//! Rows in registers, as the text of a kernel.
//!
//! A group of threads loads a row once, each thread some vectors of 16 bytes, and all passes over
//! the row read registers. A group takes one row, or, if columns are summed as well, every so
//! manyth row: the sums of its rows stay in registers, and are written at the end as its share.

use crate::text::{Held, Writer, compute, element};
use pullback_ir::Inst;
use std::fmt::Write;

impl Writer<'_> {
    pub fn held(&self, out: &mut String, held: &Held) -> std::fmt::Result {
        let Held { outer, threads, vector, count, single, ref columns } = *held;
        let inputs = self.of.inputs.len();
        let block = held.block();
        let vectors = || self.stored().filter(move |k| single >> k & 1 == 0);
        let of_rows = |j: &usize| self.values[self.of.outputs[*j]].row;
        let outputs = 0..self.of.outputs.len();
        let element_outputs: Vec<usize> = outputs.clone().filter(|j| !of_rows(j)).collect();
        let row_outputs: Vec<usize> = outputs.filter(of_rows).collect();
        writeln!(out, "  const u32 lane = threadIdx.x % {threads};")?;
        writeln!(out, "  const Ix group = ((Ix)blockIdx.x * {block} + threadIdx.x) / {threads};")?;
        for v in columns {
            let c = compute(self.values[*v].dtype);
            writeln!(out, "  {c} s{v}[{count}][{vector}] = {{}};")?;
        }
        for k in vectors().chain(element_outputs.iter().map(|j| inputs + j)) {
            let (kind, bytes) = (element(self.dtype(k)), self.dtype(k).size() as u32 * vector);
            writeln!(out, "  struct __align__({bytes}) A{k} {{ {kind} e[{vector}]; }};")?;
        }
        match columns.is_empty() {
            true => writeln!(out, "  const Ix row = group;\n  if (row >= p.rows) return;\n  {{")?,
            false => {
                let groups = format!("(Ix)gridDim.x * {}", block / threads);
                // Rows without reductions do not wait for each other.
                if self.levels.iter().all(|&level| level == 0) {
                    writeln!(out, "#pragma unroll 2")?;
                }
                writeln!(out, "  for (Ix row = group; row < p.rows; row += {groups}) {{")?;
            }
        }
        let all: Vec<usize> = self.stored().chain(inputs..self.operands()).collect();
        self.offsets(out, "row", "b", 0..outer, &all)?;
        for k in self.stored().filter(|k| single >> k & 1 == 1) {
            let kind = element(self.dtype(k));
            writeln!(out, "  const {kind} x{k} = ((const {kind}*)p.p[{k}])[b{k}];")?;
        }
        for k in vectors() {
            writeln!(out, "  A{k} a{k}[{count}];")?;
        }
        let each = |out: &mut String| {
            writeln!(out, "#pragma unroll\n  for (int j = 0; j < {count}; j++) {{")?;
            writeln!(out, "  const u32 c = (j * {threads} + lane) * {vector};")?;
            writeln!(out, "  if (c < (u32)p.width) {{")
        };
        each(out)?;
        for k in vectors() {
            let kind = element(self.dtype(k));
            writeln!(out, "    a{k}[j] = *(const A{k}*)((const {kind}*)p.p[{k}] + b{k} + c);")?;
        }
        writeln!(out, "  }} }}")?;
        self.instructions(out, &[], Some((true, 0)))?;
        let elements = |out: &mut String, of: &[usize]| {
            writeln!(out, "#pragma unroll\n    for (int e = 0; e < {vector}; e++) {{")?;
            writeln!(out, "    const Ix at = row * (Ix)p.width + c + e;")?;
            let needed = self.needed(of, Some(()));
            for k in vectors() {
                let body = self.of.body.iter().enumerate();
                let mut used =
                    body.filter(|(v, i)| needed[*v] && matches!(i, Inst::Load(n) if *n == k));
                if used.next().is_some() {
                    writeln!(out, "    const {} x{k} = a{k}[j].e[e];", element(self.dtype(k)))?;
                }
            }
            self.instructions(out, &needed, Some((false, 0)))
        };
        for level in 0..self.levels.iter().copied().max().unwrap_or(0) {
            let reduced = self.reductions(level);
            self.start(out, &reduced)?;
            each(out)?;
            elements(out, &reduced.iter().map(|r| r.2).collect::<Vec<_>>())?;
            self.combine(out, &reduced)?;
            writeln!(out, "  }} }} }}")?;
            self.finish(out, &reduced, threads, false)?;
            self.instructions(out, &[], Some((true, level + 1)))?;
        }
        if !element_outputs.is_empty() || !columns.is_empty() {
            each(out)?;
            for k in element_outputs.iter().map(|j| inputs + j) {
                writeln!(out, "    A{k} y{k};")?;
            }
            let stored = element_outputs.iter().map(|&j| self.of.outputs[j]);
            elements(out, &stored.chain(columns.iter().copied()).collect::<Vec<_>>())?;
            for &j in &element_outputs {
                writeln!(out, "    store(y{}.e[e], v{});", inputs + j, self.of.outputs[j])?;
            }
            for v in columns {
                writeln!(out, "    s{v}[j][e] += v{v};")?;
            }
            writeln!(out, "    }}")?;
            for k in element_outputs.iter().map(|j| inputs + j) {
                let kind = element(self.dtype(k));
                writeln!(out, "    *(A{k}*)(({kind}*)p.p[{k}] + b{k} + c) = y{k};")?;
            }
            writeln!(out, "  }} }}")?;
        }
        if !row_outputs.is_empty() {
            writeln!(out, "  if (lane == 0) {{")?;
            for j in row_outputs {
                let (k, v) = (inputs + j, self.of.outputs[j]);
                let kind = element(self.dtype(k));
                writeln!(out, "    store((({kind}*)p.p[{k}])[b{k}], v{v});")?;
            }
            writeln!(out, "  }}")?;
        }
        writeln!(out, "  }}")?;
        if !columns.is_empty() {
            each(out)?;
            writeln!(out, "#pragma unroll\n    for (int e = 0; e < {vector}; e++) {{")?;
            for (n, v) in columns.iter().enumerate() {
                let (k, c) = (self.operands() + n, compute(self.values[*v].dtype));
                writeln!(out, "    (({c}*)p.p[{k}])[group * (Ix)p.width + c + e] = s{v}[j][e];")?;
            }
            writeln!(out, "  }} }} }}")?;
        }
        Ok(())
    }
}
