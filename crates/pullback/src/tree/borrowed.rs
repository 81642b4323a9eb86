//! Trees that are borrowed.

use super::{Path, Tree};
use crate::Tensor;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// A tree that is borrowed, as part of an argument: a model next to a batch, say, that is neither
/// cloned nor moved.
///
/// ```
/// use pullback::{Borrowed, Tensor, Tree, grad, jit, borrowed};
///
/// #[derive(Tree)]
/// struct Line {
///     slope: Tensor,
///     offset: Tensor,
/// }
///
/// let line = Line { slope: Tensor::from(2.0), offset: Tensor::from(1.0) };
/// let error = |(line, x): &(Borrowed<Line>, Tensor)| (&line.slope * x + &line.offset - 10.0).square();
/// let x = Tensor::from(3.0);
/// assert_eq!(jit(error).of(&(borrowed(&line), x.clone())).item::<f64>(), 9.0);
/// let (g, _) = grad(error)(&(borrowed(&line), x));
/// assert_eq!((g.slope.item::<f64>(), g.offset.item::<f64>()), (-18.0, -6.0));
/// ```
///
/// A plain reference cannot be a tree: a transform calls the function with other tensors in the
/// same structure, and what it made for that call does not live as long as the reference that was
/// given. So the function is written for a `Borrowed<Line>`, which holds the borrowed tree or one
/// that was made of it, and is used as a `&Line`. The lifetime is part of the type of the compiled
/// function: what it borrows lives as long as it does. A tensor made for each call is given as it
/// is; a clone of it is the same tensor.
pub struct Borrowed<'a, T>(Holding<'a, T>);

enum Holding<'a, T> {
    Borrowed(&'a T),
    /// With other tensors.
    Made(Arc<T>),
}

/// A borrowed tree as an argument: see [`Borrowed`].
///
/// ```
/// use pullback::{Borrowed, Tensor, borrowed, grad};
/// let weights = vec![Tensor::from(2.0), Tensor::from(1.0)];
/// let f = |(w, x): &(Borrowed<Vec<Tensor>>, Tensor)| &w[0] * x + &w[1];
/// let (g, dx) = grad(f)(&(borrowed(&weights), Tensor::from(3.0)));
/// assert_eq!((g[0].item::<f64>(), dx.item::<f64>()), (3.0, 2.0));
/// ```
pub fn borrowed<T: Tree>(tree: &T) -> Borrowed<'_, T> {
    Borrowed(Holding::Borrowed(tree))
}

impl<T> Deref for Borrowed<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.0 {
            Holding::Borrowed(tree) => tree,
            Holding::Made(tree) => tree,
        }
    }
}

impl<T> Clone for Borrowed<'_, T> {
    fn clone(&self) -> Self {
        Borrowed(match &self.0 {
            Holding::Borrowed(tree) => Holding::Borrowed(tree),
            Holding::Made(tree) => Holding::Made(tree.clone()),
        })
    }
}

impl<T: fmt::Debug> fmt::Debug for Borrowed<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<'a, T: Tree> From<&'a T> for Borrowed<'a, T> {
    fn from(tree: &'a T) -> Self {
        borrowed(tree)
    }
}

impl<T: Tree> Tree for Borrowed<'_, T> {
    fn visit(&self, path: &mut Path, f: &mut dyn FnMut(&Path, &Tensor)) {
        (**self).visit(path, f);
    }

    fn map(&self, f: &mut dyn FnMut(&Tensor) -> Tensor) -> Self {
        Borrowed(Holding::Made(Arc::new((**self).map(f))))
    }
}
