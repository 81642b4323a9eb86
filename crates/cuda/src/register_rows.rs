//! Rows in registers, as the text of a kernel.
//!
//! A group of threads loads a row once, each thread some vectors of 16 bytes, and all passes over
//! the row read registers. A group takes one row, or, if columns are summed as well, every n-th
//! row: the next row is loaded while one is computed, and the sums of its rows stay in
//! registers. At the end a block writes them as its share.
//!
//! Where vectors and threads match the row exactly, no vector is checked. That is not only faster:
//! only then does the compiler keep a value, such as an exponential, from one pass for the next.

use crate::text::{LoopWriter, RegisterRows, compute, element, reduction};
use pullback_ir::{DType, Inst, Reduction};
use std::fmt::{Result, Write};

impl LoopWriter<'_> {
    pub fn held(&self, out: &mut String, held: &RegisterRows) -> Result {
        let RegisterRows {
            outer, threads, vector, count, single, still, ahead, ref columns, ..
        } = *held;
        let inputs = self.of.inputs.len();
        let (block, loops) = (held.block, !columns.is_empty());
        let still = if loops { still } else { 0 };
        let vectors = || self.stored().filter(move |k| single >> k & 1 == 0);
        let moving = || vectors().filter(move |k| still >> k & 1 == 0);
        let singles = || self.stored().filter(move |k| single >> k & 1 == 1);
        let of_rows = |j: &usize| self.values[self.of.outputs[*j]].row;
        let outputs = 0..self.of.outputs.len();
        let element_outputs: Vec<usize> = outputs.clone().filter(|j| !of_rows(j)).collect();
        let row_outputs: Vec<usize> = outputs.filter(of_rows).collect();
        match threads > 32 {
            true => {
                writeln!(out, "  const u32 lane = threadIdx.x;\n  const Ix group = blockIdx.x;")?
            }
            false => {
                writeln!(out, "  const u32 lane = threadIdx.x % 32;")?;
                writeln!(out, "  const Ix group = ((Ix)blockIdx.x * {block} + threadIdx.x) / 32;")?;
            }
        }
        for v in columns {
            let c = compute(self.values[*v].dtype);
            writeln!(out, "  {c} s{v}[{count}][{vector}] = {{}};")?;
        }
        for k in vectors().chain(element_outputs.iter().map(|j| inputs + j)) {
            let (kind, bytes) = (element(self.dtype(k)), self.dtype(k).size() as u32 * vector);
            let align = bytes.min(16);
            writeln!(out, "  struct __align__({align}) A{k} {{ {kind} e[{vector}]; }};")?;
        }
        let load = |out: &mut String, of: &[usize], to: &str, from: &str| -> Result {
            held.each(out)?;
            for k in of {
                let kind = element(self.dtype(*k));
                let at = format!("(const {kind}*)p.p[{k}] + {from}{k} + c");
                writeln!(out, "    {to}{k}[j] = *(const A{k}*)({at});")?;
            }
            writeln!(out, "  }} }}")
        };
        let load_singles = |out: &mut String, to: &str, from: &str| {
            singles().try_for_each(|k| {
                let kind = element(self.dtype(k));
                writeln!(out, "  {to}{k} = ((const {kind}*)p.p[{k}])[{from}{k}];")
            })
        };
        let declare = |out: &mut String, vector: &str, single: &str| -> Result {
            for k in moving() {
                writeln!(out, "  A{k} {vector}{k}[{count}];")?;
            }
            singles().try_for_each(|k| writeln!(out, "  {} {single}{k};", element(self.dtype(k))))
        };
        let all: Vec<usize> = self.stored().chain(inputs..self.operands()).collect();
        let read: Vec<usize> = moving().collect();
        match loops {
            false => {
                writeln!(out, "  const Ix row = group;\n  if (row >= p.rows) return;\n  {{")?;
                self.offsets(out, "row", "b", 0..outer, &all)?;
                declare(out, "a", "x")?;
                load_singles(out, "x", "b")?;
                load(out, &read, "a", "b")?;
            }
            true => {
                let groups = format!("(Ix)gridDim.x * {}", block / threads);
                let kept: Vec<usize> = vectors().filter(|k| !read.contains(k)).collect();
                let first: Vec<usize> = if ahead { all.clone() } else { kept.clone() };
                self.offsets(out, "group", "b", 0..outer, &first)?;
                kept.iter().try_for_each(|k| writeln!(out, "  A{k} a{k}[{count}];"))?;
                load(out, &kept, "a", "b")?;
                if ahead {
                    declare(out, "a", "x")?;
                    writeln!(out, "  if (group < p.rows) {{")?;
                    load_singles(out, "x", "b")?;
                    load(out, &read, "a", "b")?;
                    writeln!(out, "  }}")?;
                }
                match held.only_sums(self) {
                    // Four rows are loaded at once: the compiler has to know how many there are.
                    true => {
                        writeln!(out, "  const Ix step = {groups};")?;
                        let rest = "((Ix)p.rows - group - 1) / step + 1";
                        writeln!(out, "  const Ix turns = group < p.rows ? {rest} : 0;")?;
                        writeln!(out, "#pragma unroll 4\n  for (Ix t = 0; t < turns; t++) {{")?;
                        writeln!(out, "  const Ix row = group + t * step;")?;
                    }
                    false => {
                        writeln!(out, "  u32 turn = 0;\n#pragma unroll 1")?;
                        writeln!(out, "  for (Ix row = group; row < p.rows;) {{")?;
                        writeln!(out, "  const Ix next = row + {groups};")?;
                    }
                }
                match ahead {
                    true => {
                        self.offsets(out, "next", "g", 0..outer, &all)?;
                        declare(out, "m", "z")?;
                        writeln!(out, "  if (next < p.rows) {{")?;
                        load_singles(out, "z", "g")?;
                        load(out, &read, "m", "g")?;
                        writeln!(out, "  }}")?;
                    }
                    false => {
                        let moved: Vec<usize> =
                            all.iter().copied().filter(|k| !kept.contains(k)).collect();
                        self.offsets(out, "row", "b", 0..outer, &moved)?;
                        declare(out, "a", "x")?;
                        load_singles(out, "x", "b")?;
                        load(out, &read, "a", "b")?;
                    }
                }
            }
        }
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
            held.each(out)?;
            elements(out, &reduced.iter().map(|r| r.2).collect::<Vec<_>>())?;
            self.combine(out, &reduced)?;
            writeln!(out, "  }} }} }}")?;
            match threads > 32 {
                true => self.finish_block(out, &reduced, threads / 32, loops)?,
                false => self.finish(out, &reduced, 32, false)?,
            }
            self.instructions(out, &[], Some((true, level + 1)))?;
        }
        if !element_outputs.is_empty() || loops {
            held.each(out)?;
            for k in element_outputs.iter().map(|j| inputs + j) {
                writeln!(out, "    A{k} y{k};")?;
            }
            let stored = element_outputs.iter().map(|&j| self.of.outputs[j]);
            elements(out, &stored.chain(columns.iter().copied()).collect::<Vec<_>>())?;
            for &j in &element_outputs {
                writeln!(out, "    put(y{}.e[e], v{});", inputs + j, self.of.outputs[j])?;
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
                writeln!(out, "    put((({kind}*)p.p[{k}])[b{k}], v{v});")?;
            }
            writeln!(out, "  }}")?;
        }
        if loops && !held.only_sums(self) {
            writeln!(out, "  row = next; turn ^= 1;")?;
        }
        if loops && ahead {
            all.iter().try_for_each(|k| writeln!(out, "  b{k} = g{k};"))?;
            singles().try_for_each(|k| writeln!(out, "  x{k} = z{k};"))?;
            writeln!(out, "#pragma unroll\n  for (int j = 0; j < {count}; j++) {{")?;
            read.iter().try_for_each(|k| writeln!(out, "    a{k}[j] = m{k}[j];"))?;
            writeln!(out, "  }}")?;
        }
        writeln!(out, "  }}")?;
        if loops { self.shares(out, held) } else { Ok(()) }
    }

    /// Reductions over the threads of a block, whose warps wait for each other once. Rows take
    /// turns in two places, so that no warp is overtaken by the next row.
    fn finish_block(
        &self,
        out: &mut String,
        of: &[(usize, Reduction, usize)],
        warps: u32,
        loops: bool,
    ) -> Result {
        let turn = if loops { "turn" } else { "0" };
        for &(v, kind, u) in of {
            let (name, dtype) = (reduction(kind, self.values[u].dtype).0, self.values[v].dtype);
            let places = if loops { 2 } else { 1 };
            writeln!(out, "  __shared__ {} part{v}[{places}][{warps}];", compute(dtype))?;
            writeln!(out, "  r{v} = over_row<{name}, 32>(r{v}, n{v});")?;
            writeln!(out, "  if (lane % 32 == 0) part{v}[{turn}][lane / 32] = r{v};")?;
        }
        writeln!(out, "  __syncthreads();")?;
        for &(v, kind, u) in of {
            let (name, dtype) = (reduction(kind, self.values[u].dtype).0, self.values[v].dtype);
            let c = compute(dtype);
            match warps <= 8 {
                true => {
                    writeln!(out, "  {c} q{v} = part{v}[{turn}][0];\n#pragma unroll")?;
                    let next = format!("{name}::of(q{v}, part{v}[{turn}][w])");
                    writeln!(out, "  for (int w = 1; w < {warps}; w++) q{v} = {next};")?;
                }
                false => {
                    let own = format!("lane % 32 < {warps} ? part{v}[{turn}][lane % 32] : n{v}");
                    writeln!(out, "  const {c} q{v} = over_row<{name}, 32>({own}, n{v});")?;
                }
            }
            let value = match dtype {
                DType::F64 | DType::F32 | DType::I64 => format!("q{v}"),
                DType::BF16 | DType::F16 | DType::I32 | DType::U8 | DType::Bool => {
                    format!("rounded<{}>(q{v})", element(dtype))
                }
            };
            writeln!(out, "  const {c} v{v} = {value};")?;
        }
        Ok(())
    }

    /// The sums of columns that a block leaves: those of its groups, added in their order.
    fn shares(&self, out: &mut String, held: &RegisterRows) -> Result {
        let RegisterRows { threads, vector, count, ref columns, block, .. } = *held;
        let groups = block / threads;
        for (n, v) in columns.iter().enumerate() {
            let (k, c) = (self.operands() + n, compute(self.values[*v].dtype));
            let (to, each) = match groups {
                1 => (format!("(({c}*)p.p[{k}])[group * (Ix)p.width + c + e]"), ""),
                _ => (format!("w{v}[threadIdx.x / {threads}][c + e]"), "  __syncthreads();\n"),
            };
            if groups > 1 {
                let length = threads * vector * count;
                match n {
                    0 => writeln!(out, "  __shared__ {c} w{v}[{groups}][{length}];")?,
                    // One after the other in the same memory.
                    _ => writeln!(out, "  auto& w{v} = w{};", columns[0])?,
                }
            }
            out.push_str(each);
            held.each(out)?;
            writeln!(out, "#pragma unroll\n    for (int e = 0; e < {vector}; e++) {{")?;
            writeln!(out, "    {to} = s{v}[j][e];\n  }} }} }}\n{each}")?;
            if groups > 1 {
                writeln!(out, "  for (u32 c = threadIdx.x; c < (u32)p.width; c += {block}) {{")?;
                writeln!(out, "    {c} sum = w{v}[0][c];\n#pragma unroll")?;
                writeln!(out, "    for (int g = 1; g < {groups}; g++) sum += w{v}[g][c];")?;
                writeln!(out, "    (({c}*)p.p[{k}])[blockIdx.x * (Ix)p.width + c] = sum;\n  }}")?;
            }
        }
        Ok(())
    }
}

impl RegisterRows {
    /// Whether nothing but sums over the rows is computed.
    fn only_sums(&self, of: &LoopWriter<'_>) -> bool {
        !self.ahead && of.of.outputs.is_empty() && of.levels.iter().all(|&level| level == 0)
    }

    /// The beginning of a loop over the vectors of a thread, `c` being the first element of one.
    fn each(&self, out: &mut String) -> Result {
        let RegisterRows { threads, vector, count, full, .. } = *self;
        writeln!(out, "#pragma unroll\n  for (int j = 0; j < {count}; j++) {{")?;
        writeln!(out, "  const u32 c = (j * {threads} + lane) * {vector};")?;
        writeln!(out, "{}", if full { "  {" } else { "  if (c < (u32)p.width) {" })
    }
}
