//! Rows of a table by index, one by one or reduced in bags.
//!
//! Both are gathers and scatter-adds of rows. What the options do to the gradient alone (padding,
//! scaling by frequency) is written as a value plus a detached difference, so that every order and
//! both modes follow.

use crate::ops::cast::one_float;
use crate::{DType, Error, Tensor, cat, kinks, trace};

/// Options of an embedding: rows of a table `[rows, …]` by number.
///
/// ```
/// use pullback::{Embedding, Tensor};
/// let table = Tensor::from([[1.0, 2.0], [3.0, 4.0]]);
/// let y = Embedding::new().padding(0).of(&table, &Tensor::from([1i64, 0, 1]));
/// assert_eq!(y.to_vec::<f64>(), [3.0, 4.0, 1.0, 2.0, 3.0, 4.0]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Embedding {
    padding: Option<i64>,
    by_frequency: bool,
    max_norm: Option<(f64, f64)>,
}

impl Embedding {
    /// Without padding row, norm limit or scaling of gradients.
    ///
    /// ```
    /// use pullback::{Embedding, Tensor};
    /// let table = Tensor::from([[1.0, 2.0], [3.0, 4.0]]);
    /// let y = Embedding::new().of(&table, &Tensor::from([1i64, 0]));
    /// assert_eq!(y.to_vec::<f64>(), [3.0, 4.0, 1.0, 2.0]);
    /// ```
    #[must_use]
    pub fn new() -> Embedding {
        Embedding::default()
    }

    /// This row gets no gradient; a negative number counts from the end.
    ///
    /// ```
    /// use pullback::{Embedding, Tensor};
    /// let table = Tensor::from([[1.0], [3.0]]).requires_grad();
    /// let y = Embedding::new().padding(0).of(&table, &Tensor::from([1i64, 0, 1]));
    /// y.sum().backward().unwrap();
    /// assert_eq!(table.grad().unwrap().to_vec::<f64>(), [0.0, 2.0]);
    /// ```
    #[must_use]
    pub fn padding(mut self, row: i64) -> Embedding {
        self.padding = Some(row);
        self
    }

    /// The gradient of a row is divided by how often it is taken.
    ///
    /// ```
    /// use pullback::{Embedding, Tensor};
    /// let table = Tensor::from([[1.0], [3.0]]).requires_grad();
    /// let y = Embedding::new().scale_grad_by_freq(true).of(&table, &Tensor::from([1i64, 0, 1]));
    /// y.sum().backward().unwrap();
    /// assert_eq!(table.grad().unwrap().to_vec::<f64>(), [1.0, 1.0]);
    /// ```
    #[must_use]
    pub fn scale_grad_by_freq(mut self, yes: bool) -> Embedding {
        self.by_frequency = yes;
        self
    }

    /// Rows whose norm of order `p` is larger are taken as if the table held them scaled down to
    /// it. (The table itself is not written.)
    ///
    /// ```
    /// use pullback::{Embedding, Tensor};
    /// let table = Tensor::from([[3.0, 4.0], [0.3, 0.4]]);
    /// let y = Embedding::new().max_norm(1.0, 2.0).of(&table, &Tensor::from([0i64, 1]));
    /// assert!((y.norm_over(1).at(0).item::<f64>() - 1.0).abs() < 1e-6);
    /// assert_eq!(y.at(1).to_vec::<f64>(), [0.3, 0.4]);
    /// ```
    #[must_use]
    pub fn max_norm(mut self, limit: f64, p: f64) -> Embedding {
        self.max_norm = Some((limit, p));
        self
    }

    /// The rows, shaped as `rows` and then as a row.
    ///
    /// Derivative: dtable = dy added up at the rows, in a fixed order.
    ///
    /// ```
    /// use pullback::{Embedding, Tensor};
    /// let table = Tensor::zeros([10, 4]);
    /// let y = Embedding::new().of(&table, &Tensor::from([[1i64, 2, 3], [4, 5, 6]]));
    /// assert_eq!(y.shape(), [2, 3, 4]);
    /// ```
    ///
    /// # Panics
    /// If the numbers are not integers, or one is not a row of the table.
    #[track_caller]
    #[must_use]
    pub fn of(&self, table: &Tensor, rows: &Tensor) -> Tensor {
        let (flat, padding) = self.checked_rows("embedding", table, rows);
        let picked = self.pick(table, &flat, padding);
        picked.reshape([rows.shape(), &table.shape()[1..]].concat())
    }

