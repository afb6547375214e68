//! `Leases`: columns in, columns out.

use outrider_kernels::leases as kernel;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::columns::{
    bytes_of, column, instant, now_and_most, number, octets, rows, same_length, tuple_of,
};
use crate::spans_of;

#[pyclass(module = "outrider._native")]
pub(crate) struct Leases {
    kernel: kernel::Leases,
}

#[derive(Default)]
struct LeaseColumns {
    found: Vec<u8>,
    queues: Vec<u8>,
    deadlines: Vec<u8>,
    holders: Vec<u8>,
    not_before: Vec<u8>,
    heads: Vec<u8>,
    arena: Vec<u8>,
    offsets: Vec<u8>,
}

impl LeaseColumns {
    fn with_room_for(leases: usize, bodies: bool) -> Self {
        let room = |bytes| Vec::with_capacity(bytes * leases);
        Self {
            found: room(1),
            queues: room(4),
            deadlines: room(8),
            holders: room(4),
            not_before: room(8),
            heads: room(kernel::HEAD_BYTES),
            arena: room(if bodies { 96 } else { 0 }),
            offsets: {
                let mut offsets = room(8);
                offsets.extend_from_slice(&0_i64.to_le_bytes());
                offsets
            },
        }
    }

    fn push(&mut self, lease: Option<&kernel::Lease>, bodies: bool) {
        self.found.push(u8::from(lease.is_some()));
        let none = kernel::Lease::default();
        let said = lease.unwrap_or(&none);
        self.queues.extend_from_slice(&said.queue.to_le_bytes());
        self.deadlines.extend_from_slice(&said.deadline.to_le_bytes());
        self.holders.extend_from_slice(&said.holder.to_le_bytes());
        self.not_before.extend_from_slice(&said.not_before.to_le_bytes());
        match lease {
            Some(lease) => {
                self.heads.extend_from_slice(lease.head());
                if bodies {
                    self.arena.extend_from_slice(lease.body());
                }
            }
            None => self.heads.extend_from_slice(&[0; kernel::HEAD_BYTES]),
        }
        self.offsets.extend_from_slice(&(self.arena.len() as i64).to_le_bytes());
    }

    fn bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        tuple_of(
            py,
            [
                &self.found,
                &self.queues,
                &self.deadlines,
                &self.holders,
                &self.not_before,
                &self.heads,
                &self.arena,
                &self.offsets,
            ],
        )
    }
}

#[pymethods]
impl Leases {
    #[new]
    fn new() -> Self {
        Self { kernel: kernel::Leases::default() }
    }

    #[allow(clippy::too_many_arguments)]
    fn open(
        &mut self,
        first_token: &Bound<'_, PyAny>,
        queues: &Bound<'_, PyAny>,
        deadline: &Bound<'_, PyAny>,
        holder: &Bound<'_, PyAny>,
        not_before: &Bound<'_, PyAny>,
        heads: &Bound<'_, PyAny>,
        arena: &Bound<'_, PyAny>,
        offsets: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let first = number::<u64>(first_token, "u64", "first_token")?;
        let queues = rows(queues, "queues")?;
        let deadline = instant(deadline, "deadline")?;
        let holder = number::<u32>(holder, "u32", "holder")?;
        let not_before = column::<i64>(not_before, "not_before")?;
        let heads = octets(heads, kernel::HEAD_BYTES, "heads")?;
        let arena = octets(arena, 1, "arena")?;
        let offsets = column::<i64>(offsets, "offsets")?;
        let count = queues.len();
        same_length(("queues", count), ("not_before", not_before.len()))?;
        same_length(("queues", count), ("heads", heads.len() / kernel::HEAD_BYTES))?;
        if offsets.len() != count + 1 {
            let message =
                format!("{count} queues take {} offsets, not {}", count + 1, offsets.len());
            return Err(PyValueError::new_err(message));
        }
        let spans = spans_of(&offsets[..count], &offsets[1..], arena.len())?;
        if count == 0 {
            return Ok(());
        }
        let last = first.checked_add(count as u64 - 1).filter(|_| first != 0).ok_or_else(|| {
            PyValueError::new_err(format!("{count} tokens from {first} on are not all u64 above 0"))
        })?;
        if let Some(token) = self.kernel.first_open(first..=last) {
            return Err(PyValueError::new_err(format!("token {token} is open already")));
        }
        for (row, (&queue, (start, end))) in queues.iter().zip(spans).enumerate() {
            let head = &heads[row * kernel::HEAD_BYTES..(row + 1) * kernel::HEAD_BYTES];
            self.kernel.open(
                first + row as u64,
                (queue, holder),
                (deadline, not_before[row]),
                (head, &arena[start..end]),
            );
        }
        Ok(())
    }

