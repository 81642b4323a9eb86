//! The views of a recording.

use super::op::EvaluationPoint;
use super::program::{self, Compiled};
use super::value::{described, number, stats, text};
use super::versioned;
use crate::error::{Answer, ExplorerError, ExplorerErrorKind};
use pullback::record_file::{NodeKind, RecordedNode, RecordedOp, Recording, Sampled, Stats};
use pullback::{Op, Program, Spec, Tensor, catch, trace, try_apply};
use serde_json::{Value, json};
use std::path::Path;

/// Nodes or visits of one page.
pub const PAGE: usize = 200;
/// Operands in a formula; the others are an ellipsis.
const IN_FORMULA: usize = 16;
/// Contributions of a visit that are shown.
const CONTRIBUTIONS: usize = 64;
/// Gradients of leaves that are listed with a sweep.
const GRADIENTS: usize = 4096;
/// Entries of a timeline.
const ENTRIES: usize = 4000;

/// A recording that was opened.
pub struct OpenedRecording {
    /// The name of the file.
    pub title: String,
    /// Its length.
    pub bytes: usize,
    recording: Recording,
    /// The paths of all parts, those that only contain others included, and the parent of each.
    parts: Vec<(String, Option<usize>)>,
    /// Where each recorded part is among them.
    places: Vec<usize>,
    /// How often each node is an operand.
    uses: Vec<usize>,
    /// The visit of each node: of several passes that of the last, as `result` is of the last.
    visits: Vec<Option<usize>>,
}

impl OpenedRecording {
    /// Opens a file.
    ///
    /// # Errors
    /// If it cannot be read, or is no recording.
    pub fn file(path: &Path) -> Answer<OpenedRecording> {
        let broken = |error: std::io::Error| {
            ExplorerError::file(format!("{} cannot be read: {error}", path.display()))
        };
        let length = std::fs::metadata(path).map_err(broken)?.len();
        if length > pullback::record_file::MAX_BYTES as u64 {
            let most = pullback::record_file::MAX_BYTES;
            return Err(ExplorerError::file(format!(
                "{} is larger than {most} bytes",
                path.display()
            )));
        }
        let bytes = std::fs::read(path).map_err(broken)?;
        let title =
            path.file_name().map_or("recording".into(), |n| n.to_string_lossy().to_string());
        OpenedRecording::bytes(title, &bytes).map_err(|problem| {
            ExplorerError::file(format!("{}: {}", path.display(), problem.message))
        })
    }

