//! What the compiler makes of an expression, a model or a recorded program, pass by pass.
//!
//! An equation of one stage is the same as one of the stage before if it applies the same op to the
//! same values, whatever its variables are called: values are compared by what they are computed
//! from, down to the inputs.

use super::subject::Subject;
use super::versioned;
use crate::explorer::Explorer;
use crate::problem::{Answer, Problem};
use pullback::record_file::family;
use pullback::{Op, Program, Specialised, Tensor, jit, value_and_grad};
use pullback_ir::pass::Target;
use pullback_ir::pass::plan::{Base, Planned};
use pullback_ir::{Inst, Var};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

/// Equations of a stage that are listed.
const LISTED: usize = 2000;

/// What was compiled.
pub struct Compiled {
    /// In words.
    pub what: String,
    /// The program after each pass, the first as traced.
    pub stages: Vec<(String, Program)>,
    /// What the compiler says about it, where it was compiled here.
    pub made: Option<Specialised>,
}

/// `POST /api/program`.
///
/// # Errors
/// If the request is invalid, or it cannot be compiled.
pub fn answer(explorer: &Explorer, body: &Value) -> Answer<Value> {
    match body.get("model") {
        None | Some(Value::Null) => shown(&expression(&Subject::of(body)?)?),
        Some(Value::String(name)) if explorer.models.0.contains(&&name[..]) => {
            shown(&(explorer.models.1)(name)?)
        }
        Some(_) => {
            let names = explorer.models.0.join(", ");
            Err(Problem::request(format!("`model` must be one of {names}")).about("model"))
        }
    }
}

/// An expression and its gradient.
fn expression(subject: &Subject) -> Answer<Compiled> {
    let graph = &subject.graph;
    let inputs = graph.arguments();
    let f = jit(|x: &Vec<Tensor>| value_and_grad(|x: &Vec<Tensor>| graph.value(x).sum())(x));
    let stages = f.stages(&inputs)?;
    f.call(&inputs)?;
    Ok(Compiled {
        what: format!("{} with its gradient", graph.source),
        stages: stages.into_iter().map(|(name, program)| (name.to_string(), program)).collect(),
        made: f.explain().specialisations.pop(),
    })
}

/// The stages, regions and memory of what was compiled.
///
/// # Errors
/// If a program is invalid.
pub fn shown(compiled: &Compiled) -> Answer<Value> {
    let mut stages = Vec::new();
    let mut before: Option<(usize, Vec<(u64, String)>)> = None;
    for (i, (name, program)) in compiled.stages.iter().enumerate() {
        program.verify_deeply()?;
        let now = keyed(program);
        let old = before.take().unwrap_or_default();
        let seconds = i.checked_sub(1).and_then(|i| compiled.made.as_ref()?.passes.get(i));
        stages.push(stage(name, program, &now, &old, seconds.map_or(0.0, |p| p.3.as_secs_f64())));
        before = Some((now.len(), now));
    }
    let Some((_, last)) = compiled.stages.last() else {
        return Err(Problem::file("there is no program in it"));
    };
    let kernels: Vec<Value> = compiled
        .made
        .iter()
        .flat_map(|made| &made.kernels)
        .map(|(name, count)| json!({ "name": name, "count": count }))
        .collect();
    let first = &compiled.stages[0].1;
    let inputs: Vec<Value> = first
        .inputs
        .iter()
        .map(|&v| json!({ "name": v.to_string(), "spec": first.spec(v).to_string() }))
        .collect();
    Ok(versioned(json!({
        "title": compiled.what, "inputs": inputs, "stages": stages, "regions": regions(last),
        "kernels": kernels, "arena": arena(last, compiled.made.as_ref())?,
    })))
}

/// The equations of a program, each with what it computes.
fn keyed(program: &Program) -> Vec<(u64, String)> {
    let mut values: HashMap<Var, u64> = HashMap::new();
    for (i, &v) in program.inputs.iter().enumerate() {
        values.insert(v, hash(&("input", i)));
    }
    let mut out = Vec::new();
    for e in &program.equations {
        let operands: Vec<u64> =
            e.inputs.iter().map(|v| values.get(v).copied().unwrap_or_default()).collect();
        let key = hash(&(e.op.to_string(), &operands));
        for (k, &v) in e.outputs.iter().enumerate() {
            values.insert(v, hash(&(key, k)));
        }
        out.push((key, text(program, e)));
    }
    out
}

fn hash(x: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    x.hash(&mut hasher);
    hasher.finish()
}

fn text(program: &Program, e: &pullback_ir::Equation) -> String {
    let typed = |v: &Var| format!("{v}: {}", program.spec(*v));
    let outputs: Vec<String> = e.outputs.iter().map(typed).collect();
    let inputs: Vec<String> = e.inputs.iter().map(ToString::to_string).collect();
    let op = match &e.op {
        Op::Region(_) | Op::DotRegion(_) => e.op.name().to_string(),
        op => op.to_string(),
    };
    let op: String =
        if op.chars().count() > 200 { op.chars().take(199).chain(['…']).collect() } else { op };
    format!("let {} = {op} {}", outputs.join(", "), inputs.join(" ")).trim_end().to_string()
}

