//! Tensors that are one in a file and several in a model, or the other way round.
//!
//! A file is first a list of names with where each comes from ([`TensorSource`]); the rules of
//! [`Names`] change that list in order, so that a rule sees what the ones before it made. No value
//! is read until everything has its place.

use super::names::{NameRule, filled, matched};
use super::stored::{StoredTensors, read};
use super::tensors::spec_of;
use crate::state::Names;
use pullback::{Tensor, cat, catch};
use std::collections::BTreeMap;

/// Where a tensor for the model comes from.
#[derive(Clone, Debug)]
pub(crate) enum TensorSource {
    /// A tensor of the file.
    Stored(String),
    /// Several, joined.
    Joined { parts: Vec<TensorSource>, axis: usize, rule: String },
    /// A part of one.
    Part { of: Box<TensorSource>, axis: usize, index: usize, sizes: PartSizes, rule: String },
}

/// How long the parts are.
#[derive(Clone, Debug)]
pub(crate) enum PartSizes {
    /// So many of the same length.
    Equal(usize),
    Each(Vec<usize>),
}

impl PartSizes {
    pub fn of(count: usize, sizes: Option<&[usize]>) -> PartSizes {
        sizes.map_or(PartSizes::Equal(count), |sizes| PartSizes::Each(sizes.to_vec()))
    }

    /// Where part `index` of `length` elements begins, and how long it is.
    fn part(&self, length: usize, index: usize) -> Option<(usize, usize)> {
        match self {
            PartSizes::Equal(n) if length.is_multiple_of(*n) => {
                Some((length / n * index, length / n))
            }
            PartSizes::Each(sizes) if sizes.iter().sum::<usize>() == length => {
                Some((sizes[..index].iter().sum(), sizes[index]))
            }
            _ => None,
        }
    }

    fn words(&self) -> String {
        match self {
            PartSizes::Equal(n) => format!("{n} equal parts"),
            PartSizes::Each(sizes) => format!("parts of {sizes:?}"),
        }
    }
}

type RuleResult = std::result::Result<Tensor, String>;

impl TensorSource {
    /// The names in the file that it is made of, in words.
    pub fn words(&self) -> String {
        match self {
            TensorSource::Stored(name) => format!("`{name}`"),
            TensorSource::Joined { parts, .. } => {
                parts.iter().map(TensorSource::words).collect::<Vec<_>>().join(" + ")
            }
            TensorSource::Part { of, index, .. } => format!("part {index} of {}", of.words()),
        }
    }

    /// Its spec, for errors.
    pub fn spec(&self, file: &dyn StoredTensors) -> String {
        match self {
            TensorSource::Stored(name) => {
                let info = file.info(name);
                info.map(|(dtype, shape)| spec_of(dtype, &shape)).unwrap_or_default()
            }
            TensorSource::Joined { rule, .. } | TensorSource::Part { rule, .. } => {
                format!("(by {rule})")
            }
        }
    }

    /// Its value, or why there is none.
    pub fn value(&self, file: &dyn StoredTensors, names: &Names) -> RuleResult {
        match self {
            TensorSource::Stored(name) => {
                let value = read(file, name).map_err(|why| format!("`{name}` {why}"))?;
                let turned = names.is_transposed(name) && value.rank() == 2;
                Ok(if turned { value.t() } else { value })
            }
            TensorSource::Joined { parts, axis, rule } => {
                let values =
                    parts.iter().map(|p| p.value(file, names)).collect::<Result<Vec<_>, _>>()?;
                joined(&values, *axis).ok_or_else(|| {
                    let specs: Vec<String> = parts
                        .iter()
                        .zip(&values)
                        .map(|(p, v)| format!("{} {}", p.words(), v.spec()))
                        .collect();
                    format!("{rule} cannot join {} along axis {axis}", specs.join(", "))
                })
            }
            TensorSource::Part { of, axis, index, sizes, rule } => {
                let whole = of.value(file, names)?;
                part(&whole, *axis, *index, sizes).ok_or_else(|| {
                    let (words, spec) = (of.words(), whole.spec());
                    format!(
                        "{rule} cannot cut {words} {spec} along axis {axis} into {}",
                        sizes.words()
                    )
                })
            }
        }
    }
}

