//! The mapping between names in files and in models.

/// A mapping between the names in a file and those in a model.
///
/// Rules are applied in the order in which they were added when a file is loaded, and inverted in
/// reverse order when one is saved. A name that no rule matches stays as it is.
///
/// Several tensors of the file that are one in the model, such as separate query, key and value
/// weights, are concatenated by [`Names::concat`]; the reverse is [`Names::split`].
///
/// ```
/// use pullback_nn::state::Names;
///
/// let names = Names::new()
///     .prefix("module.", "")
///     .rename("transformer.wte", "embedding")
///     .rename("transformer.h.*.attn", "blocks.*.attention");
/// assert_eq!(names.in_model("module.transformer.wte.weight"), "embedding.weight");
/// assert_eq!(names.in_model("module.transformer.h.3.attn.bias"), "blocks.3.attention.bias");
/// assert_eq!(names.in_file("blocks.3.attention.bias"), "module.transformer.h.3.attn.bias");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Names {
    pub(super) rules: Vec<NameRule>,
    transposed: Vec<String>,
    /// Calls of `of_sizes` that follow no rule, in words.
    pub(super) misplaced: Vec<String>,
}

#[derive(Clone, Debug)]
pub(super) enum NameRule {
    Prefix(String, String),
    Path(String, String),
    /// Several tensors of the file are one in the model.
    Concat {
        parts: Vec<String>,
        axis: usize,
        whole: String,
        sizes: Option<Vec<usize>>,
    },
    /// One tensor of the file is several in the model.
    Split {
        parts: Vec<String>,
        axis: usize,
        whole: String,
        sizes: Option<Vec<usize>>,
    },
}

impl NameRule {
    /// The model's name for a name in the file, before the next rule. A part has the name of its
    /// whole.
    pub fn to_model(&self, name: &str) -> String {
        match self {
            NameRule::Prefix(file, model) => swapped(name, file, model),
            NameRule::Path(file, model) => moved(name, file, model),
            NameRule::Concat { parts, whole, .. } => wholes(name, parts, whole),
            NameRule::Split { .. } => name.to_string(),
        }
    }

    /// The reverse.
    pub fn to_file(&self, name: &str) -> String {
        match self {
            NameRule::Prefix(file, model) => swapped(name, model, file),
            NameRule::Path(file, model) => moved(name, model, file),
            NameRule::Concat { .. } => name.to_string(),
            NameRule::Split { parts, whole, .. } => wholes(name, parts, whole),
        }
    }

    /// The rule as it was written.
    pub fn words(&self) -> String {
        match self {
            NameRule::Prefix(file, model) => format!("prefix({file:?}, {model:?})"),
            NameRule::Path(file, model) => format!("rename({file:?}, {model:?})"),
            NameRule::Concat { parts, axis, whole, .. } => {
                format!("concat({parts:?}, {axis}, {whole:?})")
            }
            NameRule::Split { parts, axis, whole, .. } => {
                format!("split({whole:?}, {axis}, {parts:?})")
            }
        }
    }
}

impl Names {
    /// The same names in file and model.
    ///
    /// ```
    /// use pullback_nn::state::Names;
    /// assert_eq!(Names::new().in_model("layer.weight"), "layer.weight");
    /// ```
    #[must_use]
    pub fn new() -> Names {
        Names::default()
    }

    /// Replaces the prefix `in_file` of names in the file by `in_model`. Saving does the reverse,
    /// so an empty `in_model` puts `in_file` before every name.
    ///
    /// ```
    /// use pullback_nn::state::Names;
    /// let names = Names::new().prefix("module.", "");
    /// assert_eq!(names.in_model("module.layer.weight"), "layer.weight");
    /// assert_eq!(names.in_file("layer.weight"), "module.layer.weight");
    /// ```
    #[must_use]
    pub fn prefix(mut self, in_file: &str, in_model: &str) -> Names {
        self.rules.push(NameRule::Prefix(in_file.to_string(), in_model.to_string()));
        self
    }