    fn find<'py>(&self, tokens: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let asked = column::<u64>(tokens, "tokens")?;
        let found = asked.into_iter().map(|token| [u8::from(self.kernel.get(token).is_some())]);
        Ok(bytes_of(tokens.py(), found))
    }

    #[pyo3(signature = (tokens, bodies = true))]
    fn get<'py>(&self, tokens: &Bound<'py, PyAny>, bodies: bool) -> PyResult<Bound<'py, PyTuple>> {
        let asked = column::<u64>(tokens, "tokens")?;
        let mut columns = LeaseColumns::with_room_for(asked.len(), bodies);
        for token in asked {
            columns.push(self.kernel.get(token), bodies);
        }
        columns.bytes(tokens.py())
    }

    fn close<'py>(&mut self, tokens: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
        let asked = column::<u64>(tokens, "tokens")?;
        let mut columns = LeaseColumns::with_room_for(asked.len(), true);
        for token in asked {
            columns.push(self.kernel.close(token).as_ref(), true);
        }
        columns.bytes(tokens.py())
    }

    fn end<'py>(&mut self, tokens: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
        let asked = column::<u64>(tokens, "tokens")?;
        let mut found = Vec::with_capacity(asked.len());
        let mut queues = Vec::with_capacity(4 * asked.len());
        for token in asked {
            let lease = self.kernel.close(token);
            found.push(u8::from(lease.is_some()));
            queues.extend_from_slice(&lease.map_or(0, |lease| lease.queue).to_le_bytes());
        }
        tuple_of(tokens.py(), [&found, &queues])
    }

    fn extend<'py>(
        &mut self,
        tokens: &Bound<'py, PyAny>,
        deadline: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let asked = column::<u64>(tokens, "tokens")?;
        let deadline = instant(deadline, "deadline")?;
        let found = asked.into_iter().map(|token| [u8::from(self.kernel.extend(token, deadline))]);
        Ok(bytes_of(tokens.py(), found))
    }

    fn expire<'py>(
        &self,
        py: Python<'py>,
        now: &Bound<'py, PyAny>,
        most: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (now, most) = now_and_most(now, most)?;
        Ok(bytes_of(py, self.kernel.expired(now).take(most).map(u64::to_le_bytes)))
    }

    fn next(&self) -> i64 {
        self.kernel.next().unwrap_or(-1)
    }

    fn find_urls<'py>(&self, fingerprints: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let asked = column::<u64>(fingerprints, "fingerprints")?;
        let found = asked.into_iter().map(|print| self.kernel.of_url(print).unwrap_or(0));
        Ok(bytes_of(fingerprints.py(), found.map(u64::to_le_bytes)))
    }

    fn tokens<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        bytes_of(py, self.kernel.tokens().map(u64::to_le_bytes))
    }

    fn of_holder<'py>(&self, holder: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let tokens = self.kernel.of_holder(number(holder, "u32", "holder")?);
        Ok(bytes_of(holder.py(), tokens.into_iter().map(u64::to_le_bytes)))
    }

    fn __len__(&self) -> usize {
        self.kernel.len()
    }
}
