//! A program as text, much as one would write it in Rust.

use crate::ast::{Block, Nest, Program, Stmt, Var};
use crate::compare::outcome;
use crate::interpret::{StatementRecord, function, noting};
use std::collections::HashMap;
use std::fmt::Write as _;

/// The text of a program, with the plain numbers and shapes that it has on its first example.
pub fn text(program: &Program) -> String {
    let mut notes = HashMap::new();
    let f = function(program);
    outcome(|| {
        let (_, seen) = noting(|| outcome(|| f(&program.first())));
        notes = seen;
        Vec::new()
    });
    let mut out = String::new();
    let given = program.body.params.iter().zip(&program.inputs);
    let params: Vec<String> =
        given.map(|(v, x)| format!("v{v}: {}{:?}", program.dtype, x.shape)).collect();
    let _ = writeln!(out, "fn program({}) {{", params.join(", "));
    lines(&program.body, &notes, 1, &mut out);
    let _ = writeln!(out, "}}");
    for (v, x) in &program.state {
        let _ = writeln!(out, "// v{v} is captured: {}{:?} {:?}", program.dtype, x.shape, x.values);
    }
    for (v, x) in program.body.params.iter().zip(&program.inputs) {
        let _ = writeln!(out, "// v{v}, {} examples: {:?}", crate::ast::EXAMPLES, x.values);
    }
    out
}

fn names(vars: &[Var]) -> String {
    vars.iter().map(|v| format!("v{v}")).collect::<Vec<_>>().join(", ")
}

fn lines(block: &Block, notes: &HashMap<usize, StatementRecord>, depth: usize, out: &mut String) {
    let pad = "    ".repeat(depth);
    for stmt in &block.stmts {
        let noted = notes.get(&key(stmt));
        let said = noted.map_or(String::new(), |n| {
            if n.said.is_empty() { String::new() } else { format!("; {}", n.said.join(", ")) }
        });
        let specs = noted.map_or(String::new(), |n| format!("  // {}", n.specs.join(" ")));
        let outs: Vec<Var> = stmt.outs().iter().map(|o| o.0).collect();
        let left = match outs[..] {
            [] => String::new(),
            [one] => format!("let v{one} = "),
            _ => format!("let ({}) = ", names(&outs)),
        };
        match stmt {
            Stmt::Call { row, args, .. } => {
                let _ = writeln!(out, "{pad}{left}{}({}{said});{specs}", row.name, names(args));
            }
            Stmt::Write { row, target, args, detached, .. } => {
                let args = [&[*target], &args[..]].concat();
                let detached = if *detached { "no_grad, detached: " } else { "" };
                let _ =
                    writeln!(out, "{pad}{detached}{}({}{said});{specs}", row.name, names(&args));
            }
            Stmt::Nest { how, args, bodies, .. } => {
                let _ = write!(out, "{pad}{left}{}({}{said}", name(*how), names(args));
                for body in bodies {
                    let _ = writeln!(out, ", |{}| {{", names(&body.params));
                    lines(body, notes, depth + 1, out);
                    let _ = write!(out, "{pad}}}");
                }
                let _ = writeln!(out, ");{specs}");
            }
        }
    }
    let _ = writeln!(out, "{pad}({})", names(&block.results));
}

/// The statement, as a key: its address, which stays while the program does.
pub fn key(stmt: &Stmt) -> usize {
    std::ptr::from_ref(stmt) as usize
}

fn name(how: Nest) -> &'static str {
    match how {
        Nest::Cond => "cond",
        Nest::Scan => "scan",
        Nest::ScanReverse => "scan_reverse",
        Nest::WhileLoop => "while_loop",
        Nest::WhileLoopBounded => "while_loop_bounded",
        Nest::ForiLoop => "fori_loop",
        Nest::ScanTimes => "scan_times",
        Nest::AssociativeScan => "associative_scan",
        Nest::AssociativeScanReverse => "associative_scan_reverse",
        Nest::Checkpoint => "checkpoint",
        Nest::NoGrad => "no_grad",
        Nest::Autocast => "autocast",
        Nest::Vmap => "vmap",
        Nest::Grad => "grad",
        Nest::GradAux => "grad_aux",
        Nest::Jvp => "jvp",
        Nest::JvpAux => "jvp_aux",
        Nest::Vjp => "vjp",
        Nest::VjpAux => "vjp_aux",
        Nest::Linearize => "linearize",
        Nest::Hvp => "hvp",
        Nest::Jacobian => "jacobian",
        Nest::Jacrev => "jacrev",
        Nest::Jacfwd => "jacfwd",
        Nest::Hessian => "hessian",
        Nest::Jit => "jit",
        Nest::MemoryBudget => "memory_budget",
    }
}
