//! The shell of a look at many hosts.

use outrider_kernels::turns::{settle, Columns};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::backlog::{refused, Backlog};
use crate::columns::{bytes_of, number, rows};
use crate::octets::Octets;
use crate::ready::Ready;
use crate::timetable::Timetable;

type FiveColumns<'py> =
    (Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyAny>);

/// See `outrider.kernels.turns.settle_turns`.
#[pyfunction]
pub fn settle_turns<'py>(
    hosts: &Bound<'py, PyAny>,
    now: &Bound<'py, PyAny>,
    odd_flags: u8,
    columns: FiveColumns<'py>,
    backlog: PyRef<'py, Backlog>,
    mut ready: PyRefMut<'py, Ready>,
    mut timetable: PyRefMut<'py, Timetable>,
) -> PyResult<Bound<'py, PyBytes>> {
    let named = rows(hosts, "hosts")?;
    let now = number::<i64>(now, "i64", "now")?;
    let (first_queue, flags, in_flight, rest_until, crawl) = &columns;
    let first_queue = Octets::of_items(first_queue, 4, "first_queue")?;
    let flags = Octets::of_items(flags, 1, "flags")?;
    let in_flight = Octets::of_items(in_flight, 2, "in_flight")?;
    let rest_until = Octets::of_items(rest_until, 8, "rest_until")?;
    let crawl = Octets::of_items(crawl, 4, "crawl")?;
    let columns = Columns {
        first_queue: first_queue.as_slice(),
        flags: flags.as_slice(),
        in_flight: in_flight.as_slice(),
        rest_until: rest_until.as_slice(),
        crawl: crawl.as_slice(),
    };
    let odd = settle(
        &named,
        now,
        odd_flags,
        &columns,
        &backlog.0,
        &mut ready.kernel,
        &mut timetable.kernel,
    )
    .map_err(refused)?;
    Ok(bytes_of(hosts.py(), odd.into_iter().map(u32::to_le_bytes)))
}
