//! Reading values back.

use crate::backend::{self, HostElement};
use crate::{DType, Error, Result, Tensor, events, fail, mode, trace};
use pullback_ir::Line;

impl Tensor {
    /// The elements in row-major order. The Rust type must be the dtype's: cast first otherwise.
    /// ([`Tensor::item`] converts.)
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([[1.0, 2.0], [3.0, 4.0]]);
    /// assert_eq!(x.t().to_vec::<f64>(), [1.0, 3.0, 2.0, 4.0]);
    /// ```
    ///
    /// # Panics
    /// If the dtype is another one.
    #[doc(alias = "tolist")]
    #[track_caller]
    #[must_use]
    #[doc(alias = "numpy")]
    pub fn to_vec<T: HostElement>(&self) -> Vec<T> {
        let at = mode::user_line(Line::caller());
        fail::or_raise(self.try_to_vec().map_err(|e| e.at(at)))
    }

    /// The elements in row-major order, or an error if the dtype is another one.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([1.0, 2.0]);
    /// assert_eq!(x.try_to_vec::<f64>().unwrap(), [1.0, 2.0]);
    /// assert!(x.try_to_vec::<f32>().is_err());
    /// ```
    ///
    /// # Errors
    /// If `T` is not the Rust type of the dtype.
    #[track_caller]
    pub fn try_to_vec<T: HostElement>(&self) -> Result<Vec<T>> {
        self.elements("to_vec", Line::caller())
    }

    fn elements<T: HostElement>(&self, op: &'static str, caller: Line) -> Result<Vec<T>> {
        if T::DTYPE != self.dtype() {
            let message = format!("the elements are {}, not {}", self.dtype(), T::DTYPE);
            let hint =
                format!("read them as {}, or cast(DType::{:?}) first", self.dtype(), T::DTYPE);
            return Err(Error::dtype(op, message).on([self.spec()]).hint(hint));
        }
        trace::check_readable(self, op)?;
        events::values_read(&[self], mode::user_line(caller));
        let at = mode::user_line(caller);
        let dense = || mode::with_line(at, || self.detach().contiguous());
        let dense = mode::set_recording(false, || trace::computing(dense));
        backend::to_vec(&dense)
    }

    /// The only element.
    ///
    /// A float of any dtype is read as any float type (the nearest value), an integer as any
    /// integer type it fits in, or as a float. A float is never read as an integer or a truth
    /// value: that would drop digits silently.
    ///
    /// ```
    /// # use pullback::{DType, Tensor};
    /// assert_eq!(Tensor::from([2.5f32]).item::<f32>(), 2.5);
    /// // Whatever dtype a loss was computed in, a log takes a number.
    /// assert_eq!(Tensor::from(2.5).cast(DType::BF16).item::<f64>(), 2.5);
    /// assert_eq!(Tensor::from([3i64, 4]).sum().item::<i32>(), 7);
    /// assert!(Tensor::from(2.5).try_item::<i64>().is_err());
    /// ```
    ///
    /// # Panics
    /// If there is not exactly one element, or the type does not hold elements of this dtype.
    #[track_caller]
    #[must_use]
    pub fn item<T: HostElement>(&self) -> T {
        let at = mode::user_line(Line::caller());
        fail::or_raise(self.try_item().map_err(|e| e.at(at)))
    }

    /// The only element, or an error if there is not exactly one.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([2.5]).try_item::<f64>().unwrap(), 2.5);
    /// assert!(Tensor::from([1.0, 2.0]).try_item::<f64>().is_err());
    /// ```
    ///
    /// # Errors
    /// If there is not exactly one element, or the type does not hold elements of this dtype.
    #[track_caller]
    pub fn try_item<T: HostElement>(&self) -> Result<T> {
        let caller = Line::caller();
        if self.len() != 1 {
            let message = format!("{} has {} elements, not one", self.spec(), self.len());
            return Err(Error::shape("item", message).hint("use to_vec() for all of them"));
        }
        let (from, to) = (self.dtype(), T::DTYPE);
        let widens = from != DType::Bool && (to.is_float() || !from.is_float());
        if from == to || to == DType::Bool || !widens {
            return Ok(self.elements("item", caller)?[0]);
        }
        trace::check_readable(self, "item")?;
        events::values_read(&[self], mode::user_line(caller));
        let cast = |x: &Tensor, dtype| {
            mode::set_recording(false, || trace::computing(|| x.detach().cast(dtype)))
        };
        let value = cast(self, to);
        if !to.is_float() {
            let wide: Vec<i64> = cast(self, DType::I64).elements("item", caller)?;
            let back: Vec<i64> = cast(&value, DType::I64).elements("item", caller)?;
            if wide != back {
                let message = format!("{} does not fit {to}", wide[0]);
                return Err(Error::argument("item", message).on([self.spec()]));
            }
        }
        Ok(value.elements("item", caller)?[0])
    }

    /// The elements as `f64`, whatever the dtype, in row-major order.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([1, 2]).to_f64_vec(), [1.0, 2.0]);
    /// assert_eq!(Tensor::from([true, false]).to_f64_vec(), [1.0, 0.0]);
    /// ```
    ///
    /// # Panics
    /// While a function is traced (`jit`, `vmap`), where values are not known.
    #[track_caller]
    #[must_use]
    pub fn to_f64_vec(&self) -> Vec<f64> {
        fail::or_raise(trace::check_readable(self, "to_f64_vec"));
        events::values_read(&[self], mode::user_line(Line::caller()));
        trace::computing(|| {
            let wide = mode::set_recording(false, || self.detach().cast(DType::F64));
            fail::or_raise(wide.try_to_vec())
        })
    }
}