    /// The tensor or module at the path `in_file` is at `in_model`. A `*` matches any one part
    /// between dots, the same in both.
    ///
    /// ```
    /// use pullback_nn::state::Names;
    /// let names = Names::new().rename("h.*.attn", "blocks.*.attention");
    /// assert_eq!(names.in_model("h.3.attn.weight"), "blocks.3.attention.weight");
    /// assert_eq!(names.in_model("h.3.mlp.weight"), "h.3.mlp.weight");
    /// ```
    #[must_use]
    pub fn rename(mut self, in_file: &str, in_model: &str) -> Names {
        self.rules.push(NameRule::Path(in_file.to_string(), in_model.to_string()));
        self
    }

    /// The tensors at the paths `in_file`, concatenated along `axis`, are the one at `in_model`. A
    /// `*` matches any one part between dots, the same in all; paths are whole names. Saving splits
    /// into equal parts again, or into those of [`Names::of_sizes`]. A matrix that is
    /// [`Names::transposed`] is transposed before.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::state::{Names, Weights};
    /// # #[derive(pullback::Tree)]
    /// # struct Apart { q: Tensor, k: Tensor, v: Tensor }
    /// # #[derive(pullback::Tree)]
    /// # struct Packed { qkv: Tensor }
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("split.safetensors");
    /// # let row = |x: f64| Tensor::from([[x, x]]);
    /// # let apart = Apart { q: row(1.0), k: row(2.0), v: row(3.0) };
    /// # pullback_nn::state::save_weights(&apart, &path)?;
    /// let packed = Packed { qkv: Tensor::from([[0.0; 2]; 3]) };
    /// let names = Names::new().concat(&["q", "k", "v"], 0, "qkv");
    /// Weights::new().names(names).load(&packed, &path)?;
    /// assert_eq!(packed.qkv.to_vec::<f64>(), [1.0, 1.0, 2.0, 2.0, 3.0, 3.0]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn concat(mut self, in_file: &[&str], axis: usize, in_model: &str) -> Names {
        let parts = in_file.iter().map(ToString::to_string).collect();
        self.rules.push(NameRule::Concat { parts, axis, whole: in_model.to_string(), sizes: None });
        self
    }

    /// The tensor at the path `in_file`, split along `axis` into equal parts or those of
    /// [`Names::of_sizes`], is the ones at `in_model`: the reverse of [`Names::concat`]. An axis
    /// that cannot be split so is an error of loading.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::write_safetensors;
    /// use pullback_nn::state::{Names, Weights};
    /// use std::collections::BTreeMap;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let path = folder.join("packed.safetensors");
    /// let packed = Tensor::from([[1.0], [2.0], [3.0]]);
    /// write_safetensors(&path, &[("qkv", &packed)], &BTreeMap::new())?;
    /// let model = BTreeMap::from(["q", "k", "v"].map(|name| (name, Tensor::from([[0.0]]))));
    /// let names = Names::new().split("qkv", 0, &["q", "k", "v"]);
    /// Weights::new().names(names).load(&model, &path)?;
    /// assert_eq!(model["k"].to_vec::<f64>(), [2.0]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn split(mut self, in_file: &str, axis: usize, in_model: &[&str]) -> Names {
        let parts = in_model.iter().map(ToString::to_string).collect();
        self.rules.push(NameRule::Split { parts, axis, whole: in_file.to_string(), sizes: None });
        self
    }

    /// The lengths of the parts along the axis of the [`Names::concat`] or [`Names::split`] just
    /// before, where they are not equal: fewer keys than queries. In any other place it is an error
    /// of loading and saving.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::write_safetensors;
    /// use pullback_nn::state::{Names, Weights};
    /// use std::collections::BTreeMap;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let path = folder.join("packed.safetensors");
    /// write_safetensors(&path, &[("qk", &Tensor::from([1.0, 2.0, 3.0]))], &BTreeMap::new())?;
    /// let model = BTreeMap::from([("q", Tensor::from([0.0, 0.0])), ("k", Tensor::from([0.0]))]);
    /// let names = Names::new().split("qk", 0, &["q", "k"]).of_sizes(&[2, 1]);
    /// Weights::new().names(names).load(&model, &path)?;
    /// assert_eq!(model["q"].to_vec::<f64>(), [1.0, 2.0]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn of_sizes(mut self, lengths: &[usize]) -> Names {
        match self.rules.last_mut() {
            Some(NameRule::Concat { sizes, .. } | NameRule::Split { sizes, .. })
                if sizes.is_none() =>
            {
                *sizes = Some(lengths.to_vec());
            }
            Some(rule @ (NameRule::Concat { .. } | NameRule::Split { .. })) => {
                let rule = rule.words();
                self.misplaced.push(format!("of_sizes was called twice for {rule}"));
            }
            Some(rule @ (NameRule::Prefix(..) | NameRule::Path(..))) => {
                let rule = rule.words();
                self.misplaced.push(format!(
                    "of_sizes({lengths:?}) comes after {rule}, not after a concat or split"
                ));
            }
            None => self.misplaced.push(format!(
                "of_sizes({lengths:?}) comes before every rule, not after a concat or split"
            )),
        }
        self
    }

    /// The matrix at this path of the file is stored transposed, as the `Conv1D` weights of GPT-2
    /// are. A `*` matches any one part between dots.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::Linear;
    /// use pullback_nn::data::write_safetensors;
    /// use pullback_nn::state::{Names, Weights};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let path = folder.join("conv1d.safetensors");
    /// let weight = Tensor::from([[1f32], [2.0], [3.0]]); // [inputs, outputs]
    /// write_safetensors(&path, &[("weight", &weight)], &Default::default())?;
    /// let model = Linear::new(3, 1).without_bias();
    /// Weights::new().names(Names::new().transposed("weight")).load(&model, &path)?;
    /// assert_eq!(model.weight.to_vec::<f32>(), [1.0, 2.0, 3.0]);
    /// # Ok::<(), pullback::Error>(())
    /// ```
    #[must_use]
    pub fn transposed(mut self, in_file: &str) -> Names {
        self.transposed.push(in_file.to_string());
        self
    }

    /// The name in the model of a name in the file. A part that is concatenated has the name of the
    /// whole.
    ///
    /// ```
    /// use pullback_nn::state::Names;
    /// let names = Names::new().concat(&["*.q", "*.k", "*.v"], 0, "*.qkv");
    /// assert_eq!(names.in_model("attention.k"), "attention.qkv");
    /// ```
    #[must_use]
    pub fn in_model(&self, name: &str) -> String {
        self.rules.iter().fold(name.to_string(), |name, rule| rule.to_model(&name))
    }

    /// The name in the file of a name in the model. A part of a tensor that is split has the name
    /// of the whole.
    ///
    /// ```
    /// use pullback_nn::state::Names;
    /// let names = Names::new().rename("transformer.wte", "embedding");
    /// assert_eq!(names.in_file("embedding.weight"), "transformer.wte.weight");
    /// ```
    #[must_use]
    pub fn in_file(&self, name: &str) -> String {
        self.rules.iter().rev().fold(name.to_string(), |name, rule| rule.to_file(&name))
    }

    /// Whether a tensor of the file is transposed there.
    pub(crate) fn is_transposed(&self, in_file: &str) -> bool {
        self.transposed
            .iter()
            .any(|path| matched(in_file, path).is_some_and(|(_, rest)| rest.is_empty()))
    }
}

