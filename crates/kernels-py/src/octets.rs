//! The bytes of a call where they lie, without a copy.

use std::cell::Cell;

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Below so many bytes, letting go of the GIL and taking it again costs more than the work itself.
const LET_GO_BYTES_MIN: usize = 64 * 1024;

/// What holds the bytes of a call: a Python `bytes`, which nobody can change, or any other contiguous buffer.
pub(crate) enum Octets<'py> {
    Fixed(&'py [u8]),
    Exported(PyUntypedBuffer),
}

impl<'py> Octets<'py> {
    /// Of a buffer of bytes; BufferError for one of other items.
    pub(crate) fn of(object: &'py Bound<'_, PyAny>) -> PyResult<Self> {
        let octets = Self::contiguous(object)?;
        if let Self::Exported(buffer) = &octets {
            buffer.as_typed::<u8>()?;
        }
        Ok(octets)
    }

    /// Of a buffer of bytes or of items of this size, as structured arrays have them; ValueError for others.
    pub(crate) fn of_items(
        object: &'py Bound<'_, PyAny>,
        item_bytes: usize,
        name: &str,
    ) -> PyResult<Self> {
        let octets = Self::contiguous(object)?;
        if let Self::Exported(buffer) = &octets {
            let size = buffer.item_size();
            if size != 1 && size != item_bytes {
                let message = format!("{name} are numbers of {item_bytes} bytes, not {size}");
                return Err(PyValueError::new_err(message));
            }
        }
        Ok(octets)
    }

    fn contiguous(object: &'py Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Self::Fixed(bytes.as_bytes()));
        }
        let buffer = PyUntypedBuffer::get(object)?;
        if !buffer.is_c_contiguous() {
            return Err(PyBufferError::new_err("the buffer must be contiguous"));
        }
        Ok(Self::Exported(buffer))
    }

    #[allow(unsafe_code)]
    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Fixed(bytes) => bytes,
            Self::Exported(buffer) if buffer.len_bytes() == 0 => &[],
            // SAFETY: the export keeps the memory in place and alive as long as `self`; it is contiguous (checked above) and
            // holds `len_bytes` initialised bytes. `run` keeps the GIL while it is looked at, so no Python code writes to
            // it; that nothing else does is the documented contract of the callers ("not written to while a call runs").
            Self::Exported(buffer) => unsafe {
                std::slice::from_raw_parts(buffer.buf_ptr().cast::<u8>(), buffer.len_bytes())
            },
        }
    }

    /// The bytes, to be written to; BufferError where that is not allowed.
    #[allow(unsafe_code)]
    pub(crate) fn as_cells(&self, name: &str) -> PyResult<&[Cell<u8>]> {
        match self {
            Self::Exported(buffer) if !buffer.readonly() && buffer.item_size() == 1 => {
                let (first, size) = (buffer.buf_ptr().cast::<Cell<u8>>(), buffer.len_bytes());
                if size == 0 {
                    return Ok(&[]);
                }
                // SAFETY: as in `as_slice`; the exporter lets its bytes be written, and cells share them with whoever
                // else looks at them in this thread.
                Ok(unsafe { std::slice::from_raw_parts(first, size) })
            }
            _ => {
                Err(PyBufferError::new_err(format!("{name}: bytes to be written to are asked for")))
            }
        }
    }

    /// Whether the bytes cannot be changed.
    pub(crate) fn is_fixed(&self) -> bool {
        matches!(self, Self::Fixed(_))
    }

    /// Runs `work` on the bytes, without the GIL when they are many and nobody can change them.
    pub(crate) fn run<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&[u8]) -> T + Send) -> T {
        match self {
            Self::Fixed(bytes) if bytes.len() >= LET_GO_BYTES_MIN => py.detach(|| work(bytes)),
            _ => work(self.as_slice()),
        }
    }
}