    /// Opens the bytes of a file.
    ///
    /// # Errors
    /// If they are no recording.
    pub fn bytes(title: String, bytes: &[u8]) -> Answer<OpenedRecording> {
        let recording = Recording::from_bytes(bytes).map_err(ExplorerError::file)?;
        let mut uses = vec![0; recording.nodes.len()];
        recording.nodes.iter().flat_map(|n| &n.operands).for_each(|&o| uses[o as usize] += 1);
        let mut visits = vec![None; recording.nodes.len()];
        for (i, visit) in recording.visits.iter().enumerate() {
            visits[visit.node as usize] = Some(i);
        }
        let (parts, places) = tree(&recording.parts);
        Ok(OpenedRecording { title, bytes: bytes.len(), recording, parts, places, uses, visits })
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> usize {
        self.recording.nodes.len()
    }

    /// How many visits there are.
    pub fn sweep_length(&self) -> usize {
        self.recording.visits.len()
    }

    /// Whether there is a program in it.
    pub fn has_program(&self) -> bool {
        !self.recording.stages.is_empty()
    }

    /// Answers a request below `/api/recording`.
    ///
    /// # Errors
    /// If there is no such path, or its query is invalid.
    pub fn answer(&self, path: &str, query: &str) -> Answer<Value> {
        match path {
            "/api/recording" => Ok(self.graph()),
            "/api/recording/tape" => {
                let (from, to) = page(query, self.nodes())?;
                Ok(self.tape(from, to))
            }
            "/api/recording/sweep" => {
                let (from, to) = page(query, self.recording.visits.len())?;
                Ok(versioned(self.sweep(from, to)))
            }
            "/api/recording/node" => {
                let id = self.id(query)?;
                // Leaves, and further results of an op, have a gradient and no visit.
                let visited = self.visits[id].map(|i| &self.recording.visits[i].adjoint);
                let adjoint = visited.or(self.recording.nodes[id].gradient.as_ref());
                Ok(versioned(json!({
                    "node": self.node(id), "visit": self.visits[id],
                    "adjoint": adjoint.map(|g| self.sampled(g, id)),
                })))
            }
            "/api/recording/op" => self.op(self.id(query)?),
            "/api/recording/memory" => Ok(self.memory()),
            "/api/recording/program" => self.program(),
            _ => {
                Err(ExplorerError::new(ExplorerErrorKind::NotFound, format!("there is no {path}")))
            }
        }
    }

    fn id(&self, query: &str) -> Answer<usize> {
        let wrong = || ExplorerError::request("`id` must be the number of a node").about("id");
        parameter(query, "id")?.filter(|&id| id < self.nodes()).ok_or_else(wrong)
    }

    fn spec(&self, node: &RecordedNode) -> (&str, &[u64]) {
        let (text, shape) = &self.recording.specs[node.spec as usize];
        (text, shape)
    }

    /// Elements of a value that has the spec of a node.
    fn sampled(&self, sampled: &Sampled, of: usize) -> Value {
        let (spec, shape) = self.spec(&self.recording.nodes[of]);
        let (whole, known, shown) = match sampled {
            Sampled::Whole(values) => {
                let known = (!shape.is_empty()).then(|| stats(&Stats::of(values)));
                match nested(values, shape) {
                    Some((data, shown)) => (Some(data), known, shown),
                    None => (None, known, "…".to_string()),
                }
            }
            Sampled::Stats(s) => {
                let shown = format!("{} … {}", text(s.low), text(s.high));
                (None, Some(stats(s)), shown)
            }
            Sampled::Unknown => (None, None, "not kept".to_string()),
        };
        json!({ "spec": spec, "shape": shape, "text": shown, "data": whole, "stats": known })
    }

    fn name(&self, id: usize) -> String {
        match self.recording.nodes[id].label {
            Some(label) => self.recording.labels[label as usize].clone(),
            None => format!("v{id}"),
        }
    }

    fn op_name(&self, node: &RecordedNode) -> Option<&(String, String)> {
        node.op.map(|op| &self.recording.names[op as usize])
    }

    fn kind(&self, node: &RecordedNode) -> &'static str {
        match node.kind {
            NodeKind::Op => "op",
            NodeKind::Input => "constant",
            NodeKind::Parameter => "parameter",
        }
    }

    fn part(&self, node: &RecordedNode) -> Option<usize> {
        Some(self.places[node.part? as usize])
    }

    fn family(&self, node: &RecordedNode) -> String {
        match (self.op_name(node), node.kind) {
            (Some((_, family)), _) => family.clone(),
            (None, NodeKind::Parameter) => "input".into(),
            (None, _) => "constant".into(),
        }
    }

