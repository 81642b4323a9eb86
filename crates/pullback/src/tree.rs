//! Nested structures of tensors: what functions are differentiated over.
//!
//! A tensor is a tree, and so are tuples, vectors, arrays, options, maps and structs of trees
//! (`#[derive(Tree)]`). Plain values in a struct (a dropout rate, a name) are trees without
//! tensors. [`Borrowed`] is a tree that is borrowed.

mod borrowed;
mod impls;

pub use borrowed::{Borrowed, borrowed};

use crate::flag::sharing_flags;
use crate::{Flag, Tensor};
use rustc_hash::FxHasher;
use std::cell::RefCell;
use std::fmt::{self, Write};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A structure whose leaves are tensors.
///
/// ```
/// use pullback::{Tensor, Tree, grad};
///
/// #[derive(Tree)]
/// struct Line {
///     slope: Tensor,
///     offset: Tensor,
/// }
///
/// let line = Line { slope: Tensor::from(2.0), offset: Tensor::from(1.0) };
/// let error = |line: &Line| (&line.slope * 3.0 + &line.offset - 10.0).square();
/// let g = grad(error)(&line);
/// assert_eq!((g.slope.item::<f64>(), g.offset.item::<f64>()), (-18.0, -6.0));
/// ```
///
/// A field without tensors whose type is not a tree is marked `#[tree(skip)]`: it is cloned with
/// the struct.
///
/// ```
/// # use pullback::{Tensor, Tree};
/// # use std::collections::HashSet;
/// #[derive(Tree)]
/// struct Table {
///     weight: Tensor,
///     #[tree(skip)]
///     unused: HashSet<usize>,
/// }
/// ```
///
/// ```compile_fail,E0277
/// # use pullback::{Tensor, Tree};
/// # use std::collections::HashSet;
/// #[derive(Tree)]
/// struct Table {
///     weight: Tensor,
///     unused: HashSet<usize>,
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tree of tensors",
    label = "not a `Tree`",
    note = "a struct of tensors becomes one by `#[derive(Tree)]`",
    note = "a field without tensors whose type is not a tree is marked `#[tree(skip)]`",
    note = "a function that is compiled or differentiated takes a tree and returns one, or (in `jit`) a `pullback::Result` of one",
    note = "a reference is not a tree: write the function for `Borrowed<T>` instead of `&T`, and call it with `borrowed(&x)`"
)]
pub trait Tree {
    /// Calls `f` on each tensor, in declaration order, with its path.
    ///
    /// ```
    /// # use pullback::{Path, Tensor, Tree};
    /// # #[derive(Tree)]
    /// # struct Line {
    /// #     slope: Tensor,
    /// #     offset: Tensor,
    /// # }
    /// let line = Line { slope: Tensor::from(2.0), offset: Tensor::from(1.0) };
    /// let mut paths = Vec::new();
    /// line.visit(&mut Path::default(), &mut |path, x| paths.push(format!("{path} {}", x.spec())));
    /// assert_eq!(paths, ["slope f64[]", "offset f64[]"]);
    /// ```
    fn visit(&self, path: &mut Path, f: &mut dyn FnMut(&Path, &Tensor));

    /// The same structure with each tensor replaced by `f` of it, in the same order.
    ///
    /// ```
    /// # use pullback::{Tensor, Tree};
    /// # #[derive(Tree)]
    /// # struct Line {
    /// #     slope: Tensor,
    /// #     offset: Tensor,
    /// # }
    /// let line = Line { slope: Tensor::from(2.0), offset: Tensor::from(1.0) };
    /// let doubled = line.map(&mut |x| x * 2.0);
    /// assert_eq!((doubled.slope.item::<f64>(), doubled.offset.item::<f64>()), (4.0, 2.0));
    /// ```
    #[doc(alias = "tree_map")]
    #[must_use]
    fn map(&self, f: &mut dyn FnMut(&Tensor) -> Tensor) -> Self
    where
        Self: Sized;

    /// The tensors, in declaration order.
    ///
    /// ```
    /// # use pullback::{Tensor, Tree};
    /// # #[derive(Tree)]
    /// # struct Line {
    /// #     slope: Tensor,
    /// #     offset: Tensor,
    /// # }
    /// let line = Line { slope: Tensor::from(2.0), offset: Tensor::from(1.0) };
    /// assert!(line.leaves()[0].is_same(&line.slope));
    /// let nested = (Tensor::from(1.0), vec![line]);
    /// assert_eq!(nested.leaves().len(), 3);
    /// ```
    #[doc(alias = "tree_flatten")]
    #[doc(alias = "tree_leaves")]
    fn leaves(&self) -> Vec<Tensor> {
        let mut out = Vec::new();
        self.visit(&mut Path::default(), &mut |_, x| out.push(x.clone()));
        out
    }

