//! `pullback explain`: what the compiler makes of a model or an expression.

use crate::failure::{CliResult, Failure};
use crate::grad;
use crate::models::{
    self, BlockCnn, BlockGpt, BlockMlp, LstmModel, ModelKind, ModelSize, TextModel,
};
use crate::output::{StandardOutput, columns};
use clap::Args;
use pullback::{
    DType, Device, Jit, JitOutput, Key, Program, Result, Specialised, Tensor, Tree,
    compiled_stages, default_device, device_kernels, jit, kernel_table, native_code, not_fused,
    profile_device, value_and_grad, with_default_device,
};
use pullback_explore::answer::program;
use pullback_explore::expression::{did_you_mean, near};
use pullback_explore::number::bytes;
use pullback_nn::optim::{Adam, Optimizer, UpdateRule};
use pullback_nn::{Layer, Module};
use serde_json::{Value, json};

/// What `pullback explain` takes.
#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
#[command(after_long_help = "Examples:
  pullback explain mlp                     a training step of a perceptron on 64 digits
  pullback explain gpt --summary           without the programs: passes, kernels, memory by source line
  pullback explain lstm --stage fuse       the program after one pass
  pullback explain cnn --dot | dot -Tsvg > step.svg
  pullback explain 'x*y + sin(x*y)' x=2 y=3   an expression with its gradient
  pullback explain gpt --device cuda --code   its kernels on a GPU, with their CUDA C, registers and bytes

With --device cuda and no GPU, the step is compiled for one of compute capability 9.0: all but its times and its memory is
known.

The step is traced once (clear the gradients, loss, backward, Adam), then each pass makes a new program of it. Memory is planned
before anything runs: `peak` is what a call takes besides its inputs, and the lines below it hold the most at that moment.")]
pub struct ExplainArgs {
    /// mlp, cnn, gpt, lstm, or an expression
    model: String,
    /// Values of an expression's variables, such as x=2 or v='[1, 2, 3]'
    #[arg(value_name = "NAME=VALUE")]
    assignments: Vec<String>,
    /// Prints the program after this pass alone (`trace` is the one before all)
    #[arg(long, value_name = "NAME")]
    stage: Option<String>,
    /// Leaves out the programs
    #[arg(long)]
    summary: bool,
    /// The device: cpu, cuda, cuda:1, … (see `pullback devices`); a GPU need not be there
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Also prints the code of each fused region: machine code, or CUDA C for a GPU
    #[arg(long)]
    code: bool,
    /// How many lines to list of memory, and of what is not fused
    #[arg(long, value_name = "N", default_value_t = 12)]
    lines: usize,
    /// Prints JSON: the stages as programs, and the figures
    #[arg(long, conflicts_with = "dot")]
    json: bool,
    /// Prints the last program (or that of --stage) for Graphviz
    #[arg(long)]
    dot: bool,
}

