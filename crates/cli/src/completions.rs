//! `pullback completions`: what a shell needs to complete the command line.

use crate::command::CommandLine;
use crate::failure::CliResult;
use crate::output::StandardOutput;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

/// What `pullback completions` takes.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  \
    pullback completions bash > ~/.local/share/bash-completion/completions/pullback\n  \
    pullback completions zsh > ~/.zfunc/_pullback\n  \
    pullback completions fish > ~/.config/fish/completions/pullback.fish\n  \
    pullback completions powershell >> $PROFILE")]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Prints the script.
///
/// # Errors
/// If it cannot be written.
pub fn run(arguments: &CompletionsArgs, out: &mut StandardOutput) -> CliResult {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut CommandLine::command(), "pullback", &mut script);
    Ok(out.line(String::from_utf8_lossy(&script).trim_end())?)
}
