//! What is a tree: tensors, collections and tuples of trees, and plain values.

use super::{Path, Tree};
use crate::Tensor;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::{BuildHasher, Hash};

impl Tree for Tensor {
    fn visit(&self, path: &mut Path, f: &mut dyn FnMut(&Path, &Tensor)) {
        f(path, self);
    }

    fn map(&self, f: &mut dyn FnMut(&Tensor) -> Tensor) -> Tensor {
        f(self)
    }
}

impl<T: Tree> Tree for Vec<T> {
    fn visit(&self, path: &mut Path, f: &mut dyn FnMut(&Path, &Tensor)) {
        path.note(&self.len());
        for (i, x) in self.iter().enumerate() {
            path.scope(&i.to_string(), |path| x.visit(path, f));
        }
    }

    fn map(&self, f: &mut dyn FnMut(&Tensor) -> Tensor) -> Vec<T> {
        self.iter().map(|x| x.map(f)).collect()
    }
}

impl<T: Tree, const N: usize> Tree for [T; N] {
    fn visit(&self, path: &mut Path, f: &mut dyn FnMut(&Path, &Tensor)) {
        for (i, x) in self.iter().enumerate() {
            path.scope(&i.to_string(), |path| x.visit(path, f));
        }
    }

    fn map(&self, f: &mut dyn FnMut(&Tensor) -> Tensor) -> [T; N] {
        std::array::from_fn(|i| self[i].map(f))
    }
}

impl<T: Tree> Tree for Option<T> {
    fn visit(&self, path: &mut Path, f: &mut dyn FnMut(&Path, &Tensor)) {
        path.note(&self.is_some());
        if let Some(x) = self {
            x.visit(path, f);
        }
    }

    fn map(&self, f: &mut dyn FnMut(&Tensor) -> Tensor) -> Option<T> {
        self.as_ref().map(|x| x.map(f))
    }
}

impl<T: Tree> Tree for Box<T> {
    fn visit(&self, path: &mut Path, f: &mut dyn FnMut(&Path, &Tensor)) {
        (**self).visit(path, f);
    }

    fn map(&self, f: &mut dyn FnMut(&Tensor) -> Tensor) -> Box<T> {
        Box::new((**self).map(f))
    }
}

impl<K: Clone + Ord + fmt::Display, T: Tree> Tree for BTreeMap<K, T> {
    fn visit(&self, path: &mut Path, f: &mut dyn FnMut(&Path, &Tensor)) {
        for (key, x) in self {
            path.scope(&key.to_string(), |path| x.visit(path, f));
        }
    }

    fn map(&self, f: &mut dyn FnMut(&Tensor) -> Tensor) -> BTreeMap<K, T> {
        self.iter().map(|(key, x)| (key.clone(), x.map(f))).collect()
    }
}

/// In the order of the keys, so that the order of leaves does not depend on the hasher.
impl<K: Clone + Ord + Hash + fmt::Display, T: Tree, S: BuildHasher + Default> Tree
    for HashMap<K, T, S>
{
    fn visit(&self, path: &mut Path, f: &mut dyn FnMut(&Path, &Tensor)) {
        let mut entries: Vec<_> = self.iter().collect();
        entries.sort_by(|a, b| a.0.cmp(b.0));
        for (key, x) in entries {
            path.scope(&key.to_string(), |path| x.visit(path, f));
        }
    }

    fn map(&self, f: &mut dyn FnMut(&Tensor) -> Tensor) -> HashMap<K, T, S> {
        let mut entries: Vec<_> = self.iter().collect();
        entries.sort_by(|a, b| a.0.cmp(b.0));
        entries.into_iter().map(|(key, x)| (key.clone(), x.map(f))).collect()
    }
}

macro_rules! tuples {
    ($($name:ident $i:tt),*) => {
        impl<$($name: Tree),*> Tree for ($($name,)*) {
            fn visit(&self, path: &mut Path, f: &mut dyn FnMut(&Path, &Tensor)) {
                $(path.scope(stringify!($i), |path| self.$i.visit(path, f));)*
            }

            fn map(&self, f: &mut dyn FnMut(&Tensor) -> Tensor) -> Self {
                ($(self.$i.map(f),)*)
            }
        }
    };
}

tuples!(A 0);
tuples!(A 0, B 1);
tuples!(A 0, B 1, C 2);
tuples!(A 0, B 1, C 2, D 3);
tuples!(A 0, B 1, C 2, D 3, E 4);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);

macro_rules! plain {
    ($($type:ty)*) => {$(
        /// A plain value: no tensors in it.
        impl Tree for $type {
            fn visit(&self, path: &mut Path, _: &mut dyn FnMut(&Path, &Tensor)) {
                path.note(self);
            }

            fn map(&self, _: &mut dyn FnMut(&Tensor) -> Tensor) -> Self {
                self.clone()
            }
        }
    )*};
}

plain!(() bool char u8 u16 u32 u64 usize i8 i16 i32 i64 isize f32 f64 String &'static str crate::DType);