/// The name with another beginning, if it has this one.
fn swapped(name: &str, from: &str, to: &str) -> String {
    name.strip_prefix(from).map_or_else(|| name.to_string(), |rest| format!("{to}{rest}"))
}

/// The name under another path, if it is under this one.
fn moved(name: &str, from: &str, to: &str) -> String {
    let Some((stars, rest)) = matched(name, from) else {
        return name.to_string();
    };
    let mut stars = stars.into_iter();
    let head = to.split('.').map(|part| match part {
        "*" => stars.next().unwrap_or("*"),
        part => part,
    });
    // An empty path is the root.
    let parts: Vec<&str> = head.chain(rest).filter(|part| !part.is_empty()).collect();
    parts.join(".")
}

/// The path with its stars filled in.
pub(super) fn filled(path: &str, stars: &[&str]) -> String {
    let mut stars = stars.iter();
    let part = |part| if part == "*" { stars.next().copied().unwrap_or("*") } else { part };
    path.split('.').map(part).collect::<Vec<_>>().join(".")
}

/// The name of the whole, if this is one of its parts.
fn wholes(name: &str, parts: &[String], whole: &str) -> String {
    let found = |path: &String| matched(name, path).filter(|(_, rest)| rest.is_empty());
    match parts.iter().find_map(found) {
        Some((stars, _)) => filled(whole, &stars),
        None => name.to_string(),
    }
}

