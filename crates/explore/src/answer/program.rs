//! What the compiler makes of an expression, a model or a recorded program, pass by pass.
//!
//! What each pass changed is in `changes.rs`. The code of a region is what the compiler generated
//! for this machine: the last stage is prepared here, as a call would, and listed.

use super::changes::{self, Changes, EquationChange, RemovedAs};
use super::subject::EvaluatedExpression;
use super::versioned;
use crate::error::{Answer, ExplorerError};
use crate::explorer::Explorer;
use pullback::record_file::family;
use pullback::{Op, Program, Specialised, Tensor, jit, native_code, value_and_grad};
use pullback_ir::pass::Target;
use pullback_ir::pass::plan::{Base, Planned};
use pullback_ir::{Equation, Var};
use serde_json::{Value, json};

/// Equations of a stage that are listed.
const LISTED: usize = 2000;
/// Regions whose machine code is listed, and bytes of constants of a program that is prepared for
/// it: a file may hold any program.
const CODED: usize = 400;
const CONSTANTS: usize = 64 << 20;
/// Bytes of one listing.
const CODE: usize = 64 << 10;

/// What was compiled.
pub struct Compiled {
    /// In words.
    pub what: String,
    /// The program after each pass, the first as traced.
    pub stages: Vec<(String, Program)>,
    /// What the compiler says about it, where it was compiled here.
    pub specialisation: Option<Specialised>,
}

/// `POST /api/program`.
///
/// # Errors
/// If the request is invalid, or it cannot be compiled.
pub fn answer(explorer: &Explorer, body: &Value) -> Answer<Value> {
    match body.get("model") {
        None | Some(Value::Null) => as_json(&expression(&EvaluatedExpression::of(body)?)?),
        Some(Value::String(name)) if explorer.models.0.contains(&&name[..]) => {
            as_json(&(explorer.models.1)(name)?)
        }
        Some(_) => {
            let names = explorer.models.0.join(", ");
            Err(ExplorerError::request(format!("`model` must be one of {names}")).about("model"))
        }
    }
}

/// An expression and its gradient.
fn expression(subject: &EvaluatedExpression) -> Answer<Compiled> {
    let graph = &subject.graph;
    let inputs = graph.arguments();
    let f = jit(|x: &Vec<Tensor>| value_and_grad(|x: &Vec<Tensor>| graph.value(x).sum())(x));
    let stages = f.stages(&inputs)?;
    f.call(&inputs)?;
    Ok(Compiled {
        what: format!("{} with its gradient", graph.source),
        stages: stages.into_iter().map(|(name, program)| (name.to_string(), program)).collect(),
        specialisation: f.explain().specialisations.pop(),
    })
}

/// The stages, regions and memory of what was compiled.
///
/// # Errors
/// If a program is invalid.
pub fn as_json(compiled: &Compiled) -> Answer<Value> {
    let programs: Vec<&Program> = compiled.stages.iter().map(|(_, program)| program).collect();
    let Some(last) = programs.last().copied() else {
        return Err(ExplorerError::file("there is no program in it"));
    };
    for program in &programs {
        program.verify_deeply()?;
    }
    let changes: Vec<Changes> =
        programs.windows(2).map(|two| changes::between(two[0], two[1])).collect();
    let numbers = changes::regions(&programs, &changes);
    let mut stages = Vec::new();
    for (i, (name, _)) in compiled.stages.iter().enumerate() {
        let pass = i.checked_sub(1).map(|before| (programs[before], &changes[before]));
        let seconds =
            i.checked_sub(1).and_then(|i| compiled.specialisation.as_ref()?.passes.get(i));
        let seconds = seconds.map_or(0.0, |p| p.3.as_secs_f64());
        stages.push(stage(name, programs[i], pass, &numbers[i], seconds));
    }
    let kernels: Vec<Value> = compiled
        .specialisation
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
        "kernels": kernels, "arena": arena(last, compiled.specialisation.as_ref())?,
    })))
}

