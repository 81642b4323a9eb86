//! Reading values back.

use crate::memory::checkpoint;
use crate::{Error, Result, Tensor, fail, lock, mode, trace};
use pullback_cpu::HostElement;
use std::panic::Location;

impl Tensor {
    /// The elements in row-major order. The Rust type must be the dtype's: cast first otherwise.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// let x = Tensor::from([[1.0, 2.0], [3.0, 4.0]]);
    /// assert_eq!(x.t().to_vec::<f64>(), [1.0, 3.0, 2.0, 4.0]);
    /// ```
    ///
    /// # Panics
    /// If the dtype is another one.
    #[track_caller]
    #[must_use]
    pub fn to_vec<T: HostElement>(&self) -> Vec<T> {
        let at = mode::user_line(Location::caller());
        fail::or_raise(self.try_to_vec().map_err(|e| e.at(at)))
    }

    /// The elements in row-major order, or an error if the dtype is another one.
    ///
    /// # Errors
    /// If `T` is not the Rust type of the dtype.
    #[track_caller]
    pub fn try_to_vec<T: HostElement>(&self) -> Result<Vec<T>> {
        if T::DTYPE != self.dtype() {
            let message = format!("the elements are {}, not {}", self.dtype(), T::DTYPE);
            let hint =
                format!("read them as {}, or cast(DType::{:?}) first", self.dtype(), T::DTYPE);
            return Err(Error::dtype("to_vec", message).on([self.spec()]).hint(hint));
        }
        trace::check_readable(self, "to_vec")?;
        if checkpoint::is_watching() {
            checkpoint::note_reads(&[self], mode::user_line(Location::caller()));
        }
        let at = mode::user_line(Location::caller());
        let dense = || mode::speaking_for(at, || self.detach().contiguous());
        let dense = mode::set_recording(false, || trace::computing(dense));
        let read = lock::read(&[&dense], |inputs| {
            inputs[0].buffer.to_vec(dense.dtype(), dense.0.layout.offset, dense.len())
        });
        read.ok_or_else(|| {
            Error::argument("to_vec", "the memory is shorter than the tensor").on([self.spec()])
        })
    }

    /// The only element.
    ///
    /// ```
    /// # use pullback::Tensor;
    /// assert_eq!(Tensor::from([2.5f32]).item::<f32>(), 2.5);
    /// ```
    ///
    /// # Panics
    /// If there is not exactly one element, or the dtype is another one.
    #[track_caller]
    #[must_use]
    pub fn item<T: HostElement>(&self) -> T {
        let at = mode::user_line(Location::caller());
        fail::or_raise(self.try_item().map_err(|e| e.at(at)))
    }

    /// The only element, or an error if there is not exactly one.
    ///
    /// # Errors
    /// If there is not exactly one element, or the dtype is another one.
    #[track_caller]
    pub fn try_item<T: HostElement>(&self) -> Result<T> {
        match self.try_to_vec()?[..] {
            [value] => Ok(value),
            _ => {
                let message = format!("{} has {} elements, not one", self.spec(), self.len());
                Err(Error::shape("item", message).hint("use to_vec() for all of them"))
            }
        }
    }

    /// The elements as `f64`, whatever the dtype, in row-major order.
    #[track_caller]
    #[must_use]
    pub fn to_f64_vec(&self) -> Vec<f64> {
        fail::or_raise(trace::check_readable(self, "to_f64_vec"));
        if checkpoint::is_watching() {
            checkpoint::note_reads(&[self], mode::user_line(Location::caller()));
        }
        trace::computing(|| {
            let wide = mode::set_recording(false, || self.detach().cast(crate::DType::F64));
            fail::or_raise(wide.try_to_vec())
        })
    }
}
