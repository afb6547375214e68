//! `Backlog` behind Python's name; its contract is that of the twin in `src/outrider/kernels/backlog.py`.

use outrider_kernels::backlog::{Backlog as Kernel, Cards, Refusal};
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::octets::Octets;

/// So many cards take a millisecond or more to put; fewer cost others less than getting the GIL back may cost us.
const LET_GO_CARDS_MIN: usize = 4_096;

/// The cards of many queues, the best of each first.
#[pyclass(module = "outrider._native")]
#[derive(Default)]
pub struct Backlog(pub(crate) Kernel);

type CardColumns<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>);
type FoundColumns<'py> =
    (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>);

fn numbers<T, const SIZE: usize>(
    object: &Bound<'_, PyAny>,
    name: &str,
    read: fn([u8; SIZE]) -> T,
) -> PyResult<Vec<T>> {
    let column = Octets::of_items(object, SIZE, name)?;
    let octets = column.as_slice();
    if octets.len() % SIZE != 0 {
        let size = octets.len();
        let message = format!("{name} are numbers of {SIZE} bytes; {size} bytes are none");
        return Err(PyValueError::new_err(message));
    }
    let mut number = [0; SIZE];
    Ok(octets
        .chunks_exact(SIZE)
        .map(|chunk| {
            number.copy_from_slice(chunk);
            read(number)
        })
        .collect())
}

fn rows(queues: &Bound<'_, PyAny>) -> PyResult<Vec<u32>> {
    numbers(queues, "queues", u32::from_le_bytes)
}

fn count(number: i64, name: &str) -> PyResult<usize> {
    usize::try_from(number)
        .map_err(|_| PyValueError::new_err(format!("{name} is not negative, as {number} is")))
}

fn row(queue: i64) -> PyResult<u32> {
    u32::try_from(queue).map_err(|_| PyIndexError::new_err(format!("{queue} is no queue")))
}

pub(crate) fn refused(refusal: Refusal) -> PyErr {
    match refusal {
        Refusal::Row(message) => PyIndexError::new_err(message),
        Refusal::Value(message) => PyValueError::new_err(message),
    }
}