fn text(program: &Program, e: &Equation) -> String {
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

/// A stage: its equations, and what the pass before it changed. `numbers` are those of its regions.
fn stage(
    name: &str,
    program: &Program,
    pass: Option<(&Program, &Changes)>,
    numbers: &[Option<usize>],
    seconds: f64,
) -> Value {
    let states = match pass {
        Some((_, changes)) => changes.states.clone(),
        None => vec![EquationChange::New; program.equations.len()],
    };
    let (before, gone) = (pass.map(|(before, _)| before), pass.map_or(&[][..], |(_, c)| &c.gone));
    let moved = pass.map_or(0, |(_, changes)| changes.moved);
    let mut equations = Vec::new();
    let mut regions = numbers.iter().copied();
    for (i, (e, state)) in program.equations.iter().zip(&states).enumerate().take(LISTED) {
        let mine = if changes::is_region(e) { regions.next().flatten() } else { None };
        let names = |vars: &[Var]| vars.iter().map(ToString::to_string).collect::<Vec<_>>();
        equations.push(json!({
            "index": i, "text": text(program, e), "op": e.op.name(), "family": family(&e.op),
            "outputs": names(&e.outputs), "inputs": names(&e.inputs),
            "spec": e.outputs.first().map(|&v| program.spec(v).to_string()),
            "line": e.at.map(|at| at.to_string()),
            "state": match state {
                EquationChange::Kept => "kept",
                EquationChange::Rewired => "rewired",
                EquationChange::New => "new",
            },
            "region": mine,
        }));
    }
    let count = |wanted: EquationChange| states.iter().filter(|state| **state == wanted).count();
    let fate = |wanted: &dyn Fn(RemovedAs) -> bool| gone.iter().filter(|(_, f)| wanted(*f)).count();
    let (added, rewired) = (count(EquationChange::New), count(EquationChange::Rewired));
    let unchanged = before.is_some() && added + rewired + moved + gone.len() == 0;
    let mut into: Vec<usize> = gone
        .iter()
        .filter_map(
            |(_, fate)| if let RemovedAs::Fused(region) = fate { Some(*region) } else { None },
        )
        .collect();
    into.sort_unstable();
    into.dedup();
    let shown = gone.iter().take(LISTED).filter_map(|&(i, fate)| {
        let before = before?;
        let (how, region) = match fate {
            RemovedAs::Fused(region) => ("fused", numbers[region]),
            RemovedAs::Duplicate => ("duplicate", None),
            RemovedAs::Unused => ("unused", None),
            RemovedAs::Replaced => ("replaced", None),
        };
        let text = text(before, &before.equations[i]);
        Some(json!({ "text": text, "how": how, "region": region }))
    });
    json!({
        "name": name, "before": before.map_or(0, |before| before.equations.len()),
        "after": program.equations.len(), "seconds": seconds,
        "added": added, "rewired": rewired, "moved": moved, "removed": gone.len(),
        "fused": fate(&|f| matches!(f, RemovedAs::Fused(_))), "into": into.len(),
        "duplicate": fate(&|f| f == RemovedAs::Duplicate), "unused": fate(&|f| f == RemovedAs::Unused),
        "replaced": fate(&|f| f == RemovedAs::Replaced), "unchanged": unchanged,
        "equations": if unchanged { Vec::new() } else { equations },
        "gone": shown.collect::<Vec<_>>(),
        "left_out": program.equations.len().saturating_sub(LISTED),
    })
}

/// The fused regions of a program, with the instructions of each, and the machine code.
fn regions(program: &Program) -> Vec<Value> {
    let native = machine_code(program);
    let mut out = Vec::new();
    for (i, e) in program.equations.iter().enumerate() {
        let (Op::Region(region) | Op::DotRegion(region)) = &e.op else { continue };
        let id = out.len();
        let code = native.iter().find(|(regions, _)| regions.contains(&id));
        out.push(json!({
            "id": id, "equation": i, "ops": changes::ops_of(&e.op), "code": format!("{region:#}"),
            "native": code.map(|(_, text)| text),
            "native_of": code.map_or(0, |(regions, _)| regions.len()),
        }));
    }
    out
}

/// Machine code of regions: the numbers of the regions it is for, and its text.
fn machine_code(program: &Program) -> Vec<(Vec<usize>, String)> {
    let count = program.equations.iter().filter(|e| changes::is_region(e)).count();
    let Ok(planned) = Planned::new(program, Target::default()) else { return Vec::new() };
    if count == 0 || count > CODED || planned.plan().all_constants() > CONSTANTS {
        return Vec::new();
    }
    // Planning may add equations; regions stay in order.
    let planned = planned.program().equations.iter().enumerate();
    let planned = planned.filter(|(_, e)| changes::is_region(e));
    let numbers: Vec<usize> = planned.map(|(i, _)| i).collect();
    let of = |code: pullback::NativeCode| {
        let number = |equation| numbers.iter().position(|&i| i == equation);
        let regions: Vec<usize> = code.equations.into_iter().filter_map(number).collect();
        let mut text = code.text;
        if let Some((cut, _)) = text.char_indices().nth(CODE) {
            text.truncate(cut);
            text.push_str("\n    …");
        }
        (regions, text)
    };
    native_code(program).unwrap_or_default().into_iter().map(of).collect()
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