/// Whether a name fits a pattern, in which a `*` matches any text, dots and nothing included.
pub(super) fn fits(name: &str, pattern: &str) -> bool {
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let Some(last) = pieces.next_back() else { return rest.is_empty() };
    for piece in pieces {
        match rest.find(piece) {
            Some(at) => rest = &rest[at + piece.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// What the `*` of a path match in a name that begins with it, and what comes after it.
pub(super) fn matched<'a>(name: &'a str, path: &str) -> Option<(Vec<&'a str>, Vec<&'a str>)> {
    let mut parts = name.split('.');
    let mut stars = Vec::new();
    for wanted in path.split('.').filter(|part| !part.is_empty()) {
        match parts.next()? {
            part if wanted == "*" => stars.push(part),
            part if part == wanted => (),
            _ => return None,
        }
    }
    Some((stars, parts.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_match_whole_parts() {
        let names = Names::new().rename("layer.1", "first");
        assert_eq!(names.in_model("layer.1.weight"), "first.weight");
        assert_eq!(names.in_model("layer.10.weight"), "layer.10.weight");
        assert_eq!(names.in_model("layer.1"), "first");
        assert_eq!(names.in_file("first"), "layer.1");
    }

    #[test]
    fn rules_are_undone_in_reverse() {
        let names = Names::new().prefix("a.", "b.").prefix("b.", "c.");
        assert_eq!(names.in_model("a.x"), "c.x");
        assert_eq!(names.in_file("c.x"), "a.x");
    }

    #[test]
    fn patterns_are_globs() {
        let cases = [
            ("a.b.num_batches_tracked", "*.num_batches_tracked", true),
            ("num_batches_tracked", "*.num_batches_tracked", false),
            ("head.weight", "head.*", true),
            ("head", "head.*", false),
            ("head.weight", "head", false),
            ("head", "head", true),
            ("a.b.c", "a*b*c", true),
            ("a.c.b", "a*b*c", false),
            ("aa", "a*a*a", false),
            ("anything", "*", true),
            ("", "*", true),
        ];
        for (name, pattern, does) in cases {
            assert_eq!(fits(name, pattern), does, "{name} {pattern}");
        }
    }

    #[test]
    fn a_part_has_the_name_of_its_whole() {
        let names = Names::new().prefix("model.", "").concat(
            &["h.*.q.weight", "h.*.k.weight"],
            0,
            "blocks.*.qk.weight",
        );
        assert_eq!(names.in_model("model.h.3.k.weight"), "blocks.3.qk.weight");
        assert_eq!(names.in_model("model.h.3.v.weight"), "h.3.v.weight");
        let names = Names::new().split("qk", 0, &["q", "k"]);
        assert_eq!((names.in_file("k"), names.in_model("qk")), ("qk".into(), "qk".into()));
    }

    #[test]
    fn transposed_paths_are_whole_names() {
        let names = Names::new().transposed("h.*.c_attn.weight");
        assert!(names.is_transposed("h.0.c_attn.weight"));
        assert!(!names.is_transposed("h.0.c_attn.weight.more"));
        assert!(!names.is_transposed("h.0.c_attn"));
    }
}
