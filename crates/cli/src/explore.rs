//! `pullback explore`: the tape explorer, as a page in the browser or as a file.

use crate::explain;
use crate::failure::{CliResult, Failure};
use crate::output::StandardOutput;
use clap::Args;
use pullback_explore::answer::recording::OpenedRecording;
use pullback_explore::answer::run::is_run;
use pullback_explore::answer::start::{EXAMPLES, values_of};
use pullback_explore::expression::assignment;
use pullback_explore::number::to_json;
use pullback_explore::server::Server;
use pullback_explore::{Explorer, Subject, written};
use serde_json::{Map, Value, json};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What `pullback explore` takes.
#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
#[command(after_long_help = "Examples:
  pullback explore                              x·y + sin(x·y) at x = 2, y = 3, and examples to choose from
  pullback explore 'sum(softmax(W @ x) * [1, 0])' W='[[1, 2], [3, 4]]' x='[0.5, -1]'
  pullback explore step.pullback                a recording: `pullback::record(\"step.pullback\", || …)` in your program
  pullback explore runs/digits-1                a training run: losses, gradients and updates by layer
  pullback explore --out page.html              the page as one file, which needs no server

The server answers this machine alone (127.0.0.1) unless --host names another address, and reads no file but the one that was
named. It runs until Ctrl-C.")]
pub struct ExploreArgs {
    /// An expression, a recording, or the folder of a training run
    what: Option<String>,
    /// Values of an expression's variables, such as x=2 or v='[1, 2, 3]'
    #[arg(value_name = "NAME=VALUE")]
    assignments: Vec<String>,
    /// The port to listen on; 0 is any that is free
    #[arg(long, value_name = "N", default_value_t = 0)]
    port: u16,
    /// The address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    host: IpAddr,
    /// Does not open the browser
    #[arg(long)]
    no_open: bool,
    /// Writes the page to a file instead of serving it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["port", "host", "no_open"])]
    out: Option<PathBuf>,
}

/// Serves or writes the page.
///
/// # Errors
/// If what was named is neither of these, or the address is in use.
pub fn run(arguments: &ExploreArgs, out: &mut StandardOutput) -> CliResult {
    let mut explorer = Explorer::new(subject(arguments)?);
    explorer.models = (&explain::MODELS, |name| {
        explain::model(name)
            .map_err(|failure| pullback_explore::ExplorerError::engine(failure.message))
    });
    if let Some(path) = &arguments.out {
        let page = written(&explorer)?;
        std::fs::write(path, &page).map_err(|error| {
            Failure::failed(format!("{} cannot be written: {error}", path.display()))
        })?;
        let kilobytes = page.len().div_ceil(1000);
        return Ok(out.line(format!("{} ({kilobytes} kB)", path.display()))?);
    }
    let server = Server::bind(explorer, arguments.host, arguments.port).map_err(|error| {
        let (host, port) = (arguments.host, arguments.port);
        Failure::failed(format!("cannot listen on {host}, port {port}: {error}"))
    })?;
    let address = format!("http://{}/", server.address());
    out.line(format!("{address}  (Ctrl-C ends it)"))?;
    if !arguments.host.is_loopback() {
        out.line("it answers others too: whoever reaches this address can use it")?;
    }
    out.flush()?;
    if !arguments.no_open && !open(&address) {
        out.line("no browser could be opened: open the address yourself")?;
        out.flush()?;
    }
    // Ctrl-C ends the process; there is nothing to clean up.
    Ok(server.run(std::future::pending())?)
}

/// What was named on the command line.
fn subject(arguments: &ExploreArgs) -> CliResult<Subject> {
    let Some(what) = &arguments.what else {
        let first = &EXAMPLES[0];
        return Ok(Subject::Expression {
            text: first.expression.to_string(),
            values: values_of(first),
        });
    };
    let path = Path::new(what);
    let given = arguments.assignments.first();
    let no_values = |kind: &str| match given {
        Some(given) => {
            Err(Failure::usage(format!("`{given}` is given, but {kind} has no variables")))
        }
        None => Ok(()),
    };
    if path.is_dir() {
        no_values("a run")?;
        return match is_run(path) {
            true => Ok(Subject::Run(path.to_path_buf())),
            false => Err(Failure::usage(format!(
                "{what} is not a run folder: it has neither log.jsonl nor config.toml"
            ))),
        };
    }
    if path.is_file() {
        no_values("a recording")?;
        return Ok(Subject::Recording(Box::new(OpenedRecording::file(path)?)));
    }
    let looks_like_path = what.contains(std::path::MAIN_SEPARATOR) && !what.contains([' ', '('])
        || Path::new(what).extension().is_some_and(|e| e == "pullback");
    let mut values = Map::<String, Value>::new();
    for text in &arguments.assignments {
        let (name, x) = assignment(text)?;
        if values.insert(name.clone(), to_json(&x)).is_some() {
            return Err(Failure::usage(format!("`{name}` is given twice")));
        }
    }
    let body = json!({ "expression": what, "values": values });
    match pullback_explore::answer::tape::answer(&body) {
        Ok(tape) => {
            let variables = tape["variables"].as_array().into_iter().flatten();
            let known: Vec<&str> = variables.filter_map(|v| v["name"].as_str()).collect();
            match values.keys().find(|name| !known.contains(&&name[..])) {
                Some(name) => Err(Failure::usage(format!(
                    "`{name}` is given, but it is no variable of `{what}`"
                ))),
                None => Ok(Subject::Expression { text: what.clone(), values }),
            }
        }
        Err(_) if looks_like_path => {
            Err(Failure::usage(format!("there is no file or folder {what}")))
        }
        Err(problem) => Err(problem.into()),
    }
}

/// Opens an address in the browser; whether something was started for it.
fn open(address: &str) -> bool {
    let (program, first): (&str, &[&str]) = match std::env::consts::OS {
        "macos" => ("open", &[]),
        "windows" => ("cmd", &["/C", "start", ""]),
        _ => ("xdg-open", &[]),
    };
    let mut command = Command::new(program);
    command.args(first).arg(address);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().is_ok()
}
