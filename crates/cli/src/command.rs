//! The command line: subcommands, options for all of them, help.

use crate::failure::{CliResult, Failure};
use crate::output::{ColourChoice, StandardOutput};
use crate::{
    bench, check, completions, devices, explain, explore, grad, launch, ops, simulate, train,
};
use clap::error::ErrorKind;
use clap::{ColorChoice, CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::OsString;

/// Automatic differentiation: train networks, see how gradients come about, check, explain and
/// measure them
#[derive(Debug, Parser)]
#[command(
    name = "pullback",
    version,
    propagate_version = true,
    subcommand_required = true,
    arg_required_else_help = true
)]
#[command(
    after_help = "Exit codes: 0 success, 1 the command failed, 2 the command line is invalid, 130 stopped by Ctrl-C or SIGTERM.\n\
    `pullback COMMAND --help` teaches each command with examples."
)]
pub struct CommandLine {
    /// When to use colours
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN")]
    pub color: ColourChoice,
    /// The subcommand
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Trains a network out of the box: on handwritten digits, or on text
    Train(Box<train::TrainArgs>),
    /// Differentiates an expression and shows how: the forward tape, the reverse sweep, the
    /// gradient
    Grad(grad::GradArgs),
    /// Checks gradients against numeric derivatives: of an expression, or of this installation
    Check(check::CheckArgs),
    /// Shows what the compiler makes of a model: the program, the passes, memory by source line
    Explain(explain::ExplainArgs),
    /// Opens the tape explorer in the browser: gradients, step by step, of an expression, of a
    /// recording of your program, or of a training run
    Explore(explore::ExploreArgs),
    /// Measures the benchmark workloads on this machine
    Bench(bench::BenchArgs),
    /// Starts several workers on this machine, which train together
    Launch(launch::LaunchArgs),
    /// Predicts the step time of many workers from a recorded schedule
    Simulate(simulate::SimulateArgs),
    /// Lists the operations with their derivatives
    Ops(ops::OpsArgs),
    /// Lists the devices, and the CUDA libraries that were found
    Devices(devices::DevicesArgs),
    /// Prints a completion script for a shell
    Completions(completions::CompletionsArgs),
}

/// Runs the subcommand.
///
/// # Errors
/// With the message to print and the exit code.
pub fn run(words: Vec<OsString>) -> CliResult {
    let words = no_flags(words);
    let colour = asked_colour(&words);
    let choice = match colour {
        ColourChoice::Auto => ColorChoice::Auto,
        ColourChoice::Always => ColorChoice::Always,
        ColourChoice::Never => ColorChoice::Never,
    };
    let parsed = CommandLine::command()
        .color(choice)
        .try_get_matches_from(words)
        .and_then(|matches| CommandLine::from_arg_matches(&matches));
    let line = match parsed {
        Ok(line) => line,
        Err(error) => return not_understood(&error),
    };
    // The workers' lines go to standard output from several threads, so this one does not hold it.
    if let Command::Launch(arguments) = &line.command {
        return launch::run(arguments);
    }
    // Kernels would panic with the same sentence.
    pullback::backend::instruction_set()?;
    let mut out = StandardOutput::new(line.color);
    let outcome = match line.command {
        Command::Train(arguments) => train::run(&arguments, &mut out),
        Command::Grad(arguments) => grad::run(&arguments, &mut out),
        Command::Check(arguments) => check::run(&arguments, &mut out),
        Command::Explain(arguments) => explain::run(&arguments, &mut out),
        Command::Explore(arguments) => explore::run(&arguments, &mut out),
        Command::Bench(arguments) => bench::run(&arguments, &mut out),
        Command::Launch(arguments) => launch::run(&arguments),
        Command::Simulate(arguments) => simulate::run(&arguments, &mut out),
        Command::Ops(arguments) => ops::run(&arguments, &mut out),
        Command::Devices(arguments) => devices::run(&arguments, &mut out),
        Command::Completions(arguments) => completions::run(&arguments, &mut out),
    };
    // What was found so far is shown, also where something failed after it.
    let flushed = out.flush();
    outcome?;
    Ok(flushed?)
}

/// An expression may begin with a minus: `-x^2` is no flag. It is passed on with a space before it,
/// which expressions ignore. Negative numbers stay as they are: those commands allow them.
fn no_flags(words: Vec<OsString>) -> Vec<OsString> {
    let takes_expression =
        |word: &OsString| ["grad", "check", "explain", "explore"].iter().any(|name| word == name);
    let Some(command) = words.iter().position(takes_expression) else { return words };
    let no_flag = |(i, word): (usize, OsString)| match word.to_str() {
        Some("-h" | "-V" | "-") | None => word,
        Some(text) if text.starts_with('-') && text.parse::<f64>().is_ok_and(f64::is_finite) => {
            word
        }
        Some(text) if i > command && text.starts_with('-') && !text.starts_with("--") => {
            format!(" {text}").into()
        }
        Some(_) => word,
    };
    words.into_iter().enumerate().map(no_flag).collect()
}

/// The choice of colours, before anything is parsed: messages about the command line use it too.
fn asked_colour(words: &[OsString]) -> ColourChoice {
    let words: Vec<&str> = words.iter().filter_map(|word| word.to_str()).collect();
    let joined = words.iter().find_map(|word| word.strip_prefix("--color="));
    let separate =
        words.iter().position(|word| *word == "--color").and_then(|i| words.get(i + 1)).copied();
    match joined.or(separate) {
        Some("always") => ColourChoice::Always,
        Some("never") => ColourChoice::Never,
        _ => ColourChoice::Auto,
    }
}

/// Help and version unchanged; anything else as an error message with the program's name.
fn not_understood(error: &clap::Error) -> CliResult {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Ok(error.print()?),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            error.print()?;
            Err(Failure { code: crate::failure::USAGE, message: String::new() })
        }
        _ => {
            let text = error.to_string();
            Err(Failure::usage(text.trim_end().strip_prefix("error: ").unwrap_or(&text)))
        }
    }
}