fn stage(
    name: &str,
    program: &Program,
    now: &[(u64, String)],
    (before, old): &(usize, Vec<(u64, String)>),
    seconds: f64,
) -> Value {
    let mut left: HashMap<u64, usize> = HashMap::new();
    old.iter().for_each(|(key, _)| *left.entry(*key).or_default() += 1);
    let mut equations = Vec::new();
    let mut added = 0;
    let mut region = 0;
    for (i, (e, (key, text))) in program.equations.iter().zip(now).enumerate() {
        let kept = left.get_mut(key).filter(|n| **n > 0).map(|n| *n -= 1).is_some();
        added += usize::from(!kept);
        let mine = matches!(e.op, Op::Region(_) | Op::DotRegion(_)).then(|| {
            region += 1;
            region - 1
        });
        if i >= LISTED {
            continue;
        }
        let names = |vars: &[Var]| vars.iter().map(ToString::to_string).collect::<Vec<_>>();
        equations.push(json!({
            "index": i, "text": text, "op": e.op.name(), "family": family(&e.op),
            "outputs": names(&e.outputs), "inputs": names(&e.inputs),
            "spec": e.outputs.first().map(|&v| program.spec(v).to_string()),
            "line": e.at.map(|at| at.to_string()),
            "state": if kept { "kept" } else { "new" }, "region": mine,
        }));
    }
    let mut gone = Vec::new();
    for (key, text) in old {
        if let Some(n) = left.get_mut(key).filter(|n| **n > 0) {
            *n -= 1;
            gone.push(json!({ "text": text }));
        }
    }
    let removed = gone.len();
    gone.truncate(LISTED);
    let unchanged = added == 0 && removed == 0 && name != "trace";
    json!({
        "name": name, "before": before, "after": now.len(), "seconds": seconds,
        "added": added, "removed": removed, "unchanged": unchanged,
        "equations": if unchanged { Vec::new() } else { equations }, "gone": gone,
        "left_out": now.len().saturating_sub(LISTED),
    })
}

/// The fused regions of a program, with the code of each.
fn regions(program: &Program) -> Vec<Value> {
    let mut out = Vec::new();
    for (i, e) in program.equations.iter().enumerate() {
        let (Op::Region(region) | Op::DotRegion(region)) = &e.op else { continue };
        let name = |inst: &Inst| match inst {
            Inst::Point(op, _) => Some(op.name().to_string()),
            Inst::Reduce(kind, _) => Some(kind.name().to_string()),
            Inst::Random(kind, ..) => Some(kind.name().to_string()),
            Inst::Load(_) | Inst::Literal(..) | Inst::Index(..) => None,
        };
        let mut ops: Vec<String> = region.body.iter().filter_map(name).collect();
        if let Op::DotRegion(_) = e.op {
            ops.insert(0, "dot".into());
        }
        out.push(json!({
            "id": out.len(), "equation": i, "ops": ops, "code": format!("{region:#}"),
        }));
    }
    out
}

/// The planned memory, as intervals of equations.
fn arena(program: &Program, made: Option<&Specialised>) -> Answer<Value> {
    let planned = Planned::new(program, Target::default())?;
    let (program, plan) = (planned.program(), planned.plan());
    // A view is the value it views.
    let mut root: Vec<usize> = (0..program.specs.len()).collect();
    let mut lives: Vec<Option<(usize, usize, usize)>> = vec![None; program.specs.len()];
    for (i, e) in program.equations.iter().enumerate() {
        for v in &e.inputs {
            if let Some(life) = &mut lives[root[v.index()]] {
                life.1 = i;
            }
        }
        for v in &e.outputs {
            match (&e.op, e.inputs.first()) {
                (Op::View(_) | Op::After, Some(of)) => root[v.index()] = root[of.index()],
                _ => lives[v.index()] = Some((i, i, i)),
            }
        }
    }
    let last = program.equations.len().saturating_sub(1);
    for v in &program.outputs {
        if let Some(life) = &mut lives[root[v.index()]] {
            life.1 = last;
        }
    }
    let mut intervals = Vec::new();
    for (v, life) in lives.iter().enumerate() {
        let (Some((first, end, made)), location) = (life, &plan.locations[v]) else { continue };
        let bytes = program.specs[v].bytes();
        if location.base != Base::Arena || bytes == 0 || intervals.len() >= 4 * LISTED {
            continue;
        }
        let e = &program.equations[*made];
        intervals.push(json!({
            "name": Var(v as u32).to_string(), "spec": program.specs[v].to_string(),
            "op": e.op.name(), "family": family(&e.op), "line": e.at.map(|at| at.to_string()),
            "offset": location.start, "bytes": bytes, "first": first, "last": end,
        }));
    }
    Ok(json!({
        "bytes": plan.arena, "peak": made.map_or(plan.peak(), |made| made.peak),
        "moments": program.equations.len(), "intervals": intervals,
    }))
}
