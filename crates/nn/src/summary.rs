//! The table of a module: its parts, what they give and what they hold, as torchinfo prints it.
//!
//! The parts are the derived types in the tree ([`Tree::tree_structure`]). Which of them gave which
//! output is learned from a call: layers report to
//! [`ModuleScope::output`](crate::ModuleScope::output). A report is matched to a part by its type
//! and its first tensor; among parts that share both (a sequence in a sequence) the deepest comes
//! first, as it ends first; layers without tensors are matched in the order of their calls.

use crate::module::in_evaluation;
use crate::module_scope::{LayerCall, watched};
use pullback::{Path, Tensor, Tree, no_grad};
use std::collections::HashMap;
use std::fmt::{self, Display};

/// A module's parts with their output shapes and parameters, and the totals: see
/// [`Module::summary`](crate::Module::summary).
pub struct Summary {
    rows: Vec<SummaryRow>,
    /// Whether outputs are known.
    called: bool,
    /// How many numbers the parameters hold, tied ones counted once.
    pub parameters: usize,
    /// How many of these are trained.
    pub trainable: usize,
    /// How many numbers the buffers hold.
    pub buffers: usize,
    /// The bytes of the parameters.
    pub parameter_bytes: usize,
    /// The bytes of the buffers.
    pub buffer_bytes: usize,
    /// The bytes of the inputs, if some were given.
    pub input_bytes: usize,
    /// The bytes of the outputs of parts that hold parameters and have no parts themselves, and of
    /// their gradients.
    pub output_bytes: usize,
    /// Multiplications whose results are added up: of linear layers and convolutions.
    pub macs: usize,
}

/// A part.
struct SummaryRow {
    path: String,
    kind: &'static str,
    depth: usize,
    /// Its own parameters: name, shape, whether they occurred before.
    own: Vec<(String, Vec<usize>, bool)>,
    /// How many numbers its own parameters hold, without those that occurred before, and how many
    /// of these are trained.
    count: (usize, usize),
    /// How many tensors are in it and its parts, and the first of them.
    tensors: usize,
    first: Option<Tensor>,
    call: Option<LayerCall>,
}

impl Summary {
    /// Without outputs.
    pub(crate) fn new(module: &impl Tree) -> Summary {
        let mut rows: Vec<SummaryRow> = Vec::new();
        for (path, kind) in module.tree_structure().kinds {
            let above = rows.iter().filter(|row| holds(&row.path, &path)).count();
            let (own, count) = (Vec::new(), (0, 0));
            let row = SummaryRow {
                path,
                kind,
                depth: above,
                own,
                count,
                tensors: 0,
                first: None,
                call: None,
            };
            rows.push(row);
        }
        // A tuple or a vector has no name, but is the root.
        if rows.first().is_none_or(|row| !row.path.is_empty()) {
            rows.iter_mut().for_each(|row| row.depth += 1);
            let (own, count, path) = (Vec::new(), (0, 0), String::new());
            let row = SummaryRow {
                path,
                kind: "(module)",
                depth: 0,
                own,
                count,
                tensors: 0,
                first: None,
                call: None,
            };
            rows.insert(0, row);
        }
        let mut summary = Summary {
            rows,
            called: false,
            parameters: 0,
            trainable: 0,
            buffers: 0,
            parameter_bytes: 0,
            buffer_bytes: 0,
            input_bytes: 0,
            output_bytes: 0,
            macs: 0,
        };
        let mut seen = HashMap::new();
        module.visit(&mut Path::default(), &mut |path, x| {
            // Held, so that its number stays its own.
            let again = seen.insert(x.id(), x.clone()).is_some();
            summary.note(path, x, again);
        });
        summary
    }