fn columns(py: Python<'_>, cards: Cards) -> CardColumns<'_> {
    (
        PyBytes::new(py, &cards.heads),
        PyBytes::new(py, &cards.arena),
        PyBytes::new(py, &cards.offsets),
    )
}

fn found_columns(py: Python<'_>, (found, cards): (Vec<u8>, Cards)) -> FoundColumns<'_> {
    let (heads, arena, offsets) = columns(py, cards);
    (PyBytes::new(py, &found), heads, arena, offsets)
}

#[pymethods]
impl Backlog {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    fn __len__(&self) -> usize {
        self.0.len() as usize
    }

    fn __repr__(&self) -> String {
        format!("<Backlog {} cards in {} queues>", self.0.len(), self.0.queues())
    }

    fn put(
        &mut self,
        py: Python<'_>,
        queues: &Bound<'_, PyAny>,
        heads: &Bound<'_, PyAny>,
        arena: &Bound<'_, PyAny>,
        offsets: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let queues = rows(queues)?;
        let heads = Octets::of_items(heads, 72, "heads")?;
        let arena = Octets::of_items(arena, 1, "arena")?;
        let offsets = numbers(offsets, "offsets", i64::from_le_bytes)?;
        let put = match (&heads, &arena) {
            // Bytes, which nobody can change: others may go on.
            (Octets::Fixed(heads), Octets::Fixed(arena)) if queues.len() >= LET_GO_CARDS_MIN => {
                py.detach(|| self.0.put(&queues, heads, arena, &offsets))
            }
            _ => self.0.put(&queues, heads.as_slice(), arena.as_slice(), &offsets),
        };
        put.map_err(refused)
    }

    fn take<'py>(&mut self, queues: &Bound<'py, PyAny>) -> PyResult<FoundColumns<'py>> {
        let taken = self.0.take(&rows(queues)?).map_err(refused)?;
        Ok(found_columns(queues.py(), taken))
    }

    fn remove<'py>(
        &mut self,
        queues: &Bound<'py, PyAny>,
        fingerprints: &Bound<'py, PyAny>,
    ) -> PyResult<FoundColumns<'py>> {
        let fingerprints = numbers(fingerprints, "fingerprints", u64::from_le_bytes)?;
        let removed = self.0.remove(&rows(queues)?, &fingerprints).map_err(refused)?;
        Ok(found_columns(queues.py(), removed))
    }

    fn best<'py>(&self, queues: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let best = self.0.best(&rows(queues)?).map_err(refused)?;
        Ok(PyBytes::new(queues.py(), &best))
    }

    fn best_keys<'py>(&self, queues: &Bound<'py, PyAny>) -> PyResult<CardColumns<'py>> {
        let keys = self.0.best_keys(&rows(queues)?).map_err(refused)?;
        let classes: Vec<u8> = keys.iter().map(|key| key.0).collect();
        let dues: Vec<u8> = keys.iter().flat_map(|key| key.1.to_le_bytes()).collect();
        let orders: Vec<u8> = keys.iter().flat_map(|key| key.2.to_le_bytes()).collect();
        let py = queues.py();
        Ok((PyBytes::new(py, &classes), PyBytes::new(py, &dues), PyBytes::new(py, &orders)))
    }

    fn waiting<'py>(&self, queues: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let counts = self.0.waiting(&rows(queues)?).map_err(refused)?;
        let octets: Vec<u8> = counts.into_iter().flat_map(u32::to_le_bytes).collect();
        Ok(PyBytes::new(queues.py(), &octets))
    }

    fn drain<'py>(&mut self, py: Python<'py>, queue: i64, most: i64) -> PyResult<CardColumns<'py>> {
        let cards = self.0.drain(row(queue)?, count(most, "most")?).map_err(refused)?;
        Ok(columns(py, cards))
    }

    fn peek<'py>(&self, py: Python<'py>, queue: i64, most: i64) -> PyResult<CardColumns<'py>> {
        let cards = self.0.peek(row(queue)?, count(most, "most")?).map_err(refused)?;
        Ok(columns(py, cards))
    }

    fn spill<'py>(&mut self, py: Python<'py>, queue: i64, keep: i64) -> PyResult<CardColumns<'py>> {
        let cards = self.0.spill(row(queue)?, count(keep, "keep")?).map_err(refused)?;
        Ok(columns(py, cards))
    }

    fn heads_over<'py>(&mut self, py: Python<'py>, most: i64) -> PyResult<Bound<'py, PyBytes>> {
        let over = self.0.heads_over(count(most, "most")?).map_err(refused)?;
        let octets: Vec<u8> = over.into_iter().flat_map(u32::to_le_bytes).collect();
        Ok(PyBytes::new(py, &octets))
    }

    fn longer_than<'py>(
        &self,
        py: Python<'py>,
        start: i64,
        rows: i64,
        most: i64,
    ) -> PyResult<(Bound<'py, PyBytes>, u32)> {
        let (start, rows, most) = (row(start)?, count(rows, "rows")?, count(most, "most")?);
        let (longer, next) = self.0.longer_than(start, rows, most);
        let octets: Vec<u8> = longer.into_iter().flat_map(u32::to_le_bytes).collect();
        Ok((PyBytes::new(py, &octets), next))
    }

    fn short<'py>(
        &self,
        py: Python<'py>,
        start: i64,
        rows: i64,
    ) -> PyResult<(Bound<'py, PyBytes>, u32)> {
        let (short, next) = self.0.short(row(start)?, count(rows, "rows")?);
        let octets: Vec<u8> = short.into_iter().flat_map(u32::to_le_bytes).collect();
        Ok((PyBytes::new(py, &octets), next))
    }

    fn whole<'py>(&self, queues: &Bound<'py, PyAny>) -> PyResult<FoundColumns<'py>> {
        let (counts, cards) = self.0.whole(&rows(queues)?).map_err(refused)?;
        let counts = counts.into_iter().flat_map(u32::to_le_bytes).collect();
        Ok(found_columns(queues.py(), (counts, cards)))
    }

    fn set_aside(&mut self, queues: &Bound<'_, PyAny>, places: &Bound<'_, PyAny>) -> PyResult<()> {
        let places = numbers(places, "places", u64::from_le_bytes)?;
        self.0.set_aside(&rows(queues)?, &places).map_err(refused)
    }

    fn aside<'py>(&self, queues: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let places = self.0.aside(&rows(queues)?).map_err(refused)?;
        let octets: Vec<u8> = places.into_iter().flat_map(u64::to_le_bytes).collect();
        Ok(PyBytes::new(queues.py(), &octets))
    }

    fn forget_aside(&mut self, queues: &Bound<'_, PyAny>) -> PyResult<()> {
        self.0.forget_aside(&rows(queues)?).map_err(refused)
    }

    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let statistics = PyDict::new(py);
        statistics.set_item("cards", self.0.len())?;
        statistics.set_item("bytes", self.0.bytes())?;
        statistics.set_item("queues", self.0.queues())?;
        let (queues, cards) = self.0.aside_counts();
        statistics.set_item("queues_aside", queues)?;
        statistics.set_item("cards_aside", cards)?;
        Ok(statistics)
    }
}