    fn node(&self, id: usize) -> Value {
        let node = &self.recording.nodes[id];
        let op = self.op_name(node).map(|(name, _)| name.clone());
        let first = node.operands.iter().take(IN_FORMULA);
        let mut operands: Vec<String> = first.map(|&o| self.name(o as usize)).collect();
        if node.operands.len() > IN_FORMULA {
            operands.push("…".into());
        }
        let formula = match (&op, node.op) {
            (Some(_), Some(number)) => {
                let text = &self.recording.ops[number as usize];
                let text: String = text.chars().take(160).collect();
                format!("{text}({})", operands.join(", "))
            }
            _ => self.name(id),
        };
        let saved: Vec<Value> = node
            .saved
            .iter()
            .map(|note| {
                let what = match note.result {
                    true => "result".to_string(),
                    false => format!("operand {}", note.index),
                };
                let of = match note.result {
                    true => Some(id as u32),
                    false => node.operands.get(note.index as usize).copied(),
                };
                json!({ "what": what, "node": of, "bytes": note.bytes, "op": op })
            })
            .collect();
        json!({
            "id": id, "kind": self.kind(node), "name": self.name(id), "op": op,
            "family": self.family(node), "formula": formula, "operands": node.operands,
            "value": self.sampled(&node.value, id), "saved": saved,
            "line": node.line.map(|line| &self.recording.lines[line as usize]), "span": null,
            "part": self.part(node), "uses": self.uses[id], "tracked": node.tracked,
            "primitives": [], "seconds": node.op.map(|_| node.nanos as f64 * 1e-9),
        })
    }

    fn parts(&self) -> Vec<Value> {
        let part =
            |(path, parent): &(String, Option<usize>)| json!({ "path": path, "parent": parent });
        self.parts.iter().map(part).collect()
    }

    fn result(&self) -> Option<usize> {
        let last = self.nodes().checked_sub(1);
        self.recording.result.map(|r| r as usize).or(last)
    }

    fn tape(&self, from: usize, to: usize) -> Value {
        versioned(json!({
            "expression": null, "title": self.title, "source": "recording", "variables": [],
            "defaulted": [], "parts": self.parts(), "from": from, "total": self.nodes(),
            "nodes": (from..to).map(|id| self.node(id)).collect::<Vec<_>>(),
            "result": self.result(), "sweep": null, "forward": null,
        }))
    }

    fn sweep(&self, from: usize, to: usize) -> Value {
        let visit = |i: usize| {
            let visit = &self.recording.visits[i];
            let id = visit.node as usize;
            let adjoint = self.sampled(&visit.adjoint, id);
            let contributions: Vec<Value> = visit
                .contributions
                .iter()
                .take(CONTRIBUTIONS)
                .map(|(operand, to, how_much)| {
                    json!({
                        "to": to, "operand": operand, "upstream": adjoint,
                        "local": { "kind": "unknown", "formula": null },
                        "product": self.sampled(how_much, *to as usize),
                        "before": null, "after": null,
                    })
                })
                .collect();
            let left_out = visit.contributions.len() - contributions.len();
            json!({
                "node": id, "adjoint": adjoint, "contributions": contributions,
                "left_out": left_out,
            })
        };
        let leaves = self.recording.nodes.iter().enumerate();
        let gradient: Vec<Value> = leaves
            .filter(|(_, node)| node.kind == NodeKind::Parameter)
            .filter_map(|(id, node)| {
                let value = self.sampled(node.gradient.as_ref()?, id);
                Some(json!({ "node": id, "value": value }))
            })
            .take(GRADIENTS)
            .collect();
        let seed = self.recording.result.and_then(|id| {
            let grad = self.recording.nodes[id as usize].gradient.as_ref()?;
            Some(json!({ "node": id, "cotangent": self.sampled(grad, id as usize) }))
        });
        json!({
            "seed": seed, "from": from, "total": self.recording.visits.len(),
            "visits": (from..to).map(visit).collect::<Vec<_>>(), "gradient": gradient,
        })
    }

