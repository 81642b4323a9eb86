//! Fitting the tensors of a file to the tensors that they go to. Everything is looked at before anything is written.

use super::names::Names;
use super::tensors::{dtype_of, spec_of, tensor_of};
use pullback::{DType, Error, Path, Result, Tensor, Tree, catch, no_grad};
use safetensors::SafeTensors;
use std::collections::BTreeMap;

/// A tensor and all its names: several, where it is tied.
pub(crate) struct Target {
    pub names: Vec<String>,
    pub tensor: Tensor,
}

/// All tensors of a module, tied ones once with all their names.
pub(crate) fn targets_of(module: &impl Tree) -> Vec<Target> {
    let mut targets: Vec<Target> = Vec::new();
    module.visit(&mut Path::default(), &mut |path, x| match targets
        .iter_mut()
        .find(|target| target.tensor.is_same(x))
    {
        Some(known) => known.names.push(path.to_string()),
        None => targets.push(Target { names: vec![path.to_string()], tensor: x.clone() }),
    });
    targets
}

/// Tensors with a name each.
pub(crate) fn targets_from(named: Vec<(String, Tensor)>) -> Vec<Target> {
    named.into_iter().map(|(name, tensor)| Target { names: vec![name], tensor }).collect()
}

/// How a file is fitted.
pub(crate) struct Fit<'a> {
    pub names: &'a Names,
    /// Dtypes may differ: values are cast, floats to floats and integers to integers.
    pub cast: bool,
}

/// What comes of fitting: what goes where, and what does not fit.
#[derive(Default)]
pub(crate) struct Fitted {
    writes: Vec<(Tensor, Tensor)>,
    pub missing: Vec<String>,
    pub unexpected: Vec<String>,
    mismatching: Vec<String>,
}

impl Fit<'_> {
    pub fn run(&self, file: &SafeTensors, targets: &[Target]) -> Fitted {
        let mut out = Fitted::default();
        // By the model's names; in the order of the alphabet, so that sentences do not depend on a hash.
        let mut given: BTreeMap<String, String> = BTreeMap::new();
        let mut in_file = file.names();
        in_file.sort_unstable();
        for name in in_file {
            if let Some(other) = given.insert(self.names.in_model(name), name.to_string()) {
                let sentence =
                    format!("`{name}` and `{other}` are both named the same in the model");
                out.mismatching.push(sentence);
            }
        }
        for target in targets {
            let found: Vec<String> =
                target.names.iter().filter_map(|name| given.remove(name)).collect();
            let Some(first) = found.first() else {
                out.missing.push(format!("`{}` {}", target.names[0], target.tensor.spec()));
                continue;
            };
            match self.fitted(file, first, &target.tensor) {
                Ok(value) => out.writes.push((target.tensor.clone(), value)),
                Err(why) => out.mismatching.push(format!("`{first}` {why}")),
            }
            let bytes = |name: &String| file.tensor(name).map(|view| view.data().to_vec()).ok();
            for other in found[1..].iter().filter(|&other| bytes(other) != bytes(first)) {
                let sentence =
                    format!("`{first}` and `{other}` are one tensor in the model, but differ");
                out.mismatching.push(sentence);
            }
        }
        for name in given.values() {
            let spec = file.tensor(name).map(|view| spec_of(&view)).unwrap_or_default();
            out.unexpected.push(format!("`{name}` {spec}"));
        }
        out
    }

    /// The value of a stored tensor as `target` can take it, or why it cannot.
    fn fitted(
        &self,
        file: &SafeTensors,
        name: &str,
        target: &Tensor,
    ) -> std::result::Result<Tensor, String> {
        let view = file.tensor(name).map_err(|error| error.to_string())?;
        let turned = self.names.is_transposed(name) && view.shape().len() == 2;
        let mut shape = view.shape().to_vec();
        if turned {
            shape.reverse();
        }
        let kind = |dtype: DType| (dtype.is_float(), dtype == DType::Bool);
        let fits = dtype_of(&view).is_some_and(|dtype| {
            dtype == target.dtype() || (self.cast && kind(dtype) == kind(target.dtype()))
        });
        if shape != target.shape() || (!fits && dtype_of(&view).is_some()) {
            let turned = if turned { " transposed" } else { "" };
            return Err(format!(
                "is {}{turned} in the file, {} here",
                spec_of(&view),
                target.spec()
            ));
        }
        let value = tensor_of(&view)?;
        let value = if turned { value.t() } else { value };
        // Writing a tensor over itself changes nothing, and fails where writing to it would.
        let may = catch(|| no_grad(|| drop(target.copy_(target))));
        may.map_err(|error| format!("may not be written: {}", error.message()))?;
        Ok(value.cast(target.dtype()))
    }
}

/// How many tensors an error names.
const NAMED: usize = 10;

impl Fitted {
    /// How many tensors are to be written.
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// An error that names what does not fit, if something does not. Where not strict, tensors may be missing and unexpected.
    pub fn check(
        &self,
        op: &'static str,
        path: &std::path::Path,
        of: &str,
        strict: bool,
    ) -> Result<()> {
        let kinds = [
            ("missing", if strict { &self.missing[..] } else { &[] }),
            ("unexpected", if strict { &self.unexpected[..] } else { &[] }),
            ("mismatching", &self.mismatching[..]),
        ];
        let some = kinds.iter().filter(|(_, list)| !list.is_empty());
        let counts: Vec<String> =
            some.map(|(kind, list)| format!("{} {kind}", list.len())).collect();
        if counts.is_empty() {
            return Ok(());
        }
        let message = format!("{} does not fit {of}: {}", path.display(), counts.join(", "));
        let mut error = Error::argument(op, message);
        let lines = kinds.iter().flat_map(|(kind, list)| {
            list.iter().map(move |sentence| format!("{kind}: {sentence}"))
        });
        let lines: Vec<String> = lines.collect();
        for line in lines.iter().take(NAMED) {
            error = error.detail(line);
        }
        if lines.len() > NAMED {
            error = error.detail(format!("and {} more", lines.len() - NAMED));
        }
        if strict && !self.missing.is_empty() && !self.unexpected.is_empty() {
            error = error.hint("names that differ are mapped with state::Names");
        }
        Err(error)
    }

    /// Writes everything, in place.
    pub fn write(self) -> Result<()> {
        catch(|| no_grad(|| self.writes.iter().for_each(|(to, value)| drop(to.copy_(value)))))
    }
}