    /// Notes a tensor of the module.
    fn note(&mut self, path: &Path, x: &Tensor, again: bool) {
        let (name, bytes) = (path.to_string(), x.len() * x.dtype().size());
        let mut owner = 0;
        for (i, row) in self.rows.iter_mut().enumerate().filter(|(_, row)| holds(&row.path, &name))
        {
            row.tensors += 1;
            row.first.get_or_insert_with(|| x.clone());
            owner = i;
        }
        if path.is_buffer() {
            self.buffers += if again { 0 } else { x.len() };
            self.buffer_bytes += if again { 0 } else { bytes };
            return;
        }
        let row = &mut self.rows[owner];
        row.own.push((relative(&row.path, &name).to_string(), x.shape().to_vec(), again));
        if !again {
            let trained = if x.is_leaf() { x.len() } else { 0 };
            row.count = (row.count.0 + x.len(), row.count.1 + trained);
            self.parameters += x.len();
            self.trainable += trained;
            self.parameter_bytes += bytes;
        }
    }

    /// With the outputs of a call, which runs as after training and unrecorded: it changes nothing.
    pub(crate) fn of_call<M: Tree, T: Tree, R>(
        module: &M,
        inputs: &T,
        call: impl FnOnce(&M, &T) -> R,
    ) -> Summary {
        let mut summary = Summary::new(module);
        let (_, calls) = in_evaluation(module, || watched(|| no_grad(|| call(module, inputs))));
        summary.called = true;
        summary.input_bytes = inputs.leaves().iter().map(|x| x.len() * x.dtype().size()).sum();
        for call in calls {
            summary.macs += call.macs;
            if let Some(row) = summary.row_of(&call) {
                summary.rows[row].call = Some(call);
            }
        }
        let leaf = |i: usize| {
            let below = summary.rows.get(i + 1);
            below.is_none_or(|next| next.depth <= summary.rows[i].depth)
        };
        let bytes = |(i, row): (usize, &SummaryRow)| match &row.call {
            Some(call) if row.count.0 > 0 && leaf(i) => 2 * call.bytes,
            _ => 0,
        };
        summary.output_bytes = summary.rows.iter().enumerate().map(bytes).sum();
        // A type without tensors and outputs is an option of another part.
        summary.rows.retain(|row| row.depth == 0 || row.tensors > 0 || row.call.is_some());
        summary
    }

    /// The part that a call was of: the deepest, and among these the first, that fits and has none
    /// yet.
    fn row_of(&self, call: &LayerCall) -> Option<usize> {
        let same = |a: &Option<Tensor>, b: &Option<Tensor>| match (a, b) {
            (Some(a), Some(b)) => a.is_same(b),
            (None, None) => true,
            _ => false,
        };
        let fits = |row: &SummaryRow| {
            row.call.is_none()
                && row.kind == call.kind
                && row.tensors == call.tensors
                && same(&row.first, &call.first)
        };
        let fitting = self.rows.iter().enumerate().filter(|(_, row)| fits(row));
        match call.first {
            Some(_) => fitting.rev().max_by_key(|(_, row)| row.depth).map(|(i, _)| i),
            None => fitting.map(|(i, _)| i).next(),
        }
    }

    /// The first column: the tree, the type, the field, and which it is at its depth.
    fn labels(&self) -> Vec<String> {
        let mut counts = vec![0; self.rows.len() + 1];
        let mut bars: Vec<bool> = Vec::new();
        let mut out = Vec::new();
        for (i, row) in self.rows.iter().enumerate() {
            if row.depth == 0 {
                out.push(row.kind.to_string());
                continue;
            }
            counts[row.depth] += 1;
            let later = self.rows[i + 1..].iter().take_while(|next| next.depth >= row.depth);
            let last = !later.into_iter().any(|next| next.depth == row.depth);
            bars.truncate(row.depth - 1);
            let mut label: String =
                bars.iter().map(|&bar| if bar { "│    " } else { "     " }).collect();
            bars.push(!last);
            let above = self.rows[..i].iter().rev().find(|above| above.depth < row.depth);
            let field = relative(above.map_or("", |above| &above.path), &row.path);
            label += if last { "└─" } else { "├─" };
            label += &format!("{} ({field}): {}-{}", row.kind, row.depth, counts[row.depth]);
            out.push(label);
        }
        out
    }
}