    fn graph(&self) -> Value {
        let r = &self.recording;
        let each = |f: &dyn Fn(&RecordedNode) -> Value| r.nodes.iter().map(f).collect::<Vec<_>>();
        let of = |s: &Sampled, f: &dyn Fn(&Stats) -> Value| match s {
            Sampled::Whole(values) => f(&Stats::of(values)),
            Sampled::Stats(stats) => f(stats),
            Sampled::Unknown => Value::Null,
        };
        let share =
            |n: u64, s: &Stats| json!(if s.count == 0 { 0.0 } else { n as f64 / s.count as f64 });
        let graded = |n: &RecordedNode, f: &dyn Fn(&Stats) -> Value| {
            n.gradient.as_ref().map_or(Value::Null, |g| of(g, f))
        };
        let mut notes = Vec::new();
        let constants = r.nodes.iter().filter(|n| n.kind == NodeKind::Input).count();
        if constants > 0 {
            notes.push(format!(
                "{constants} values were there before the recording, were detached, or were made by what it does not see (other threads)"
            ));
        }
        let inside = r.nodes.iter().filter(|n| n.value == Sampled::Unknown).count();
        if inside > 0 {
            notes.push(format!(
                "{inside} values are inside compiled functions, which keep their results alone: their ops, specs and lines are here, and no numbers"
            ));
        }
        if r.left_out > 0 {
            notes.push(format!("{} values more are not in it: there were too many", r.left_out));
        }
        let moments = &r.moments;
        versioned(json!({
            "title": self.title, "bytes": self.bytes, "program": self.has_program(),
            "total": self.nodes(), "result": self.result(),
            "seconds": seconds(moments),
            "peak": moments.iter().map(|m| m.bytes).max(),
            "ops": r.names.iter().map(|(name, _)| name).collect::<Vec<_>>(),
            "families": r.names.iter().map(|(_, family)| family).collect::<Vec<_>>(),
            "specs": r.specs.iter().map(|(text, _)| text).collect::<Vec<_>>(),
            "lines": r.lines, "parts": self.parts(),
            "nodes": {
                "op": each(&|n| json!(n.op)), "kind": each(&|n| json!(self.kind(n))),
                "name": each(&|n| json!(n.label.map(|l| &r.labels[l as usize]))),
                "spec": each(&|n| json!(n.spec)), "line": each(&|n| json!(n.line)),
                "part": each(&|n| json!(self.part(n))), "operands": each(&|n| json!(n.operands)),
                "zero": each(&|n| of(&n.value, &|s| share(s.zero, s))),
                "nan": each(&|n| of(&n.value, &|s| share(s.nan + s.inf, s))),
                "norm": each(&|n| of(&n.value, &|s| number(s.rms))),
                "gradient": each(&|n| graded(n, &|s| number(s.rms))),
                "gradient_nan": each(&|n| graded(n, &|s| share(s.nan + s.inf, s))),
                "seconds": each(&|n| json!(n.op.map(|_| n.nanos as f64 * 1e-9))),
                "visit": self.visits,
            },
            "notes": notes,
        }))
    }