/// What was compiled.
struct ExplainedFunction {
    what: String,
    stages: Vec<(&'static str, Program)>,
    specialisation: Specialised,
    /// The GPU that it was compiled for, which is not there.
    absent: Option<Device>,
}

/// The models that are known by name.
pub const MODELS: [&str; 4] = ["mlp", "cnn", "gpt", "lstm"];

/// A training step of a model, for the explorer.
///
/// # Errors
/// If there is no such model, or it cannot be compiled.
pub fn model(name: &str) -> CliResult<program::Compiled> {
    let ExplainedFunction { what, stages, specialisation: made, .. } = named(name)?;
    let stages = stages.into_iter().map(|(name, program)| (name.to_string(), program)).collect();
    Ok(program::Compiled { what, stages, specialisation: Some(made) })
}

/// Compiles and prints.
///
/// # Errors
/// If there is no such model or stage, or it cannot be compiled.
pub fn run(arguments: &ExplainArgs, out: &mut StandardOutput) -> CliResult {
    let device = match &arguments.device {
        None => Device::Cpu,
        Some(name) => {
            name.parse().map_err(|_| Failure::usage(format!("there is no device `{name}`")))?
        }
    };
    let compiled = match device.is_available() {
        true => with_default_device(device, || compile(arguments))?,
        false => without_device(compile(arguments)?, device)?,
    };
    let chosen = match &arguments.stage {
        Some(name) => Some(stage(&compiled, name)?),
        None => None,
    };
    if arguments.dot {
        let last = chosen.unwrap_or(&compiled.specialisation.program);
        return Ok(out.line(last.to_dot().trim_end())?);
    }
    if arguments.json {
        let text = serde_json::to_string_pretty(&to_json(&compiled, arguments)?);
        return Ok(out.line(text.map_err(|e| Failure::failed(e.to_string()))?)?);
    }
    if let Some(program) = chosen {
        return Ok(out.line(program.to_string().trim_end())?);
    }
    print(&compiled, arguments, out)
}

fn compile(arguments: &ExplainArgs) -> CliResult<ExplainedFunction> {
    let name = arguments.model.as_str();
    if !MODELS.contains(&name) {
        let word = name.chars().all(|c| c.is_alphanumeric() || c == '_');
        if word && arguments.assignments.is_empty() {
            let near = did_you_mean(&near(name, MODELS.into_iter()));
            return Err(Failure::usage(format!(
                "there is no model `{name}`{near} (there are {}; or give an expression)",
                MODELS.join(", ")
            )));
        }
        return expression(arguments);
    }
    if let Some(given) = arguments.assignments.first() {
        return Err(Failure::usage(format!(
            "`{given}` is given, but the model `{name}` has no variables"
        )));
    }
    named(name)
}

/// A training step of a model.
fn named(name: &str) -> CliResult<ExplainedFunction> {
    pullback::manual_seed(0);
    // Small sizes of the shapes that `pullback train` uses: what the compiler does with them is the
    // same.
    let size = ModelSize { width: 64, layers: 2, heads: 4, context: 32, dropout: 0.0 };
    let (key, other) = Key::new(0).split();
    let images = || (key.uniform([64, 1, 8, 8], DType::F32, 0.0, 1.0), other.randint([64], 0, 10));
    let texts = || (key.randint([8, 32], 0, 65), other.randint([8, 32], 0, 65));
    match name {
        "mlp" => classifier(ModelKind::Mlp, &BlockMlp::new(&size), images()),
        "cnn" => {
            classifier(ModelKind::Cnn, &BlockCnn::new(&ModelSize { width: 16, ..size }), images())
        }
        "gpt" => reader(ModelKind::Gpt, &BlockGpt::new(65, &size), texts()),
        _ => reader(ModelKind::Lstm, &LstmModel::new(65, &size), texts()),
    }
}

fn classifier(
    kind: ModelKind,
    model: &(impl Layer + Module),
    batch: (Tensor, Tensor),
) -> CliResult<ExplainedFunction> {
    step(kind, model, batch, |x| model.forward(x))
}

fn reader(
    kind: ModelKind,
    model: &(impl TextModel + Module),
    batch: (Tensor, Tensor),
) -> CliResult<ExplainedFunction> {
    step(kind, model, batch, |x| model.scores(x))
}

/// A whole training step.
fn step(
    kind: ModelKind,
    model: &impl Module,
    batch: (Tensor, Tensor),
    scores: impl Fn(&Tensor) -> Tensor,
) -> CliResult<ExplainedFunction> {
    let optimizer = Adam::default().over(model.parameters())?;
    let step = jit(|(x, y): &(Tensor, Tensor)| -> Result<Tensor> {
        optimizer.zero_grad();
        let loss = models::loss(&scores(x), y);
        loss.backward()?;
        optimizer.step()?;
        Ok(loss)
    });
    let what = format!(
        "a training step of `{}`: {} parameters, a batch of {} and {}",
        kind.name(),
        model.parameter_count(),
        batch.0.spec(),
        batch.1.spec()
    );
    compiled(what, &step, &batch)
}

/// An expression and its gradient.
fn expression(arguments: &ExplainArgs) -> CliResult<ExplainedFunction> {
    let graph = grad::graph(&arguments.model, &arguments.assignments)?;
    let inputs = graph.arguments();
    if !graph.value(&inputs).dtype().is_float() {
        return Err(Failure::usage("the result is a bool, which has no gradient"));
    }
    let f = jit(|x: &Vec<Tensor>| value_and_grad(|x: &Vec<Tensor>| graph.value(x).sum())(x));
    compiled(format!("`{}` with its gradient", graph.source), &f, &inputs)
}

fn compiled<T: Tree, Y: JitOutput, F: Fn(&T) -> Y>(
    what: String,
    f: &Jit<T, Y, F>,
    x: &T,
) -> CliResult<ExplainedFunction> {
    let stages = f.stages(x)?;
    f.call(x)?;
    let mut explanation = f.explain();
    // What the kernels take on a GPU. The second call has made its plans.
    let device = default_device();
    if device != Device::Cpu {
        f.call(x)?;
        let (done, profile) = profile_device(device, || f.call(x))?;
        done?;
        explanation.join(&profile);
    }
    match explanation.specialisations.pop() {
        Some(made) => Ok(ExplainedFunction { what, stages, specialisation: made, absent: None }),
        None => Err(Failure::failed("it was not compiled")),
    }
}

/// The step as it would be compiled for a GPU that is not there.
fn without_device(compiled: ExplainedFunction, device: Device) -> CliResult<ExplainedFunction> {
    let Some((_, traced)) = compiled.stages.into_iter().next() else {
        return Err(Failure::failed("it was not traced"));
    };
    let traced = traced.on_device(device);
    let stages = compiled_stages(&traced)?;
    let mut made = compiled.specialisation;
    made.passes = stages.iter().map(|s| (s.name, s.before, s.after, s.time)).collect();
    made.program = stages.last().map_or_else(|| traced.clone(), |stage| stage.program.clone());
    made.device_kernels = device_kernels(&made.program)?;
    made.apart = not_fused(&traced, 1 << 16)?;
    made.kernels.clear();
    for kernel in &made.device_kernels {
        *made.kernels.entry(kernel.kernel.clone()).or_insert(0) += kernel.equations.len();
    }
    let stages = stages.into_iter().map(|stage| (stage.name, stage.program));
    let stages = std::iter::once(("trace", traced)).chain(stages).collect();
    Ok(ExplainedFunction {
        what: compiled.what,
        stages,
        specialisation: made,
        absent: Some(device),
    })
}

/// The program after the last pass of this name: some run more than once.
fn stage<'a>(compiled: &'a ExplainedFunction, name: &str) -> CliResult<&'a Program> {
    match compiled.stages.iter().rfind(|(known, _)| *known == name) {
        Some((_, program)) => Ok(program),
        None => {
            let mut names: Vec<&str> = compiled.stages.iter().map(|(name, _)| *name).collect();
            names.sort_unstable();
            names.dedup();
            Err(Failure::usage(format!(
                "there is no stage `{name}`; there are {}",
                names.join(", ")
            )))
        }
    }
}