    /// Flat row numbers that are in range, and the padding row.
    #[track_caller]
    fn checked_rows(
        &self,
        op: &'static str,
        table: &Tensor,
        rows: &Tensor,
    ) -> (Tensor, Option<i64>) {
        let n = table.shape().first().copied().unwrap_or(0) as i64;
        let on = [table.spec(), rows.spec()];
        let error = if table.rank() == 0 {
            Error::shape(op, format!("takes a table [rows, …], not {}", table.spec()))
        } else if rows.dtype().is_float() || rows.dtype() == DType::Bool {
            Error::dtype(op, format!("row numbers must be integers, not {}", rows.dtype()))
        } else if let Some(p) = self.padding.filter(|p| !(-n..n).contains(p)) {
            Error::argument(
                op,
                format!("the padding {p} is not one of the {n} rows of {}", table.spec()),
            )
        } else {
            let flat = rows.detach().cast(DType::I64).reshape([rows.len()]);
            if !trace::on_host(&flat) {
                // Checked when the program runs: negative indices, which the kernel would count
                // from the end, are moved out of range.
                let strict = flat.lt(0).select(flat.new_tensor(n), &flat);
                return (strict, self.padding.map(|p| p.rem_euclid(n.max(1))));
            }
            match flat.to_vec::<i64>().iter().find(|i| !(0..n).contains(i)) {
                Some(i) => Error::argument(
                    op,
                    format!("{i} is not one of the {n} rows of {}", table.spec()),
                ),
                None => return (flat, self.padding.map(|p| p.rem_euclid(n.max(1)))),
            }
        };
        table.checked(Err(error.on(on)))
    }

    /// The rows `[k, …]` with what the options do to their gradients.
    #[track_caller]
    fn pick(&self, table: &Tensor, rows: &Tensor, padding: Option<i64>) -> Tensor {
        let mut picked = table.index_select(0, rows);
        let column =
            |x: &Tensor| x.reshape([&[rows.len()][..], &vec![1; table.rank() - 1]].concat());
        if let Some((limit, p)) = self.max_norm {
            let flat = picked.detach().reshape([rows.len(), table.shape()[1..].iter().product()]);
            let norm = flat.vector_norm(p, 1);
            let factor = norm.gt(limit).select(limit / (&norm + 1e-7), norm.ones_like_splat());
            let scaled = picked.detach() * column(&factor);
            picked = &picked + (scaled - picked.detach());
        }
        if self.by_frequency {
            let ones = picked.new_ones([rows.len()]);
            let counts = picked.new_zeros([table.shape()[0]]).scatter_add(0, rows, &ones);
            let share = &picked / column(&counts.gather(0, rows));
            picked = &share + (&picked - &share).detach();
        }
        match padding {
            Some(p) => column(&rows.eq(p)).select(picked.detach(), &picked),
            None => picked,
        }
    }
}

/// What [`EmbeddingBag`] makes of the rows of a bag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BagMode {
    /// Their sum.
    Sum,
    /// Their mean.
    #[default]
    Mean,
    /// The largest of each column. Of rows that tie, the first has the gradient.
    Max,
}

/// Options of an embedding of bags: rows of a table `[rows, columns]` by number, put together bag
/// by bag. An empty bag is zeros.
///
/// ```
/// use pullback::{BagMode, EmbeddingBag, Tensor};
/// let table = Tensor::from([[1.0, 2.0], [3.0, 4.0]]);
/// let rows = Tensor::from([1i64, 0, 1]);
/// let y = EmbeddingBag::new(BagMode::Sum).offsets(&Tensor::from([0i64, 1])).of(&table, &rows);
/// assert_eq!(y.to_vec::<f64>(), [3.0, 4.0, 4.0, 6.0]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct EmbeddingBag {
    mode: BagMode,
    rows: Embedding,
    offsets: Option<Tensor>,
    includes_end: bool,
    weights: Option<Tensor>,
}

impl EmbeddingBag {
    /// An embedding of bags with this reduction.
    ///
    /// ```
    /// use pullback::{BagMode, EmbeddingBag, Tensor};
    /// let table = Tensor::from([[1.0], [3.0]]);
    /// let y = EmbeddingBag::new(BagMode::Mean).of(&table, &Tensor::from([[0i64, 1], [1, 1]]));
    /// assert_eq!(y.to_vec::<f64>(), [2.0, 3.0]);
    /// ```
    #[must_use]
    pub fn new(mode: BagMode) -> EmbeddingBag {
        EmbeddingBag { mode, ..EmbeddingBag::default() }
    }

    /// The options that concern single rows. The padding row is left out of its bags.
    ///
    /// ```
    /// use pullback::{BagMode, Embedding, EmbeddingBag, Tensor};
    /// let table = Tensor::from([[1.0], [3.0]]);
    /// let bags = EmbeddingBag::new(BagMode::Mean).rows(Embedding::new().padding(0));
    /// assert_eq!(bags.of(&table, &Tensor::from([[0i64, 1]])).to_vec::<f64>(), [3.0]);
    /// ```
    #[must_use]
    pub fn rows(mut self, rows: Embedding) -> EmbeddingBag {
        self.rows = rows;
        self
    }