/// The tensors joined, if they fit each other.
fn joined(values: &[Tensor], axis: usize) -> Option<Tensor> {
    let first = values.first()?;
    let same = values.iter().all(|v| v.dtype() == first.dtype());
    let all: Vec<&Tensor> = values.iter().collect();
    (same && axis < first.rank()).then(|| catch(|| cat(&all, axis as isize)).ok()).flatten()
}

/// A part of a tensor, if it can be cut so.
fn part(whole: &Tensor, axis: usize, index: usize, sizes: &PartSizes) -> Option<Tensor> {
    let (start, length) = sizes.part(*whole.shape().get(axis)?, index)?;
    catch(|| whole.narrow(axis as isize, start as isize, length)).ok()
}

/// Groups of names by what the `*` of a rule match: for each the places of its parts in the
/// list.
fn groups<T>(list: &[(String, T)], parts: &[String]) -> BTreeMap<Vec<String>, Vec<Option<usize>>> {
    let mut out: BTreeMap<Vec<String>, Vec<Option<usize>>> = BTreeMap::new();
    for (i, (name, _)) in list.iter().enumerate() {
        let whole = |path: &String| matched(name, path).filter(|(_, rest)| rest.is_empty());
        if let Some((k, (stars, _))) =
            parts.iter().enumerate().find_map(|(k, path)| Some((k, whole(path)?)))
        {
            let stars = stars.into_iter().map(str::to_string).collect();
            out.entry(stars).or_insert_with(|| vec![None; parts.len()])[k] = Some(i);
        }
    }
    out
}

/// Replaces every whole group of `parts` by one entry, and returns a message for each group of
/// which some are missing.
fn merge<T: Clone>(
    list: &mut Vec<(String, T)>,
    (parts, whole, rule): (&[String], &str, &str),
    make: impl Fn(Vec<T>) -> Result<T, String>,
) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut gone = vec![false; list.len()];
    let mut new = Vec::new();
    for (stars, places) in groups(list, parts) {
        let stars: Vec<&str> = stars.iter().map(String::as_str).collect();
        let name = |k: usize| filled(&parts[k], &stars);
        match places.iter().position(Option::is_none) {
            Some(missing) => {
                let there = (0..parts.len()).filter(|&k| places[k].is_some()).map(name);
                let there: Vec<String> = there.map(|n| format!("`{n}`")).collect();
                let (there, missing) = (there.join(", "), name(missing));
                wrong.push(format!("{rule} has {there}, but `{missing}` is not there"));
            }
            None => {
                let places: Vec<usize> = places.into_iter().flatten().collect();
                match make(places.iter().map(|&i| list[i].1.clone()).collect()) {
                    Ok(made) => new.push((filled(whole, &stars), made)),
                    Err(why) => wrong.push(why),
                }
                places.iter().for_each(|&i| gone[i] = true);
            }
        }
    }
    let mut gone = gone.into_iter();
    list.retain(|_| !gone.next().unwrap_or(false));
    list.extend(new);
    wrong
}

/// Replaces every entry of the name `whole` by its parts.
fn cut<T>(
    list: Vec<(String, T)>,
    whole: &str,
    parts: &[String],
    make: impl Fn(&str, &T, usize) -> Result<T, String>,
) -> (Vec<(String, T)>, Vec<String>) {
    let (mut out, mut wrong) = (Vec::new(), Vec::new());
    for (name, entry) in list {
        match matched(&name, whole).filter(|(_, rest)| rest.is_empty()) {
            None => out.push((name, entry)),
            Some((stars, _)) => {
                for (k, path) in parts.iter().enumerate() {
                    match make(&name, &entry, k) {
                        Ok(made) => out.push((filled(path, &stars), made)),
                        Err(why) => {
                            wrong.push(why);
                            break;
                        }
                    }
                }
            }
        }
    }
    (out, wrong)
}