fn print(
    compiled: &ExplainedFunction,
    arguments: &ExplainArgs,
    out: &mut StandardOutput,
) -> CliResult {
    let made = &compiled.specialisation;
    out.heading(&compiled.what)?;
    if let (Some((_, first)), false) = (compiled.stages.first(), arguments.summary) {
        out.line("")?;
        out.heading(&format!("as traced: {} equations", first.equations.len()))?;
        out.line(first.to_string().trim_end())?;
    }
    out.line("")?;
    out.heading("passes")?;
    let head = ["  pass", "equations before", "after", "time"].map(String::from).to_vec();
    let rows = made.passes.iter().map(|(name, before, after, time)| {
        vec![format!("  {name}"), before.to_string(), after.to_string(), format!("{time:.1?}")]
    });
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
    columns(&rows, &[1, 2, 3]).iter().try_for_each(|line| out.line(line))?;
    if !arguments.summary {
        out.line("")?;
        out.heading(&format!("what runs: {} equations", made.program.equations.len()))?;
        out.line(made.program.to_string().trim_end())?;
    }
    out.line("")?;
    let total: usize = made.kernels.values().sum();
    out.heading(&format!("kernels: {total}"))?;
    for (name, count) in &made.kernels {
        out.line(format!("  {count:>5}  {name}"))?;
    }
    out.line("")?;
    if !made.device_kernels.is_empty() {
        out.heading(
            "kernels of the GPU: registers and spilled bytes of a thread, bytes of a call",
        )?;
        let lines = kernel_table(&made.device_kernels);
        lines.iter().try_for_each(|line| out.line(format!("  {line}")))?;
        if made.device_kernels.iter().any(|kernel| kernel.text.is_some() && kernel.usage.is_none())
        {
            out.line("  registers are not known: NVRTC, which compiles the code, was not found")?;
        }
        out.line("")?;
    }
    let apart = made.not_fused();
    if !apart.is_empty() {
        out.heading("not fused, of equations that share a value of 64 KiB or more")?;
        apart.iter().take(arguments.lines).try_for_each(|line| out.line(format!("  {line}")))?;
        let rest = apart.len().saturating_sub(arguments.lines);
        if rest > 0 {
            out.line(format!("  and {rest} more (--lines N)"))?;
        }
        out.line("")?;
    }
    if arguments.code {
        for code in native_code(&made.program)? {
            let equations: Vec<String> = code.equations.iter().map(usize::to_string).collect();
            out.heading(&format!("code of equations {}", equations.join(", ")))?;
            out.line(code.text.trim_end())?;
            out.line("")?;
        }
    }
    if let Some(device) = compiled.absent {
        return Ok(out.line(format!(
            "{device} is not there: compiled for compute capability 9.0, without times and memory"
        ))?);
    }
    out.heading(&format!("memory: {} at the peak, planned before it runs", bytes(made.peak)))?;
    for (line, size) in made.peak_by_line.iter().take(arguments.lines) {
        out.line(format!("  {:>10}  {line}", bytes(*size)))?;
    }
    let rest = made.peak_by_line.len().saturating_sub(arguments.lines);
    if rest > 0 {
        out.line(format!("  and {rest} more lines (--lines N)"))?;
    }
    out.line("")?;
    let [trace, passes, prepare] = made.compile;
    out.line(format!(
        "compiled in: trace {trace:.1?}, passes {passes:.1?}, plan and kernels {prepare:.1?}"
    ))?;
    Ok(out.line(format!(
        "captured tensors: {}, of which it writes {}",
        made.captures.0, made.captures.1
    ))?)
}