    /// The op of a node, run again on the recorded operands where all of them are small.
    fn op(&self, id: usize) -> Answer<Value> {
        let node = &self.recording.nodes[id];
        let large = || {
            ExplorerError::engine(
                "the recording has statistics of its operands alone: they are too large",
            )
        };
        let Some(number) = node.op else {
            return Err(ExplorerError::request("`id` must be the number of an op").about("id"));
        };
        let op: Op = self.recording.ops[number as usize]
            .parse()
            .map_err(|_| ExplorerError::engine("this op cannot be run alone"))?;
        let whole = |id: u32| -> Answer<Tensor> {
            let node = &self.recording.nodes[id as usize];
            let values = match &node.value {
                Sampled::Whole(values) => values,
                Sampled::Stats(_) => return Err(large()),
                Sampled::Unknown => {
                    return Err(ExplorerError::engine("the recording does not have its operands"));
                }
            };
            let (spec, shape) = self.spec(node);
            let shape: Vec<usize> = shape.iter().map(|&n| n as usize).collect();
            if shape.iter().try_fold(1usize, |n, &m| n.checked_mul(m)) != Some(values.len()) {
                return Err(ExplorerError::file(
                    "a recorded value does not have the shape of its spec",
                ));
            }
            let x = Tensor::from_vec(values.clone(), shape);
            let dtype = spec.split('[').next().unwrap_or_default();
            let dtype = pullback::DType::ALL.into_iter().find(|d| d.name() == dtype);
            // Floats are widened, so that a Jacobian has all digits.
            Ok(match dtype {
                Some(dtype) if !dtype.is_float() => x.cast(dtype),
                _ => x,
            })
        };
        let operands: Vec<Tensor> =
            node.operands.iter().map(|&o| whole(o)).collect::<Answer<_>>()?;
        let real: Vec<usize> =
            (0..operands.len()).filter(|&i| operands[i].dtype().is_float()).collect();
        let output = node.output as usize;
        self.check_size(&op, &operands)?;
        let call = |x: &[Tensor]| {
            let mut all = operands.clone();
            real.iter().zip(x).for_each(|(&i, x)| all[i] = x.clone());
            match try_apply(op.clone(), &all.iter().collect::<Vec<_>>()) {
                Ok(mut results) if output < results.len() => results.swap_remove(output),
                Ok(_) => pullback::raise(pullback::Error::argument("record", "no such result")),
                Err(error) => pullback::raise(error),
            }
        };
        let at: Vec<Tensor> = real.iter().map(|&i| operands[i].clone()).collect();
        let result = catch(|| call(&at))?;
        if !result.dtype().is_float() || at.is_empty() || result.len() > 4096 {
            return Err(ExplorerError::engine("no gradient flows through this op"));
        }
        let cotangent = match &node.gradient {
            Some(Sampled::Whole(g)) if g.len() == result.len() && g.iter().any(|&v| v != 0.0) => {
                Tensor::from_vec(g.clone(), result.shape())
            }
            _ => result.ones_like(),
        };
        let tangents: Vec<Tensor> = at.iter().map(Tensor::ones_like).collect();
        let point =
            EvaluationPoint { call: &call, at: &at, tangents: &tangents, cotangent: &cotangent };
        let (rest, mut shown) = point.products()?;
        for (operand, &i) in shown.iter_mut().zip(&real) {
            let of = node.operands[i] as usize;
            operand["node"] = json!(of);
            operand["name"] = json!(self.name(of));
        }
        let name = op.name();
        Ok(versioned(json!({
            "node": id, "name": self.name(id), "op": name, "formula": self.node(id)["formula"],
            "derivative": super::tape::derivative(name), "result": super::value::value(&result),
            "operands": shown, "jvp": rest["jvp"], "cotangent": rest["cotangent"],
            "inner": rest["inner"],
        })))
    }

    /// Whether an op that a file names may be run here: its results are known to be small before it
    /// runs, and it is no loop, whose length nothing bounds.
    fn check_size(&self, op: &Op, operands: &[Tensor]) -> Answer {
        if let "flow" | "custom" | "region" | "collective" = pullback::record_file::family(op) {
            return Err(ExplorerError::engine(
                "this op contains others or needs other workers, and is not run alone",
            ));
        }
        let specs: Vec<Spec> = operands.iter().map(|x| x.spec().clone()).collect();
        let program = trace(
            |x: &[Tensor]| match try_apply(op.clone(), &x.iter().collect::<Vec<_>>()) {
                Ok(results) => results,
                Err(error) => pullback::raise(error),
            },
            &specs,
        )?;
        let large = |spec: &Spec| {
            let count = spec.shape.iter().try_fold(1usize, |n, &m| n.checked_mul(m));
            count.is_none_or(|count| count > 4096)
        };
        match program.specs.iter().any(large) {
            true => Err(ExplorerError::limit("the results of this op are too large to be shown")),
            false => Ok(()),
        }
    }

