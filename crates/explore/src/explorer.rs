//! What was opened, and who answers what.

use crate::answer::{cost, memory, op, presets, program, recording, run, start, tape};
use crate::error::{Answer, ExplorerError, ExplorerErrorKind};
use program::Compiled;
use recording::OpenedRecording;
use serde_json::Value;
use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;

/// What the explorer shows first.
pub enum Subject {
    /// An expression, with values of its variables.
    Expression {
        /// The expression.
        text: String,
        /// The values of its variables, by name.
        values: serde_json::Map<String, Value>,
    },
    /// A recording.
    Recording(Box<OpenedRecording>),
    /// The folder of a training run. Its files are read at each request, so that a run can be
    /// watched.
    Run(PathBuf),
}

/// Compiles a training step of a named model.
pub type CompileModel = fn(&str) -> Answer<Compiled>;

/// What answers requests: what was opened, and the models that can be compiled.
pub struct Explorer {
    /// What was opened.
    pub subject: Subject,
    /// Names of models, and what compiles one.
    pub models: (&'static [&'static str], CompileModel),
}

impl Explorer {
    /// An explorer without models.
    pub fn new(subject: Subject) -> Explorer {
        Explorer {
            subject,
            models: (&[], |_| Err(ExplorerError::request("there are no models here"))),
        }
    }

    /// As [`Explorer::answer`], where nobody knows who asks: what the engine raises, and a defect
    /// of this program, are problems too.
    ///
    /// # Errors
    /// With what is wrong with the request.
    pub fn respond(&self, method: &str, path: &str, query: &str, body: &Value) -> Answer<Value> {
        let compute = || pullback::catch(|| self.answer(method, path, query, body));
        match panic::catch_unwind(AssertUnwindSafe(compute)) {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(ExplorerError::new(
                ExplorerErrorKind::Internal,
                "this is a defect: please report it",
            )),
        }
    }

    /// Answers a request by its method, path, query and body. This is the one list of them.
    ///
    /// # Errors
    /// With what is wrong with it.
    pub fn answer(&self, method: &str, path: &str, query: &str, body: &Value) -> Answer<Value> {
        let known: &[&str] = match path {
            "/api/start" | "/api/run" => &["GET"],
            "/api/expression" | "/api/op" | "/api/cost" | "/api/memory" | "/api/program"
            | "/api/preset" => &["POST"],
            _ if path.starts_with("/api/recording") => &["GET"],
            _ => {
                return Err(ExplorerError::new(
                    ExplorerErrorKind::NotFound,
                    format!("there is no {path}"),
                ));
            }
        };
        if !known.contains(&method) {
            let message = format!("{path} takes {}, not {method}", known.join(" and "));
            return Err(ExplorerError::new(ExplorerErrorKind::Method, message));
        }
        match path {
            "/api/start" => Ok(start::answer(self, false)),
            "/api/expression" => tape::answer(body),
            "/api/op" => op::answer(body),
            "/api/cost" => cost::answer(body),
            "/api/memory" => memory::answer(body),
            "/api/program" => program::answer(self, body),
            "/api/preset" => presets::answer(body),
            "/api/run" => match &self.subject {
                Subject::Run(folder) => run::answer(folder),
                _ => {
                    Err(ExplorerError::new(ExplorerErrorKind::NotFound, "no run folder was opened"))
                }
            },
            _ => match &self.subject {
                Subject::Recording(opened) => opened.answer(path, query),
                _ => {
                    Err(ExplorerError::new(ExplorerErrorKind::NotFound, "no recording was opened"))
                }
            },
        }
    }
}