    /// For each tensor, in declaration order, whether it is a buffer (`#[tree(buffer)]`).
    ///
    /// ```
    /// # use pullback::{Tensor, Tree};
    /// #[derive(Tree)]
    /// struct Norm {
    ///     scale: Tensor,
    ///     #[tree(buffer)]
    ///     running_mean: Tensor,
    /// }
    /// let norm = Norm { scale: Tensor::from(1.0), running_mean: Tensor::from(0.0) };
    /// assert_eq!(norm.buffers(), [false, true]);
    /// ```
    fn buffers(&self) -> Vec<bool> {
        let mut out = Vec::new();
        self.visit(&mut Path::default(), &mut |path, _| out.push(path.is_buffer()));
        out
    }

    /// The tensors with their dotted paths (`layers.0.weight`), in declaration order.
    ///
    /// ```
    /// # use pullback::{Tensor, Tree};
    /// let layer = (Tensor::from(1.0), Tensor::from(2.0));
    /// let layers = vec![layer.clone(), layer];
    /// let names: Vec<String> = layers.named_leaves().into_iter().map(|leaf| leaf.0).collect();
    /// assert_eq!(names, ["0.0", "0.1", "1.0", "1.1"]);
    /// ```
    #[doc(alias = "tree_leaves_with_path")]
    fn named_leaves(&self) -> Vec<(String, Tensor)> {
        let mut out = Vec::new();
        self.visit(&mut Path::default(), &mut |path, x| out.push((path.to_string(), x.clone())));
        out
    }

    /// The structure of the tree without its tensors: their paths, plain values, lengths, variants.
    /// (Skipped fields are not part of it.)
    ///
    /// ```
    /// # use pullback::{Tensor, Tree};
    /// # #[derive(Tree)]
    /// # struct Line {
    /// #     slope: Tensor,
    /// #     offset: Tensor,
    /// # }
    /// let line = Line { slope: Tensor::from(2.0), offset: Tensor::from(1.0) };
    /// let other = Line { slope: Tensor::from(5.0), offset: Tensor::from(6.0) };
    /// assert_eq!(line.structure(), other.structure());
    /// assert_ne!((line, 0.1).structure(), (other, 0.2).structure()); // plain values count
    /// ```
    fn structure(&self) -> String {
        match described(self, NoteSink::Text(String::new()), &mut |_| ()) {
            NoteSink::Text(text) => text,
            NoteSink::Hash(_) | NoteSink::Same { .. } => String::new(),
        }
    }

    /// The types in the tree, and the flags, with their paths.
    ///
    /// ```
    /// # use pullback::{Tensor, Tree};
    /// # #[derive(Tree)]
    /// # struct Line {
    /// #     slope: Tensor,
    /// #     offset: Tensor,
    /// # }
    /// let line = Line { slope: Tensor::from(2.0), offset: Tensor::from(1.0) };
    /// let structure = vec![line].tree_structure();
    /// assert_eq!(structure.kinds, [("0".to_string(), "Line")]);
    /// assert!(structure.flags.is_empty());
    /// ```
    fn tree_structure(&self) -> TreeStructure {
        let mut path = Path { structure: Some(Box::default()), ..Path::default() };
        self.visit(&mut path, &mut |_, _| ());
        path.structure.map(|structure| *structure).unwrap_or_default()
    }

    /// The same structure with these tensors instead, in the order of [`Tree::leaves`]. Tensors
    /// beyond the end of the list stay, and surplus ones are ignored.
    ///
    /// ```
    /// # use pullback::{Tensor, Tree};
    /// # #[derive(Tree)]
    /// # struct Line {
    /// #     slope: Tensor,
    /// #     offset: Tensor,
    /// # }
    /// let line = Line { slope: Tensor::from(2.0), offset: Tensor::from(1.0) };
    /// let other = line.with_leaves(&[Tensor::from(5.0), Tensor::from(6.0)]);
    /// assert_eq!((other.slope.item::<f64>(), other.offset.item::<f64>()), (5.0, 6.0));
    /// ```
    #[doc(alias = "tree_unflatten")]
    #[must_use]
    fn with_leaves(&self, leaves: &[Tensor]) -> Self
    where
        Self: Sized,
    {
        let mut next = leaves.iter();
        self.map(&mut |old| next.next().unwrap_or(old).clone())
    }
}

/// The same structure with the same tensors and the same flags, as a clone of it would be.
///
/// A type that is not `Clone` can be shared this way; a field that is a tree of a user's own kind
/// is copied as its `map` does it.
#[doc(hidden)]
pub fn shared<T: Tree>(tree: &T) -> T {
    sharing_flags(|| tree.map(&mut Tensor::clone))
}

