//! Names in files and names in models.

/// How the names in a file and the names in a model belong together, both ways.
///
/// Rules are applied in the order in which they were added when a file is loaded, and backwards in reverse order when one is saved.
/// A name that no rule fits stays as it is.
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
    rules: Vec<Rule>,
    transposed: Vec<String>,
}

#[derive(Clone, Debug)]
enum Rule {
    Prefix(String, String),
    Path(String, String),
}

impl Names {
    /// Names that are the same in file and model.
    #[must_use]
    pub fn new() -> Names {
        Names::default()
    }

    /// Names that begin with `in_file` begin with `in_model` instead. Saving does the reverse, so an empty `in_model` puts `in_file` before
    /// every name.
    #[must_use]
    pub fn prefix(mut self, in_file: &str, in_model: &str) -> Names {
        self.rules.push(Rule::Prefix(in_file.to_string(), in_model.to_string()));
        self
    }

    /// The tensor or module at the path `in_file` is at `in_model`. A `*` stands for any one part between dots, the same in both.
    #[must_use]
    pub fn rename(mut self, in_file: &str, in_model: &str) -> Names {
        self.rules.push(Rule::Path(in_file.to_string(), in_model.to_string()));
        self
    }

    /// The matrix at this path of the file lies transposed there, as GPT-2's `Conv1D` weights do. A `*` stands for any one part.
    #[must_use]
    pub fn transposed(mut self, in_file: &str) -> Names {
        self.transposed.push(in_file.to_string());
        self
    }

    /// The model's name for a name in a file.
    #[must_use]
    pub fn in_model(&self, name: &str) -> String {
        self.rules.iter().fold(name.to_string(), |name, rule| match rule {
            Rule::Prefix(file, model) => swapped(&name, file, model),
            Rule::Path(file, model) => moved(&name, file, model),
        })
    }

    /// The name in a file for a model's name.
    #[must_use]
    pub fn in_file(&self, name: &str) -> String {
        self.rules.iter().rev().fold(name.to_string(), |name, rule| match rule {
            Rule::Prefix(file, model) => swapped(&name, model, file),
            Rule::Path(file, model) => moved(&name, model, file),
        })
    }

    /// Whether a tensor of the file lies transposed there.
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

/// What the stars of a path stand for in a name that begins with it, and what comes after it.
fn matched<'a>(name: &'a str, path: &str) -> Option<(Vec<&'a str>, Vec<&'a str>)> {
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
    fn transposed_paths_are_whole_names() {
        let names = Names::new().transposed("h.*.c_attn.weight");
        assert!(names.is_transposed("h.0.c_attn.weight"));
        assert!(!names.is_transposed("h.0.c_attn.weight.more"));
        assert!(!names.is_transposed("h.0.c_attn"));
    }
}