impl Names {
    /// Where the model's tensors come from in a file of these names, and messages about rules that
    /// do not fit.
    pub(crate) fn sources(&self, in_file: &[&str]) -> (Vec<(String, TensorSource)>, Vec<String>) {
        let stored = |name: &&str| (name.to_string(), TensorSource::Stored(name.to_string()));
        let mut list: Vec<(String, TensorSource)> = in_file.iter().map(stored).collect();
        let mut wrong = self.faults();
        if !wrong.is_empty() {
            return (list, wrong);
        }
        for rule in &self.rules {
            match rule {
                NameRule::Prefix(..) | NameRule::Path(..) => {
                    list.iter_mut().for_each(|(name, _)| *name = rule.to_model(name));
                }
                NameRule::Concat { parts, axis, whole, .. } => {
                    let words = rule.words();
                    let make = |parts| {
                        Ok(TensorSource::Joined { parts, axis: *axis, rule: words.clone() })
                    };
                    wrong.extend(merge(&mut list, (parts, whole, &words), make));
                }
                NameRule::Split { parts, axis, whole, sizes } => {
                    let (words, count) = (rule.words(), parts.len());
                    let make = |_: &str, of: &TensorSource, index| {
                        let sizes = PartSizes::of(count, sizes.as_deref());
                        let of = Box::new(of.clone());
                        Ok(TensorSource::Part {
                            of,
                            axis: *axis,
                            index,
                            sizes,
                            rule: words.clone(),
                        })
                    };
                    list = cut(list, whole, parts, make).0;
                }
            }
        }
        (list, wrong)
    }

    /// The tensors of a model under the names of a file, or what is wrong with that.
    pub(crate) fn stored(
        &self,
        mut list: Vec<(String, Tensor)>,
    ) -> Result<Vec<(String, Tensor)>, Vec<String>> {
        let mut wrong = self.faults();
        if !wrong.is_empty() {
            return Err(wrong);
        }
        for rule in self.rules.iter().rev() {
            match rule {
                NameRule::Prefix(..) | NameRule::Path(..) => {
                    list.iter_mut().for_each(|(name, _)| *name = rule.to_file(name));
                }
                NameRule::Concat { parts, axis, whole, sizes } => {
                    let (words, sizes) =
                        (rule.words(), PartSizes::of(parts.len(), sizes.as_deref()));
                    let make = |name: &str, x: &Tensor, index| {
                        part(&x.detach(), *axis, index, &sizes).ok_or_else(|| {
                            let (spec, into) = (x.spec(), sizes.words());
                            format!(
                                "{words} cannot cut `{name}` {spec} along axis {axis} into {into}"
                            )
                        })
                    };
                    let (cut, faults) = cut(list, whole, parts, make);
                    (list, wrong) = (cut, [wrong, faults].concat());
                }
                NameRule::Split { parts, axis, whole, .. } => {
                    let words = rule.words();
                    let make = |values: Vec<Tensor>| {
                        let values: Vec<Tensor> = values.iter().map(Tensor::detach).collect();
                        joined(&values, *axis).ok_or_else(|| {
                            let specs: Vec<String> =
                                values.iter().map(|v| v.spec().to_string()).collect();
                            let specs = specs.join(", ");
                            format!("{words} cannot join {specs} along axis {axis}")
                        })
                    };
                    wrong.extend(merge(&mut list, (parts, whole, &words), make));
                }
            }
        }
        if wrong.is_empty() { Ok(list) } else { Err(wrong) }
    }

    /// What is wrong with the rules themselves.
    fn faults(&self) -> Vec<String> {
        let mut out = self.misplaced.clone();
        out.extend(self.rules.iter().flat_map(NameRule::faults));
        out
    }
}

impl NameRule {
    fn faults(&self) -> Vec<String> {
        let stars = |path: &str| path.split('.').filter(|part| *part == "*").count();
        let (words, mut out) = (self.words(), Vec::new());
        match self {
            NameRule::Prefix(..) => {}
            NameRule::Path(file, model) => {
                if stars(file) != stars(model) {
                    out.push(format!("{words}: `*` occurs a different number of times in `{file}` and in `{model}`"));
                }
            }
            NameRule::Concat { parts, whole, sizes, .. }
            | NameRule::Split { parts, whole, sizes, .. } => {
                if parts.is_empty() {
                    out.push(format!("{words} names no parts"));
                }
                if let Some(other) = parts.iter().find(|part| stars(part) != stars(whole)) {
                    out.push(format!("{words}: `*` occurs a different number of times in `{other}` and in `{whole}`"));
                }
                if let Some((_, twice)) =
                    parts.iter().enumerate().find(|(i, part)| parts[..*i].contains(part))
                {
                    out.push(format!("{words} names `{twice}` twice"));
                }
                if let Some(sizes) = sizes.as_ref().filter(|sizes| sizes.len() != parts.len()) {
                    let (sizes, parts) = (sizes.len(), parts.len());
                    out.push(format!("{words} has {sizes} sizes for {parts} parts"));
                }
            }
        }
        out
    }
}