/// What a tree is made of besides tensors, with the paths: see [`Tree::tree_structure`].
#[derive(Clone, Debug, Default)]
pub struct TreeStructure {
    /// The derived types in it, from the root (under the empty path) down, each before what is in
    /// it.
    pub kinds: Vec<(String, &'static str)>,
    /// The flags in it.
    pub flags: Vec<(String, Flag)>,
}

/// Where a tensor is in a tree.
#[derive(Clone, Debug, Default)]
pub struct Path {
    segments: Vec<String>,
    /// Whether what is here is a buffer.
    is_buffer: bool,
    /// What is there besides tensors, if requested. In a cell, since tensors are noted through a
    /// shared borrow of the path.
    notes: Option<RefCell<NoteSink>>,
    /// The types and flags that are there, if requested.
    structure: Option<Box<TreeStructure>>,
}

impl Path {
    /// Runs `f` one level down, under `name`: for implementations of [`Tree::visit`].
    ///
    /// ```
    /// use pullback::Path;
    /// let mut path = Path::default();
    /// let inside = path.scope("layers", |path| path.scope("0", |path| path.to_string()));
    /// assert_eq!((inside.as_str(), path.to_string().as_str()), ("layers.0", ""));
    /// ```
    pub fn scope<R>(&mut self, name: &str, f: impl FnOnce(&mut Path) -> R) -> R {
        self.segments.push(name.to_string());
        let result = f(self);
        self.segments.pop();
        result
    }

    /// [`Path::scope`] where what is there is not trained: running statistics, counters
    /// (`#[tree(buffer)]`).
    ///
    /// ```
    /// use pullback::Path;
    /// let mut path = Path::default();
    /// path.buffer("running_mean", |path| {
    ///     assert!(path.is_buffer());
    ///     assert_eq!(path.to_string(), "running_mean");
    /// });
    /// assert!(!path.is_buffer());
    /// ```
    pub fn buffer<R>(&mut self, name: &str, f: impl FnOnce(&mut Path) -> R) -> R {
        let before = std::mem::replace(&mut self.is_buffer, true);
        let result = self.scope(name, f);
        self.is_buffer = before;
        result
    }

    /// Whether what is here is a buffer, and not a parameter.
    ///
    /// ```
    /// # use pullback::{Path, Tensor, Tree};
    /// #[derive(Tree)]
    /// struct Norm {
    ///     scale: Tensor,
    ///     #[tree(buffer)]
    ///     running_mean: Tensor,
    /// }
    /// let norm = Norm { scale: Tensor::from(1.0), running_mean: Tensor::from(0.0) };
    /// norm.visit(&mut Path::default(), &mut |path, _| {
    ///     assert_eq!(path.is_buffer(), path.to_string() == "running_mean");
    /// });
    /// ```
    pub fn is_buffer(&self) -> bool {
        self.is_buffer
    }

    /// Notes the type of what is here, for [`Tree::tree_structure`]. `#[derive(Tree)]` calls it.
    ///
    /// ```
    /// use pullback::{Flag, Path, Tensor, Tree};
    /// struct Switch {
    ///     on: Flag,
    /// }
    /// impl Tree for Switch {
    ///     fn visit(&self, path: &mut Path, f: &mut dyn FnMut(&Path, &Tensor)) {
    ///         path.kind("Switch");
    ///         path.scope("on", |path| self.on.visit(path, f));
    ///     }
    /// #   fn map(&self, f: &mut dyn FnMut(&Tensor) -> Tensor) -> Switch {
    /// #       Switch { on: self.on.map(f) }
    /// #   }
    /// }
    /// let switch = Switch { on: Flag::new(true) };
    /// assert_eq!(switch.tree_structure().kinds, [(String::new(), "Switch")]);
    /// ```
    pub fn kind(&mut self, name: &'static str) {
        if self.structure.is_some() {
            let here = self.to_string();
            self.structure.get_or_insert_default().kinds.push((here, name));
        }
    }

    /// Notes a flag that is here, for [`Tree::tree_structure`]. [`Flag`] itself calls it.
    ///
    /// ```
    /// use pullback::{Flag, Path, Tensor, Tree};
    /// struct Switch {
    ///     on: Flag,
    /// }
    /// impl Tree for Switch {
    ///     fn visit(&self, path: &mut Path, f: &mut dyn FnMut(&Path, &Tensor)) {
    ///         path.scope("on", |path| path.flag(&self.on));
    /// #       let _ = f;
    ///     }
    /// #   fn map(&self, f: &mut dyn FnMut(&Tensor) -> Tensor) -> Switch {
    /// #       Switch { on: self.on.map(f) }
    /// #   }
    /// }
    /// let switch = Switch { on: Flag::new(true) };
    /// let (path, flag) = switch.tree_structure().flags.remove(0);
    /// flag.set(false);
    /// assert_eq!((path.as_str(), switch.on.get()), ("on", false));
    /// ```
    pub fn flag(&mut self, flag: &Flag) {
        if self.structure.is_some() {
            let here = self.to_string();
            self.structure.get_or_insert_default().flags.push((here, flag.clone()));
        }
    }