impl SummaryRow {
    /// The second column: the shape of the output, or those of its own parameters.
    fn shapes(&self, called: bool) -> String {
        match (&self.call, called) {
            (Some(call), true) => format!("{:?}", call.shape),
            (None, true) => "--".into(),
            (_, false) if self.own.is_empty() => "--".into(),
            (_, false) => {
                let each = self.own.iter().map(|(name, shape, _)| format!("{name} {shape:?}"));
                each.collect::<Vec<_>>().join(", ")
            }
        }
    }

    /// The third column: how many numbers its own parameters hold; in brackets, where they are
    /// frozen.
    fn numbers(&self) -> String {
        match self.count {
            _ if self.own.is_empty() => "--".into(),
            _ if self.own.iter().all(|(_, _, again)| *again) => "(tied)".into(),
            (all, 0) => format!("({})", grouped(all)),
            (all, _) => grouped(all),
        }
    }
}

impl Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let middle = if self.called { "Output Shape" } else { "Parameter Shapes" };
        let mut table =
            vec![["Layer (type (field):depth-idx)".to_string(), middle.into(), "Param #".into()]];
        for (label, row) in self.labels().into_iter().zip(&self.rows) {
            table.push([label, row.shapes(self.called), row.numbers()]);
        }
        let width = |i: usize| table.iter().map(|line| line[i].chars().count()).max().unwrap_or(0);
        let widths = [width(0).max(36) + 2, width(1).max(18) + 2, width(2).max(12)];
        let rule = "=".repeat(widths.iter().sum());
        writeln!(f, "{rule}")?;
        for (i, [label, shapes, numbers]) in table.iter().enumerate() {
            let line = format!("{label:<0$}{shapes:<1$}{numbers}", widths[0], widths[1]);
            writeln!(f, "{}", line.trim_end())?;
            if i == 0 {
                writeln!(f, "{rule}")?;
            }
        }
        writeln!(f, "{rule}")?;
        writeln!(f, "Total params: {}", grouped(self.parameters))?;
        writeln!(f, "Trainable params: {}", grouped(self.trainable))?;
        writeln!(f, "Non-trainable params: {}", grouped(self.parameters - self.trainable))?;
        writeln!(f, "Buffers: {}", grouped(self.buffers))?;
        let megabytes = |bytes: usize| bytes as f64 / 1e6;
        if self.called {
            writeln!(f, "Total mult-adds (M): {:.2}", megabytes(self.macs))?;
            writeln!(f, "{rule}")?;
            writeln!(f, "Input size (MB): {:.2}", megabytes(self.input_bytes))?;
            writeln!(f, "Forward/backward pass size (MB): {:.2}", megabytes(self.output_bytes))?;
        } else {
            writeln!(f, "{rule}")?;
        }
        let held = self.parameter_bytes + self.buffer_bytes;
        writeln!(f, "Params size (MB): {:.2}", megabytes(self.parameter_bytes))?;
        writeln!(f, "Buffers size (MB): {:.2}", megabytes(self.buffer_bytes))?;
        let all = held + self.input_bytes + self.output_bytes;
        writeln!(f, "Estimated total size (MB): {:.2}", megabytes(all))?;
        write!(f, "{rule}")
    }
}

/// Whether what is at `path` is in what is at `above`, or is it.
pub(crate) fn holds(above: &str, path: &str) -> bool {
    above.is_empty()
        || path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// The path from `above` down.
fn relative<'a>(above: &str, path: &'a str) -> &'a str {
    path.strip_prefix(above).unwrap_or(path).trim_start_matches('.')
}

/// 1234567 as 1,234,567.
fn grouped(n: usize) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}