    /// Where each bag starts in a vector of row numbers.
    ///
    /// ```
    /// use pullback::{BagMode, EmbeddingBag, Tensor};
    /// let table = Tensor::from([[1.0], [3.0]]);
    /// // Bags of one row and of two rows.
    /// let bags = EmbeddingBag::new(BagMode::Sum).offsets(&Tensor::from([0i64, 1]));
    /// assert_eq!(bags.of(&table, &Tensor::from([1i64, 0, 1])).to_vec::<f64>(), [3.0, 4.0]);
    /// ```
    #[must_use]
    pub fn offsets(mut self, offsets: &Tensor) -> EmbeddingBag {
        self.offsets = Some(offsets.clone());
        self
    }

    /// The last offset is the end of the last bag.
    ///
    /// ```
    /// use pullback::{BagMode, EmbeddingBag, Tensor};
    /// let table = Tensor::from([[1.0], [3.0]]);
    /// let bags = EmbeddingBag::new(BagMode::Sum).offsets(&Tensor::from([0i64, 1, 3]));
    /// let y = bags.include_last_offset(true).of(&table, &Tensor::from([1i64, 0, 1]));
    /// assert_eq!(y.to_vec::<f64>(), [3.0, 4.0]);
    /// ```
    #[must_use]
    pub fn include_last_offset(mut self, yes: bool) -> EmbeddingBag {
        self.includes_end = yes;
        self
    }

    /// A weight for each row of the bags; for sums alone.
    ///
    /// ```
    /// use pullback::{BagMode, EmbeddingBag, Tensor};
    /// let table = Tensor::from([[1.0], [3.0]]);
    /// let bags = EmbeddingBag::new(BagMode::Sum).weights(&Tensor::from([[0.5, 2.0]]));
    /// assert_eq!(bags.of(&table, &Tensor::from([[0i64, 1]])).to_vec::<f64>(), [6.5]);
    /// ```
    #[must_use]
    pub fn weights(mut self, weights: &Tensor) -> EmbeddingBag {
        self.weights = Some(weights.clone());
        self
    }

    /// The bags `[bags, columns]`: of row numbers `[bags, k]`, or a vector with offsets.
    ///
    /// Derivative: dtable = dy of its bag added up at each row: times its weight, over the size of
    /// the bag, or where it is the largest.
    ///
    /// ```
    /// use pullback::{BagMode, EmbeddingBag, Tensor};
    /// let table = Tensor::from([[1.0, 2.0], [3.0, 4.0]]);
    /// let y = EmbeddingBag::new(BagMode::Max).of(&table, &Tensor::from([[0i64, 1], [0, 0]]));
    /// assert_eq!(y.to_vec::<f64>(), [3.0, 4.0, 1.0, 2.0]);
    /// ```
    ///
    /// # Panics
    /// If numbers, offsets, weights and table do not fit each other.
    #[track_caller]
    #[must_use]
    pub fn of(&self, table: &Tensor, rows: &Tensor) -> Tensor {
        one_float("embedding_bag", [table].into_iter().chain(&self.weights));
        let (starts, bags) = table.checked(self.starts(table, rows));
        let (flat, padding) = self.rows.checked_rows("embedding_bag", table, rows);
        let columns = table.shape()[1];
        let mut picked = self.rows.pick(table, &flat, None);
        if let Some(weights) = &self.weights {
            picked *= weights.reshape([weights.len(), 1]);
        }
        if rows.rank() == 2 && padding.is_none() && !rows.is_empty() && self.mode != BagMode::Max {
            // Bags of one length are the rows of a block.
            let length = rows.shape()[1];
            let sums = picked.reshape([bags, length, columns]).sum_over(1);
            return match self.mode {
                BagMode::Mean => sums / length as f64,
                _ => sums,
            };
        }
        // The bag of each row. What is left out (padding, and what comes after the last bag) goes
        // to one more bag.
        let mut owner = starts.searchsorted(&flat.new_iota(flat.len()), true) - 1;
        if let Some(padding) = padding {
            owner = flat.eq(padding).select(bags as i64, &owner);
        }
        let ones = picked.new_ones([flat.len()]);
        let counts = picked.new_zeros([bags + 1]).scatter_add(0, &owner, &ones);
        let counts = counts.narrow(0, 0, bags).unsqueeze(-1);
        let zeros = picked.new_zeros([bags + 1, columns]);
        let y = match self.mode {
            BagMode::Sum => zeros.index_add(0, &owner, &picked).narrow(0, 0, bags).contiguous(),
            BagMode::Mean => {
                let sums = zeros.index_add(0, &owner, &picked).narrow(0, 0, bags);
                sums / counts.clamp_min(1.0)
            }
            BagMode::Max if picked.shape()[0] == 0 => picked.new_zeros([bags, columns]),
            BagMode::Max => {
                let wide = owner.unsqueeze(-1).expand(picked.shape());
                let (base, known) = (zeros.full_like(f64::NEG_INFINITY), picked.detach());
                let largest = base.scatter_max(0, &wide, &known);
                // The first row that is the largest of its bag; NaN is too, and equals nothing.
                let hit = known.eq(largest.gather(0, &wide)).logical_or(known.is_nan());
                kinks::at("embedding_bag", kinks::KinkKind::Bag, &[&picked], |_| {
                    let hits = known.eq(largest.gather(0, &wide)).cast(DType::I64);
                    picked
                        .new_zeros_with([bags + 1, columns], DType::I64)
                        .scatter_add(0, &wide, &hits)
                        .narrow(0, 0, bags)
                        .gt(1)
                });
                let last = flat.len() as i64 - 1;
                let marks = hit.select(flat.new_iota(flat.len()).unsqueeze(-1), last);
                let ends = picked.new_zeros_with([bags + 1, columns], DType::I64).full_like(last);
                let first = ends.scatter_min(0, &wide, &marks).narrow(0, 0, bags);
                let zeros = zeros.narrow(0, 0, bags);
                counts.eq(0.0).select(zeros, picked.gather(0, &first))
            }
        };
        match trace::on_host(&starts) {
            true => y,
            // Offsets that are wrong give NaN: they are known only when the program runs.
            false => self.risen(&starts, flat.len()).select(&y, f64::NAN),
        }
    }

