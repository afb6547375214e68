//! Numbers that a caller hands over as a buffer; copied, so that a kernel may work on them without the GIL.

use pyo3::buffer::{Element, PyBuffer};
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;

/// An unsigned number that kernels take by the batch.
pub trait Number: Element {
    /// The number of these bytes, as many as it is wide.
    fn of_le(bytes: &[u8]) -> Self;
}

macro_rules! number {
    ($($kind:ty),*) => {$(
        impl Number for $kind {
            fn of_le(bytes: &[u8]) -> Self {
                let mut octets = [0; size_of::<Self>()];
                octets.copy_from_slice(bytes);
                Self::from_le_bytes(octets)
            }
        }
    )*};
}
number!(u16, u32, u64);

/// The numbers of a buffer of that type, as numpy has them, or of bytes in little-endian order.
pub fn numbers_of<T: Number>(object: &Bound<'_, PyAny>) -> PyResult<Vec<T>> {
    let (py, size) = (object.py(), size_of::<T>());
    if let Ok(buffer) = PyBuffer::<T>::get(object) {
        return buffer.to_vec(py);
    }
    let buffer = PyBuffer::<u8>::get(object).map_err(|error| {
        if error.is_instance_of::<PyBufferError>(py) {
            PyBufferError::new_err(format!("a buffer of u{} or of bytes is wanted", 8 * size))
        } else {
            error
        }
    })?;
    let octets = buffer.to_vec(py)?;
    if octets.len() % size != 0 {
        let message = format!("{} bytes are no whole number of u{}", octets.len(), 8 * size);
        return Err(PyValueError::new_err(message));
    }
    Ok(octets.chunks_exact(size).map(T::of_le).collect())
}
