//! The problems, one file each. A file has the formulas of one problem and a list of its functions.

mod ba;
mod descent;
mod det;
mod gmm;
mod hello;
mod ht;
mod kmeans;
mod llsq;
mod lse;
mod lstm;
mod ode;
mod particle;
mod saddle;

use crate::job::JobFactory;

/// A problem: the names of its functions, and what they do.
pub(crate) struct Module {
    name: &'static str,
    functions: &'static [(&'static str, JobFactory)],
}

const MODULES: &[Module] = &[
    ba::MODULE,
    det::MODULE,
    gmm::MODULE,
    hello::MODULE,
    ht::MODULE,
    kmeans::MODULE,
    llsq::MODULE,
    lse::MODULE,
    lstm::MODULE,
    ode::MODULE,
    particle::MODULE,
    saddle::MODULE,
];

/// The module of a name, or an error message.
pub(crate) fn module(name: &str) -> Result<&'static Module, String> {
    MODULES.iter().find(|module| module.name == name).ok_or_else(|| {
        let names: Vec<&str> = MODULES.iter().map(|module| module.name).collect();
        format!("there is no module {name:?}; there are {}", names.join(", "))
    })
}

impl Module {
    /// The function of a name, or an error message.
    pub(crate) fn function(&self, name: &str) -> Result<JobFactory, String> {
        match self.functions.iter().find(|function| function.0 == name) {
            Some(function) => Ok(function.1),
            None => {
                let names: Vec<&str> = self.functions.iter().map(|function| function.0).collect();
                let (module, names) = (self.name, names.join(", "));
                Err(format!("module {module:?} has no function {name:?}; it has {names}"))
            }
        }
    }
}