    /// Whether offsets start at 0 and rise to at most the number of rows.
    fn risen(&self, starts: &Tensor, rows: usize) -> Tensor {
        let n = starts.len();
        let rising = starts.narrow(0, 1, n - 1).ge(starts.narrow(0, 0, n - 1)).all();
        let first = starts.select_at(0, 0).eq(0);
        rising.logical_and(first).logical_and(starts.select_at(0, -1).le(rows as i64))
    }

    /// Where each bag starts, and the end of the last one; and how many bags there are.
    #[track_caller]
    fn starts(&self, table: &Tensor, rows: &Tensor) -> crate::Result<(Tensor, usize)> {
        let op = "embedding_bag";
        let refuse =
            |message: String| Err(Error::argument(op, message).on([table.spec(), rows.spec()]));
        if table.rank() != 2 {
            let message = format!("takes a table [rows, columns], not {}", table.spec());
            return Err(Error::shape(op, message).on([table.spec(), rows.spec()]));
        }
        if let Some(w) = self.weights.as_ref().filter(|w| w.shape() != rows.shape()) {
            return refuse(format!(
                "the weights {} must have the shape of the rows {}",
                w.spec(),
                rows.spec()
            ));
        }
        if self.weights.is_some() && self.mode != BagMode::Sum {
            return refuse(format!("weights are for sums, not for {:?}", self.mode));
        }
        let offsets = match (rows.rank(), &self.offsets) {
            (2, None) => {
                let (bags, k) = (rows.shape()[0], rows.shape()[1]);
                return Ok((rows.new_iota(bags + 1) * k as i64, bags));
            }
            (1, Some(offsets)) => offsets,
            (2, Some(_)) => {
                return refuse("rows [bags, k] are bags already: give no offsets".into());
            }
            (1, None) => return refuse("a vector of rows requires offsets".into()),
            _ => return refuse(format!("takes rows [bags, k] or a vector, not {}", rows.spec())),
        };
        if offsets.rank() != 1 || offsets.dtype().is_float() || offsets.dtype() == DType::Bool {
            return refuse(format!("offsets are a vector of integers, not {}", offsets.spec()));
        }
        let bags = match self.includes_end {
            true => offsets.len().checked_sub(1),
            false => Some(offsets.len()),
        };
        let wrong = format!("offsets must start at 0 and rise to at most {}", rows.len());
        let Some(bags) = bags else { return refuse(wrong) };
        let mut starts = offsets.detach().cast(DType::I64);
        if !self.includes_end {
            starts = cat(&[&starts, &starts.new_tensor([rows.len() as i64])], 0);
        }
        if trace::on_host(&starts) && !self.risen(&starts, rows.len()).item::<bool>() {
            return refuse(wrong);
        }
        Ok((starts, bags))
    }
}
