//! Fitting the tensors of a file to the tensors that they go to. Everything is checked before
//! anything is written.

use super::names::{Names, fits};
use super::rules::TensorSource;
use super::stored::StoredTensors;
use super::tensors::{bytes_of, check_bytes, dtype_of, spec_of, unsupported};
use pullback::{
    DType, Device, Error, ErrorKind, Path, Result, Tensor, Tree, catch, no_grad,
    with_default_device,
};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// A tensor and all its names: several, where it is tied.
pub(crate) struct LoadTarget {
    pub names: Vec<String>,
    pub tensor: Tensor,
}

/// All tensors of a module, tied ones once with all their names.
pub(crate) fn targets_of(module: &impl Tree) -> Vec<LoadTarget> {
    let mut targets: Vec<LoadTarget> = Vec::new();
    module.visit(&mut Path::default(), &mut |path, x| match targets
        .iter_mut()
        .find(|target| target.tensor.is_same(x))
    {
        Some(known) => known.names.push(path.to_string()),
        None => targets.push(LoadTarget { names: vec![path.to_string()], tensor: x.clone() }),
    });
    targets
}

/// Tensors with a name each.
pub(crate) fn targets_from(named: Vec<(String, Tensor)>) -> Vec<LoadTarget> {
    named.into_iter().map(|(name, tensor)| LoadTarget { names: vec![name], tensor }).collect()
}

/// How a file is fitted.
pub(crate) struct MatchOptions<'a> {
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
pub(crate) struct Matches {
    /// Values are read when they are written.
    writes: Vec<(Tensor, TensorSource)>,
    names: Names,
    pub missing: Vec<String>,
    pub unexpected: Vec<String>,
    mismatching: Vec<String>,
    /// What is missing and unexpected, and was allowed to be.
    pub excused: [Vec<String>; 2],
}

impl<'a> MatchOptions<'a> {
    /// Every name and dtype as it is.
    pub fn exact(names: &'a Names) -> MatchOptions<'a> {
        MatchOptions { names, cast: false, ignored: &[], optional: &[] }
    }

    pub fn run(&self, file: &dyn StoredTensors, targets: &[LoadTarget]) -> Matches {
        let mut out = Matches { names: self.names.clone(), ..Matches::default() };
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
                Ok(()) => out.writes.push((target.tensor.clone(), first.clone())),
                Err(why) => out.mismatching.push(why),
            }
            let bytes = |source: &TensorSource| match source {
                TensorSource::Stored(name) => file.bytes(name).map(Cow::into_owned).ok(),
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

    /// Whether `target` can take the value of a source, or why it cannot.
    fn fitted(
        &self,
        file: &dyn StoredTensors,
        source: &TensorSource,
        target: &Tensor,
    ) -> std::result::Result<(), String> {
        match source {
            TensorSource::Stored(name) => {
                self.stored(file, name, target).map_err(|why| format!("`{name}` {why}"))?;
            }
            made => {
                // On the host, and read again when it is written.
                let value = with_default_device(Device::Cpu, || made.value(file, self.names))?;
                if value.shape() != target.shape() || !self.takes(value.dtype(), target) {
                    let (words, spec) = (made.words(), made.spec(file));
                    let (is, here) = (value.spec(), target.spec());
                    return Err(format!("{words} {spec} is {is}, {here} here"));
                }
            }
        }
        // Writing a tensor over itself changes nothing, and fails where writing to it would.
        match catch(|| no_grad(|| drop(target.copy_(target)))) {
            Ok(()) => Ok(()),
            // Whether there is memory for it shows when it is written.
            Err(error) if error.kind() == ErrorKind::Memory => Ok(()),
            Err(error) => {
                let words = source.words();
                Err(format!("{words} may not be written: {}", error.message()))
            }
        }
    }

    fn takes(&self, dtype: DType, target: &Tensor) -> bool {
        let kind = |dtype: DType| (dtype.is_float(), dtype == DType::Bool);
        dtype == target.dtype() || (self.cast && kind(dtype) == kind(target.dtype()))
    }

    /// Whether a stored tensor has the shape and dtype of `target`.
    fn stored(
        &self,
        file: &dyn StoredTensors,
        name: &str,
        target: &Tensor,
    ) -> std::result::Result<(), String> {
        let (stored, whole) = file.info(name).ok_or_else(|| "is not in the file".to_string())?;
        let turned = self.names.is_transposed(name) && whole.len() == 2;
        let mut shape = whole.clone();
        if turned {
            shape.reverse();
        }
        let dtype = dtype_of(stored);
        let fits = dtype.is_none_or(|dtype| self.takes(dtype, target));
        if shape != target.shape() || !fits {
            let turned = if turned { " transposed" } else { "" };
            let is = spec_of(stored, &whole);
            return Err(format!("is {is}{turned} in the file, {} here", target.spec()));
        }
        match dtype {
            None => Err(unsupported(stored)),
            // The only one of which not every byte means something.
            Some(DType::Bool) => check_bytes(DType::Bool, &file.bytes(name)?),
            Some(_) => Ok(()),
        }
    }
}

/// How many tensors an error names.
const NAMED: usize = 10;

impl Matches {
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

    /// Reads and writes everything, in place: one tensor after the other, each moved to the device
    /// that it goes to.
    pub fn write(
        &self,
        op: &'static str,
        path: &std::path::Path,
        file: &dyn StoredTensors,
    ) -> Result<()> {
        for (to, source) in &self.writes {
            let read = || source.value(file, &self.names);
            let value = with_default_device(Device::Cpu, read)
                .map_err(|why| Error::argument(op, format!("{}: {why}", path.display())))?;
            let there = || value.to(to.device()).cast(to.dtype());
            catch(|| no_grad(|| drop(to.copy_(there()))))?;
        }
        Ok(())
    }
}
