//! Loops with reductions along rows, as the text of a kernel: one pass over the row for each level
//! of reductions, and one more for the results.

use crate::text::{LoopWriter, compute, element, reduction};
use pullback_ir::{DType, Inst, Reduction};
use std::fmt::Write;

impl LoopWriter<'_> {
    /// The reductions of a level: their value, kind and operand.
    pub fn reductions(&self, level: usize) -> Vec<(usize, Reduction, usize)> {
        let of_level =
            self.of.body.iter().enumerate().filter(|(v, _)| self.levels[*v] == level + 1);
        let found = of_level.filter_map(|(v, inst)| match inst {
            Inst::Reduce(kind, u) => Some((v, *kind, *u)),
            _ => None,
        });
        found.collect()
    }

    /// Before a row: what a thread has reduced, nothing yet.
    pub fn start(&self, out: &mut String, of: &[(usize, Reduction, usize)]) -> std::fmt::Result {
        for &(v, kind, u) in of {
            let (from, to) = (self.values[u].dtype, self.values[v].dtype);
            let none = reduction(kind, if kind_widens(kind) { to } else { from }).1;
            let c = compute(to);
            writeln!(out, "  const {c} n{v} = {none}; {c} r{v} = n{v};")?;
        }
        Ok(())
    }

    /// An element more.
    pub fn combine(&self, out: &mut String, of: &[(usize, Reduction, usize)]) -> std::fmt::Result {
        for &(v, kind, u) in of {
            let (name, c) =
                (reduction(kind, self.values[u].dtype).0, compute(self.values[v].dtype));
            writeln!(out, "    r{v} = {name}::of(r{v}, ({c})v{u});")?;
        }
        Ok(())
    }

    /// Over the threads of the row.
    pub fn finish(
        &self,
        out: &mut String,
        of: &[(usize, Reduction, usize)],
        threads: u32,
        split: bool,
    ) -> std::fmt::Result {
        for &(v, kind, u) in of {
            let name = reduction(kind, self.values[u].dtype).0;
            let dtype = self.values[v].dtype;
            let whole = format!("over_row<{name}, {threads}>(r{v}, n{v})");
            let value = match split || matches!(dtype, DType::F64 | DType::F32 | DType::I64) {
                true => whole,
                false => format!("rounded<{}>({whole})", element(dtype)),
            };
            writeln!(out, "  const {} v{v} = {value};", compute(dtype))?;
        }
        Ok(())
    }

    pub fn rows(
        &self,
        out: &mut String,
        outer: u32,
        inner: u32,
        threads: u32,
        split: bool,
    ) -> std::fmt::Result {
        let block = threads.max(256);
        let inputs = self.of.inputs.len();
        writeln!(out, "  const u32 lane = threadIdx.x % {threads};")?;
        writeln!(out, "  const Ix group = ((Ix)blockIdx.x * {block} + threadIdx.x) / {threads};")?;
        writeln!(out, "  if (group >= p.rows * p.parts) return;")?;
        // Parts are the slower index, so that neighbouring groups have neighbouring rows.
        writeln!(out, "  const Ix row = group % (Ix)p.rows, part = group / (Ix)p.rows;")?;
        writeln!(out, "  const Ix from = part * (Ix)p.part;")?;
        writeln!(
            out,
            "  const Ix to = from + (Ix)p.part < (Ix)p.width ? from + (Ix)p.part : (Ix)p.width;"
        )?;
        let of_rows = |j: &usize| self.values[self.of.outputs[*j]].row;
        let outputs = 0..self.of.outputs.len();
        let element_outputs: Vec<usize> = outputs.clone().filter(|j| !of_rows(j)).collect();
        let row_outputs: Vec<usize> = outputs.filter(of_rows).collect();
        let along_row: Vec<usize> =
            self.loaded().chain(element_outputs.iter().map(|j| inputs + j)).collect();
        let mut all: Vec<usize> = along_row.clone();
        if !split {
            all.extend(row_outputs.iter().map(|j| inputs + j));
        }
        self.offsets(out, "row", "b", 0..outer, &all)?;
        self.instructions(out, &[], Some((true, 0)))?;
        let most = self.levels.iter().copied().max().unwrap_or(0);
        let pass =
            |out: &mut String, of: &[usize], then: &dyn Fn(&mut String) -> std::fmt::Result| {
                // Several loads at once: one at a time does not keep the memory busy.
                writeln!(out, "#pragma unroll 4")?;
                writeln!(out, "  for (Ix c = from + lane; c < to; c += {threads}) {{")?;
                writeln!(out, "    const Ix at = row * (Ix)p.width + c;")?;
                let needed = self.needed(of, Some(()));
                self.offsets(out, "c", "i", outer..outer + inner, &along_row)?;
                for k in self.loaded() {
                    let kind = element(self.dtype(k));
                    let used = self.of.body.iter().enumerate();
                    let used =
                        used.filter(|(v, i)| needed[*v] && matches!(i, Inst::Load(n) if *n == k));
                    if used.count() > 0 {
                        writeln!(
                            out,
                            "    const {kind} x{k} = ((const {kind}*)p.p[{k}])[b{k} + i{k}];"
                        )?;
                    }
                }
                self.instructions(out, &needed, Some((false, 0)))?;
                then(out)?;
                writeln!(out, "  }}")
            };
        for level in 0..most {
            let reduced = self.reductions(level);
            self.start(out, &reduced)?;
            let of: Vec<usize> = reduced.iter().map(|r| r.2).collect();
            pass(out, &of, &|out| self.combine(out, &reduced))?;
            self.finish(out, &reduced, threads, split)?;
            self.instructions(out, &[], Some((true, level + 1)))?;
        }
        if split {
            writeln!(out, "  if (lane == 0) {{")?;
            for j in row_outputs {
                let v = self.of.outputs[j];
                let (k, kind) = (inputs + j, compute(self.values[v].dtype));
                writeln!(out, "    (({kind}*)p.p[{k}])[group] = v{v};")?;
            }
            return writeln!(out, "  }}");
        }
        if !element_outputs.is_empty() {
            let of: Vec<usize> = element_outputs.iter().map(|&j| self.of.outputs[j]).collect();
            pass(out, &of, &|out| {
                for &j in &element_outputs {
                    let (k, v) = (inputs + j, self.of.outputs[j]);
                    let kind = element(self.dtype(k));
                    writeln!(out, "    put((({kind}*)p.p[{k}])[b{k} + i{k}], v{v});")?;
                }
                Ok(())
            })?;
        }
        if !row_outputs.is_empty() {
            writeln!(out, "  if (lane == 0) {{")?;
            for j in row_outputs {
                let (k, v) = (inputs + j, self.of.outputs[j]);
                let kind = element(self.dtype(k));
                writeln!(out, "    put((({kind}*)p.p[{k}])[b{k}], v{v});")?;
            }
            writeln!(out, "  }}")?;
        }
        Ok(())
    }
}

/// Sums and products of integers are in `i64`; extremes keep the dtype.
pub(crate) fn kind_widens(kind: Reduction) -> bool {
    matches!(kind, Reduction::Sum | Reduction::Prod)
}
