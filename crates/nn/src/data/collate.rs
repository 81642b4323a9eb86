//! How items become a batch.

use pullback::{Error, Result, Tensor, Tree, bf16, catch, f16, stack};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;
use std::hash::{BuildHasher, Hash};

/// Items that can be collated into a batch.
///
/// Tensors of the same shape are stacked along a new first axis, and numbers become a tensor of one
/// axis; tuples, arrays, vectors and maps are collated part by part; strings stay a list. A struct
/// with `#[derive(Tree)]` implements it in one line, with [`collate_trees`]:
///
/// ```
/// use pullback::{Result, Tensor, Tree};
/// use pullback_nn::data::{Collate, collate_trees};
///
/// #[derive(Tree)]
/// struct Sample {
///     image: Tensor,
///     label: Tensor,
/// }
///
/// impl Collate for Sample {
///     type Batch = Sample;
///     fn collate(items: Vec<Sample>) -> Result<Sample> {
///         collate_trees(items)
///     }
/// }
///
/// let sample = |i: i64| Sample { image: Tensor::zeros([3, 3]), label: Tensor::from(i) };
/// let batch = Sample::collate(vec![sample(0), sample(1)])?;
/// assert_eq!(batch.image.shape(), [2, 3, 3]);
/// assert_eq!(batch.label.to_vec::<i64>(), [0, 1]);
/// # Ok::<(), pullback::Error>(())
/// ```
pub trait Collate: Sized {
    /// What a batch of them is.
    type Batch: Send + 'static;

    /// Makes a batch of the items.
    ///
    /// ```
    /// use pullback::Tensor;
    /// use pullback_nn::data::Collate;
    /// let (x, y) = Collate::collate(vec![(Tensor::zeros([3]), 7i64), (Tensor::ones([3]), 8)])?;
    /// assert_eq!((x.shape(), y.to_vec::<i64>()), (&[2, 3][..], vec![7, 8]));
    /// // Sequences of several lengths need `pad_sequences`.
    /// assert!(Tensor::collate(vec![Tensor::zeros([3]), Tensor::zeros([4])]).is_err());
    /// # Ok::<(), pullback::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the items do not fit together (other shapes, dtypes, lengths or keys); the message names
    /// the item.
    fn collate(items: Vec<Self>) -> Result<Self::Batch>;
}

/// An item that does not fit to those before it.
fn misfit(what: impl Display) -> Error {
    Error::shape("collate", what.to_string())
}

/// What makes items fit that do not: sequences of several lengths are padded, images of several
/// sizes resized, grey images among RGB ones repeated along the channels.
fn advice(first: &Tensor, other: &Tensor) -> Option<&'static str> {
    let (a, b) = (first.shape(), other.shape());
    if a == b {
        return Some("cast the items of the dataset to one dtype with `.cast(..)`");
    }
    if a.len() != b.len() || a.is_empty() {
        return None;
    }
    if a.len() <= 2 && a[1..] == b[1..] {
        return Some(
            "`DataLoader::with_collate_fn(data, pad_sequences(0))` pads sequences to one length",
        );
    }
    if a.len() == 2 && a[0] == b[0] {
        return Some(
            "if the items are sequences `[features, time]`, transpose them with \
             `data.map(|x| Ok(x.t()))`: `pad_sequences(0)` pads the first axis; if they are images, \
             resize or crop them",
        );
    }
    // The last two axes of an image are its height and width.
    if a[a.len() - 2..] != b[b.len() - 2..] {
        return Some(
            "give images one size before they are batched, with a transform: \
             `transforms::Resize::new((height, width))`, or a crop",
        );
    }
    match (a, b) {
        ([1, ..], [3, ..]) | ([3, ..], [1, ..]) if a.len() == 3 => Some(
            "give images the same channels: a grey image `[1, height, width]` becomes RGB by \
             `x.expand([3, -1, -1])`, in a `map` of the dataset",
        ),
        _ => None,
    }
}

fn nothing() -> Error {
    Error::argument("collate", "there are no items to make a batch of")
}