    fn memory(&self) -> Value {
        let moments = &self.recording.moments;
        let stride = moments.len().div_ceil(ENTRIES).max(1);
        let entries: Vec<Value> = moments
            .chunks(stride)
            .filter_map(|some| {
                let top = some.iter().max_by_key(|m| m.bytes)?;
                Some(json!({
                    "op": self.recording.names[top.op as usize].0,
                    "phase": if top.backward { "backward" } else { "forward" },
                    "bytes": top.bytes, "kept": null, "layer": null,
                    "recomputed": some.iter().any(|m| m.again), "node": top.node,
                    "seconds": top.start as f64 * 1e-9,
                    "line": top.line.map(|line| &self.recording.lines[line as usize]),
                }))
            })
            .collect();
        let again = moments.iter().filter(|m| m.again).count();
        versioned(json!({ "runs": [{
            "name": "recording", "peak": moments.iter().map(|m| m.bytes).max().unwrap_or(0),
            "kept": null, "recomputed": again, "stride": stride, "timeline": entries,
            "seconds": seconds(moments),
        }], "segments": [] }))
    }

    fn program(&self) -> Answer<Value> {
        if !self.has_program() {
            return Err(ExplorerError::new(
                ExplorerErrorKind::NotFound,
                "the recording has no program in it",
            ));
        }
        let mut stages = Vec::new();
        for (name, text) in &self.recording.stages {
            let program: Program = text.parse().map_err(|error| {
                ExplorerError::file(format!("the stage `{name}` is invalid: {error}"))
            })?;
            stages.push((name.clone(), program));
        }
        program::as_json(&Compiled { what: self.title.clone(), stages, specialisation: None })
    }
}

/// How long the ops took: the time between them is mostly that of recording.
fn seconds(moments: &[RecordedOp]) -> f64 {
    moments.iter().map(|m| m.nanos as f64 * 1e-9).sum()
}

/// Elements as nested lists and as text, if they are as many as the shape says.
fn nested(values: &[f64], shape: &[u64]) -> Option<(Value, String)> {
    let shape: Vec<usize> = shape.iter().map(|&n| n as usize).collect();
    let count = shape.iter().try_fold(1usize, |n, &m| n.checked_mul(m))?;
    if count != values.len() {
        return None;
    }
    let x = Tensor::from_vec(values, shape);
    let spec = x.spec().clone();
    let whole =
        described(&spec, crate::number::tensor(&x, 5), Some(crate::number::to_json(&x)), None);
    Some((whole["data"].clone(), whole["text"].as_str().unwrap_or_default().to_string()))
}

/// The paths of parts as a tree: `blocks.0.attention` is in `blocks.0`, which is in `blocks`.
/// Also where each of the paths is in it.
fn tree(paths: &[String]) -> (Vec<(String, Option<usize>)>, Vec<usize>) {
    let (mut out, mut ends_at): (Vec<(String, Option<usize>)>, _) = (Vec::new(), Vec::new());
    let mut places: std::collections::HashMap<String, usize> = std::collections::HashMap::new();
    for path in paths {
        let mut parent = None;
        // Deeper ones are one part.
        let ends = path.match_indices('.').map(|(at, _)| at).take(32);
        for end in ends.chain([path.len()]) {
            let prefix = &path[..end];
            parent = Some(*places.entry(prefix.to_string()).or_insert_with(|| {
                out.push((prefix.to_string(), parent));
                out.len() - 1
            }));
        }
        ends_at.push(parent.unwrap_or(0));
    }
    (out, ends_at)
}

/// A number of a query.
fn parameter(query: &str, name: &str) -> Answer<Option<usize>> {
    let given = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    match given.map(str::parse) {
        None => Ok(None),
        Some(Ok(n)) => Ok(Some(n)),
        Some(Err(_)) => {
            Err(ExplorerError::request(format!("`{name}` must be a whole number")).about(name))
        }
    }
}

/// The range that a query names, at most [`PAGE`] long.
fn page(query: &str, total: usize) -> Answer<(usize, usize)> {
    let from = parameter(query, "from")?.unwrap_or(0).min(total);
    let count = parameter(query, "count")?.unwrap_or(PAGE).min(PAGE);
    Ok((from, from.saturating_add(count).min(total)))
}
