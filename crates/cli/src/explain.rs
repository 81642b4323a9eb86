//! Not yet.
use crate::failure::Outcome;
use crate::output::Output;
#[derive(Debug, clap::Args)]
pub struct Arguments {}
pub fn run(_: &Arguments, _: &mut Output) -> Outcome {
    Ok(())
}