impl Collate for Tensor {
    type Batch = Tensor;

    fn collate(items: Vec<Tensor>) -> Result<Tensor> {
        let first = items.first().ok_or_else(nothing)?;
        for (i, x) in items.iter().enumerate() {
            if x.shape() != first.shape() || x.dtype() != first.dtype() {
                let (a, b) = (x.spec(), first.spec());
                let error = misfit(format!("item {i} of the batch is {a}, but item 0 is {b}"));
                return Err(match advice(first, x) {
                    Some(advice) => error.hint(advice),
                    None => error,
                });
            }
        }
        match &items[..] {
            // Not a view: a batch is the user's to write to.
            [one] => catch(|| one.unsqueeze(0).deep_clone()),
            _ => catch(|| stack(&items.iter().collect::<Vec<_>>(), 0)),
        }
    }
}

macro_rules! numbers {
    ($($type:ty as $as:ty),*) => {$(
        impl Collate for $type {
            type Batch = Tensor;

            fn collate(items: Vec<$type>) -> Result<Tensor> {
                Ok(Tensor::from(items.into_iter().map(|x| x as $as).collect::<Vec<$as>>()))
            }
        }
    )*};
}

// Integers that tensors do not have go to the smallest that holds them.
numbers!(
    f64 as f64,
    f32 as f32,
    bf16 as bf16,
    f16 as f16,
    i64 as i64,
    i32 as i32,
    u8 as u8,
    bool as bool
);
numbers!(i8 as i32, i16 as i32, u16 as i32, u32 as i64);

/// A class or an index: `i64`.
impl Collate for usize {
    type Batch = Tensor;

    fn collate(items: Vec<usize>) -> Result<Tensor> {
        let mut out = Vec::with_capacity(items.len());
        for (i, x) in items.into_iter().enumerate() {
            let x = i64::try_from(x);
            out.push(
                x.map_err(|_| misfit(format!("item {i} of the batch exceeds the range of i64")))?,
            );
        }
        Ok(Tensor::from(out))
    }
}

impl Collate for String {
    type Batch = Vec<String>;

    fn collate(items: Vec<String>) -> Result<Vec<String>> {
        Ok(items)
    }
}

impl<T: Collate> Collate for Vec<T> {
    type Batch = Vec<T::Batch>;

    fn collate(items: Vec<Vec<T>>) -> Result<Vec<T::Batch>> {
        let parts = items.first().ok_or_else(nothing)?.len();
        let mut columns: Vec<Vec<T>> =
            (0..parts).map(|_| Vec::with_capacity(items.len())).collect();
        for (i, item) in items.into_iter().enumerate() {
            if item.len() != parts {
                let n = item.len();
                return Err(misfit(format!(
                    "item {i} of the batch has {n} parts, but item 0 has {parts}"
                )));
            }
            columns.iter_mut().zip(item).for_each(|(column, part)| column.push(part));
        }
        let columns = columns.into_iter().enumerate();
        columns.map(|(i, column)| named(&i, T::collate(column))).collect()
    }
}

impl<T: Collate, const N: usize> Collate for [T; N] {
    type Batch = [T::Batch; N];

    fn collate(items: Vec<[T; N]>) -> Result<[T::Batch; N]> {
        if items.is_empty() {
            return Err(nothing());
        }
        let parts = Vec::<T>::collate(items.into_iter().map(Vec::from).collect())?;
        parts.try_into().map_err(|_| misfit("an array lost a part"))
    }
}

impl<K, T> Collate for BTreeMap<K, T>
where
    K: Ord + Display + Send + 'static,
    T: Collate,
{
    type Batch = BTreeMap<K, T::Batch>;

    fn collate(items: Vec<BTreeMap<K, T>>) -> Result<Self::Batch> {
        let (keys, columns) = columns(items)?;
        let mut batch = BTreeMap::new();
        for (key, column) in keys.into_iter().zip(columns) {
            let part = named(&key, T::collate(column))?;
            batch.insert(key, part);
        }
        Ok(batch)
    }
}