    /// The names from the root down.
    ///
    /// ```
    /// use pullback::Path;
    /// Path::default().scope("layers", |path| {
    ///     path.scope("0", |path| assert_eq!(path.segments(), ["layers", "0"]));
    /// });
    /// ```
    pub fn segments(&self) -> &[String] {
        &self.segments
    }

    /// Notes something about this place that is not a tensor: a plain value, a length, a variant.
    /// Two trees with the same notes, and tensors at the same paths, differ only in their tensors.
    /// So a function that [`jit`](crate::jit) compiled is compiled again where the notes differ.
    ///
    /// ```
    /// use pullback::{Path, Tensor, Tree};
    /// struct Dropout {
    ///     rate: f64,
    /// }
    /// impl Tree for Dropout {
    ///     fn visit(&self, path: &mut Path, f: &mut dyn FnMut(&Path, &Tensor)) {
    ///         path.note(&self.rate);
    /// #       let _ = f;
    ///     }
    /// #   fn map(&self, f: &mut dyn FnMut(&Tensor) -> Tensor) -> Dropout {
    /// #       Dropout { rate: self.rate.map(f) }
    /// #   }
    /// }
    /// let dropout = Dropout { rate: 0.1 };
    /// let other = Dropout { rate: 0.2 };
    /// assert_ne!(dropout.structure(), other.structure());
    /// ```
    pub fn note(&mut self, what: &dyn fmt::Debug) {
        if let Some(notes) = &self.notes {
            // Writing notes does not fail.
            let _ = writeln!(notes.borrow_mut(), "{self}: {what:?}");
        }
    }

    /// Notes that a tensor is here.
    fn note_tensor(&self) {
        if let Some(notes) = &self.notes {
            let _ = writeln!(notes.borrow_mut(), "{self}");
        }
    }
}

/// What becomes of the notes about a tree.
#[derive(Clone, Debug)]
enum NoteSink {
    /// They are written as text.
    Text(String),
    /// They are hashed.
    Hash(u64),
    /// They are compared with such a text, from this byte on, as long as they are the same.
    Same { as_in: Arc<str>, at: usize, so_far: bool },
}

impl fmt::Write for NoteSink {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        match self {
            NoteSink::Text(text) => text.push_str(piece),
            NoteSink::Hash(sum) => {
                let mut hasher = FxHasher::default();
                (*sum, piece).hash(&mut hasher);
                *sum = hasher.finish();
            }
            NoteSink::Same { as_in, at, so_far } => {
                *so_far &= as_in.as_bytes()[*at..].starts_with(piece.as_bytes());
                if *so_far {
                    *at += piece.len();
                }
            }
        }
        Ok(())
    }
}

/// Visits a tree and records notes.
fn described<T: Tree + ?Sized>(x: &T, notes: NoteSink, f: &mut dyn FnMut(&Tensor)) -> NoteSink {
    let mut path = Path { notes: Some(RefCell::new(notes)), ..Path::default() };
    x.visit(&mut path, &mut |path, x| {
        path.note_tensor();
        f(x);
    });
    path.notes.map_or(NoteSink::Hash(0), RefCell::into_inner)
}

/// The leaves of a tree and a hash of its structure, made in one walk and without a text.
pub(crate) fn leaves_and_hash<T: Tree>(x: &T) -> (Vec<Tensor>, u64) {
    let mut leaves = Vec::new();
    match described(x, NoteSink::Hash(0), &mut |x| leaves.push(x.clone())) {
        NoteSink::Hash(sum) => (leaves, sum),
        NoteSink::Text(_) | NoteSink::Same { .. } => (leaves, 0),
    }
}

/// Whether [`Tree::structure`] of a tree is this, without making it.
pub(crate) fn has_structure<T: Tree>(x: &T, structure: &Arc<str>) -> bool {
    let notes = NoteSink::Same { as_in: structure.clone(), at: 0, so_far: true };
    match described(x, notes, &mut |_| ()) {
        NoteSink::Same { as_in, at, so_far } => so_far && at == as_in.len(),
        NoteSink::Text(_) | NoteSink::Hash(_) => false,
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, segment) in self.segments.iter().enumerate() {
            f.write_str(if i > 0 { "." } else { "" })?;
            f.write_str(segment)?;
        }
        Ok(())
    }
}
