//! Layers that exist for one, two and three spatial axes are one generic type: `Conv2d` is
//! `Convolution<2>`. What they share is here.

/// One number for every spatial axis (`3`), or one for each (`[3, 5]`).
///
/// ```
/// use pullback_nn::PerAxis;
/// assert_eq!(PerAxis::<2>::per_axis(3), [3, 3]);
/// assert_eq!([3, 5].per_axis(), [3, 5]);
/// ```
pub trait PerAxis<const N: usize> {
    /// One number for each axis.
    ///
    /// ```
    /// # use pullback_nn::PerAxis;
    /// let kernel: [usize; 3] = 3.per_axis();
    /// assert_eq!(kernel, [3, 3, 3]);
    /// ```
    ///
    /// # Panics
    /// Never.
    fn per_axis(self) -> [usize; N];
}

impl<const N: usize> PerAxis<N> for usize {
    fn per_axis(self) -> [usize; N] {
        [self; N]
    }
}

impl<const N: usize> PerAxis<N> for [usize; N] {
    fn per_axis(self) -> [usize; N] {
        self
    }
}

/// The output size of adaptive pooling: `7`, `[7, 5]`, or `[Some(7), None]` where `None` keeps the
/// length.
///
/// ```
/// use pullback_nn::Lengths;
/// assert_eq!(Lengths::<2>::lengths(7), [Some(7), Some(7)]);
/// assert_eq!([Some(7), None].lengths(), [Some(7), None]);
/// ```
pub trait Lengths<const N: usize> {
    /// One length for each axis.
    ///
    /// ```
    /// # use pullback_nn::Lengths;
    /// assert_eq!([7, 5].lengths(), [Some(7), Some(5)]);
    /// ```
    ///
    /// # Panics
    /// Never.
    fn lengths(self) -> [Option<usize>; N];
}

impl<const N: usize> Lengths<N> for usize {
    fn lengths(self) -> [Option<usize>; N] {
        [Some(self); N]
    }
}

impl<const N: usize> Lengths<N> for [usize; N] {
    fn lengths(self) -> [Option<usize>; N] {
        self.map(Some)
    }
}

impl<const N: usize> Lengths<N> for [Option<usize>; N] {
    fn lengths(self) -> [Option<usize>; N] {
        self
    }
}

/// What `#[derive(Tree)]` would write, but under the name that the type has for its number of axes:
/// `Convolution<2>` is a `Conv2d`.
macro_rules! tree_by_axes {
    ($type:ident is [$($name:literal),*] { $($field:ident),* $(; buffers $($buffer:ident),*)? $(; skipped $($skipped:ident),*)? }) => {
        impl<const N: usize> $type<N> {
            /// Its name: that of one, two or three axes.
            pub(crate) const NAME: &'static str = [$($name),*][N - 1];
        }

        impl<const N: usize> pullback::Tree for $type<N> {
            fn visit(&self, path: &mut pullback::Path, f: &mut dyn FnMut(&pullback::Path, &pullback::Tensor)) {
                path.kind(Self::NAME);
                $(path.scope(stringify!($field), |path| pullback::Tree::visit(&self.$field, path, f));)*
                $($(path.buffer(stringify!($buffer), |path| pullback::Tree::visit(&self.$buffer, path, f));)*)?
            }

            fn map(&self, f: &mut dyn FnMut(&pullback::Tensor) -> pullback::Tensor) -> Self {
                $type { $($field: pullback::Tree::map(&self.$field, f),)* $($($buffer: pullback::Tree::map(&self.$buffer, f),)*)? $($($skipped: self.$skipped.clone(),)*)? }
            }
        }
    };
}

pub(crate) use tree_by_axes;