impl<K, T, S> Collate for HashMap<K, T, S>
where
    K: Ord + Hash + Display + Send + 'static,
    T: Collate,
    S: BuildHasher + Default + Send + 'static,
{
    type Batch = HashMap<K, T::Batch, S>;

    fn collate(items: Vec<HashMap<K, T, S>>) -> Result<Self::Batch> {
        let sorted: Vec<BTreeMap<K, T>> = items.into_iter().map(BTreeMap::from_iter).collect();
        Ok(BTreeMap::collate(sorted)?.into_iter().collect())
    }
}

/// The values of maps with the same keys, by key.
#[allow(clippy::type_complexity)]
fn columns<K: Ord + Display, T>(items: Vec<BTreeMap<K, T>>) -> Result<(Vec<K>, Vec<Vec<T>>)> {
    let count = items.len();
    let mut items = items.into_iter();
    let first = items.next().ok_or_else(nothing)?;
    let (keys, mut columns): (Vec<K>, Vec<Vec<T>>) = first
        .into_iter()
        .map(|(key, value)| {
            let mut column = Vec::with_capacity(count);
            column.push(value);
            (key, column)
        })
        .unzip();
    for (i, item) in items.enumerate() {
        let i = i + 1;
        if let Some(key) = keys.iter().find(|key| !item.contains_key(key)) {
            return Err(misfit(format!("item {i} of the batch has no `{key}`, but item 0 has")));
        }
        if let Some(key) = item.keys().find(|key| keys.binary_search(key).is_err()) {
            return Err(misfit(format!("item {i} of the batch has `{key}`, but item 0 has not")));
        }
        columns.iter_mut().zip(item.into_values()).for_each(|(column, value)| column.push(value));
    }
    Ok((keys, columns))
}

/// Says in which part of an item the error is.
fn named<T>(part: &dyn Display, result: Result<T>) -> Result<T> {
    result.map_err(|e| e.detail(format!("in part `{part}` of the items")))
}

macro_rules! tuples {
    ($($name:ident $i:tt),*) => {
        impl<$($name: Collate),*> Collate for ($($name,)*) {
            type Batch = ($($name::Batch,)*);

            fn collate(items: Vec<Self>) -> Result<Self::Batch> {
                let mut parts = ($(Vec::<$name>::with_capacity(items.len()),)*);
                for item in items {
                    $(parts.$i.push(item.$i);)*
                }
                Ok(($(named(&$i, $name::collate(parts.$i))?,)*))
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

/// Stacks trees of the same structure: each tensor along a new first axis. Values in them that are
/// not tensors must be equal.
///
/// ```
/// use pullback::Tensor;
/// use pullback_nn::data::collate_trees;
/// let item = |x: f32, y: i64| (Tensor::full([2], x), Tensor::from(y));
/// let (x, y) = collate_trees(vec![item(0.0, 3), item(1.0, 4)])?;
/// assert_eq!(x.to_vec::<f32>(), [0.0, 0.0, 1.0, 1.0]);
/// assert_eq!(y.to_vec::<i64>(), [3, 4]);
/// # Ok::<(), pullback::Error>(())
/// ```
///
/// # Errors
/// If there are no items, or the structures, shapes or dtypes differ; the message names the item
/// and the tensor.
pub fn collate_trees<T: Tree>(items: Vec<T>) -> Result<T> {
    let first = items.first().ok_or_else(nothing)?;
    let structure = first.structure();
    let names = first.named_leaves();
    let mut columns: Vec<Vec<Tensor>> = vec![Vec::with_capacity(items.len()); names.len()];
    for (i, item) in items.iter().enumerate() {
        if item.structure() != structure {
            return Err(misfit(format!("item {i} of the batch has another structure than item 0")));
        }
        columns.iter_mut().zip(item.leaves()).for_each(|(column, x)| column.push(x));
    }
    let columns = columns.into_iter().zip(&names);
    let leaves: Result<Vec<_>> =
        columns.map(|(column, (name, _))| named(name, Tensor::collate(column))).collect();
    Ok(first.with_leaves(&leaves?))
}
