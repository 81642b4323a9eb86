//! Fitting the tensors of a file to the tensors that they go to. Everything is checked before
//! anything is written.

use super::names::{Names, fits};
use super::rules::TensorSource;
use super::tensors::{bytes_of, dtype_of, spec_of, tensor_of};
use pullback::{DType, Error, Path, Result, Tensor, Tree, catch, no_grad};
use safetensors::SafeTensors;
use std::collections::BTreeMap;

/// A tensor and all its names: several, where it is tied.
pub(crate) struct Destination {
    pub names: Vec<String>,
    pub tensor: Tensor,
}

/// All tensors of a module, tied ones once with all their names.
pub(crate) fn targets_of(module: &impl Tree) -> Vec<Destination> {
    let mut targets: Vec<Destination> = Vec::new();
    module.visit(&mut Path::default(), &mut |path, x| match targets
        .iter_mut()
        .find(|target| target.tensor.is_same(x))
    {
        Some(known) => known.names.push(path.to_string()),
        None => targets.push(Destination { names: vec![path.to_string()], tensor: x.clone() }),
    });
    targets
}

/// Tensors with a name each.
pub(crate) fn targets_from(named: Vec<(String, Tensor)>) -> Vec<Destination> {
    named.into_iter().map(|(name, tensor)| Destination { names: vec![name], tensor }).collect()
}

/// How a file is fitted.
pub(crate) struct Fit<'a> {
    pub names: &'a Names,
    /// Dtypes may differ: values are cast, floats to floats and integers to integers.
    pub cast: bool,
    /// Patterns of names in the file that need not be in the model, and of names in the model that
    /// need not be in the file.
    pub ignored: &'a [String],
    pub optional: &'a [String],
}

/// The result of matching: what is written where, and what does not fit.
#[derive(Default)]
pub(crate) struct Fitted {
    writes: Vec<(Tensor, Tensor)>,
    pub missing: Vec<String>,
    pub unexpected: Vec<String>,
    mismatching: Vec<String>,
    /// What is missing and unexpected, and was allowed to be.
    pub excused: [Vec<String>; 2],
}

impl<'a> Fit<'a> {
    /// Every name and dtype as it is.
    pub fn exact(names: &'a Names) -> Fit<'a> {
        Fit { names, cast: false, ignored: &[], optional: &[] }
    }

    pub fn run(&self, file: &SafeTensors, targets: &[Destination]) -> Fitted {
        let mut out = Fitted::default();
        // By the model's names; in alphabetical order, so that messages do not depend on a hash.
        let mut given: BTreeMap<String, TensorSource> = BTreeMap::new();
        let mut in_file = file.names();
        in_file.sort_unstable();
        let (sources, wrong) = self.names.sources(&in_file);
        out.mismatching.extend(wrong);
        let is = |patterns: &[String], name: &str| patterns.iter().any(|p| fits(name, p));
        for (name, source) in sources {
            let words = source.words();
            if matches!(&source, TensorSource::Stored(name) if is(self.ignored, name)) {
                out.excused[1].push(format!("{words} {}", source.spec(file)));
                continue;
            }
            if let Some(other) = given.insert(name, source) {
                let other = other.words();
                let sentence = format!("{words} and {other} are both named the same in the model");
                out.mismatching.push(sentence);
            }
        }
        for target in targets {
            let found: Vec<TensorSource> =
                target.names.iter().filter_map(|name| given.remove(name)).collect();
            let Some(first) = found.first() else {
                let excused = target.names.iter().any(|name| is(self.optional, name));
                let list = if excused { &mut out.excused[0] } else { &mut out.missing };
                list.push(format!("`{}` {}", target.names[0], target.tensor.spec()));
                continue;
            };
            match self.fitted(file, first, &target.tensor) {
                Ok(value) => out.writes.push((target.tensor.clone(), value)),
                Err(why) => out.mismatching.push(why),
            }
            let bytes = |source: &TensorSource| match source {
                TensorSource::Stored(name) => {
                    file.tensor(name).map(|view| view.data().to_vec()).ok()
                }
                made => made.value(file, self.names).map(|x| bytes_of(&x)).ok(),
            };
            for other in found[1..].iter().filter(|&other| bytes(other) != bytes(first)) {
                let (first, other) = (first.words(), other.words());
                let sentence =
                    format!("{first} and {other} are one tensor in the model, but differ");
                out.mismatching.push(sentence);
            }
        }
        for source in given.values() {
            out.unexpected.push(format!("{} {}", source.words(), source.spec(file)));
        }
        out
    }

    /// The value of a source as `target` can take it, or why it cannot.
    fn fitted(
        &self,
        file: &SafeTensors,
        source: &TensorSource,
        target: &Tensor,
    ) -> std::result::Result<Tensor, String> {
        let value = match source {
            TensorSource::Stored(name) => {
                self.stored(file, name, target).map_err(|why| format!("`{name}` {why}"))?
            }
            made => {
                let value = made.value(file, self.names)?;
                if value.shape() != target.shape() || !self.takes(value.dtype(), target) {
                    let (words, spec) = (made.words(), made.spec(file));
                    let (is, here) = (value.spec(), target.spec());
                    return Err(format!("{words} {spec} is {is}, {here} here"));
                }
                value
            }
        };
        // Writing a tensor over itself changes nothing, and fails where writing to it would.
        let may = catch(|| no_grad(|| drop(target.copy_(target))));
        let words = source.words();
        may.map_err(|error| format!("{words} may not be written: {}", error.message()))?;
        Ok(value.cast(target.dtype()))
    }

    fn takes(&self, dtype: DType, target: &Tensor) -> bool {
        let kind = |dtype: DType| (dtype.is_float(), dtype == DType::Bool);
        dtype == target.dtype() || (self.cast && kind(dtype) == kind(target.dtype()))
    }

    /// The value of a stored tensor that has the shape and dtype of `target`.
    fn stored(
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
        let fits = dtype_of(&view).is_some_and(|dtype| self.takes(dtype, target));
        if shape != target.shape() || (!fits && dtype_of(&view).is_some()) {
            let turned = if turned { " transposed" } else { "" };
            return Err(format!(
                "is {}{turned} in the file, {} here",
                spec_of(&view),
                target.spec()
            ));
        }
        let value = tensor_of(&view)?;
        Ok(if turned { value.t() } else { value })
    }
}

/// How many tensors an error names.
const NAMED: usize = 10;

impl Fitted {
    /// How many tensors are to be written.
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// An error that names what does not fit, if something does not. Where not strict, tensors may
    /// be missing and unexpected.
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
        // Files are read on the host.
        let write = |(to, value): &(Tensor, Tensor)| drop(to.copy_(value.to(to.device())));
        catch(|| no_grad(|| self.writes.iter().for_each(write)))
    }
}