fn to_json(compiled: &ExplainedFunction, arguments: &ExplainArgs) -> CliResult<Value> {
    let read = |program: &Program| -> CliResult<Value> {
        serde_json::from_str(&program.to_json()).map_err(|e| Failure::failed(e.to_string()))
    };
    let made = &compiled.specialisation;
    let milliseconds = |time: std::time::Duration| time.as_secs_f64() * 1e3;
    let mut stages = Vec::new();
    let wanted = |name: &str| arguments.stage.as_ref().is_none_or(|stage| stage == name);
    for (name, program) in
        compiled.stages.iter().filter(|(name, _)| wanted(name) && !arguments.summary)
    {
        stages.push(json!({ "name": name, "equations": program.equations.len(), "program": read(program)? }));
    }
    let passes: Vec<Value> = made
        .passes
        .iter()
        .map(|(name, before, after, time)| json!({ "name": name, "before": before, "after": after, "ms": milliseconds(*time) }))
        .collect();
    let lines: Vec<Value> = made
        .peak_by_line
        .iter()
        .map(|(line, size)| json!({ "line": line, "bytes": size }))
        .collect();
    let [trace, pass, prepare] = made.compile.map(milliseconds);
    // What was planned and timed is the program of the CPU, if the device is not there.
    let here = compiled.absent.is_none();
    let mut kernels = Vec::new();
    for kernel in &made.device_kernels {
        let usage = kernel.usage;
        kernels.push(json!({
            "kernel": kernel.kernel, "operands": kernel.operands, "equations": kernel.equations,
            "bytes": kernel.bytes, "ms": kernel.milliseconds,
            "registers": usage.map(|usage| usage.registers),
            "spilled": usage.map(|usage| usage.spilled),
            "shared": usage.map(|usage| usage.shared),
            "line": kernel.at.map(|at| at.to_string()),
            "code": kernel.text.as_deref().filter(|_| arguments.code),
        }));
    }
    Ok(json!({
        "model": compiled.what,
        "arguments": made.arguments,
        "passes": passes,
        "kernels": made.kernels,
        "device_kernels": kernels,
        "not_fused": made.not_fused(),
        "peak_bytes": here.then_some(made.peak),
        "peak_by_line": here.then_some(lines),
        "captures": { "all": made.captures.0, "written": made.captures.1 },
        "compile_ms": here.then(|| json!({ "trace": trace, "passes": pass, "prepare": prepare })),
        "absent_device": compiled.absent.map(|device| device.to_string()),
        "stages": stages,
        "program": if arguments.summary { Value::Null } else { read(&made.program)? },
    }))
}
