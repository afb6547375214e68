//! The shell of a look at many hosts.

use outrider_kernels::turns::{self, settle, settle_shared, Columns, HOST_BYTES};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::backlog::{refused, Backlog};
use crate::columns::{bytes_of, number, rows};
use crate::groups::Groups;
use crate::octets::Octets;
use crate::ready::Ready;
use crate::timetable::Timetable;

/// See `outrider.kernels.turns.settle_turns`.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
pub fn settle_turns<'py>(
    hosts: &Bound<'py, PyAny>,
    now: &Bound<'py, PyAny>,
    odd_flags: u16,
    cells: &Bound<'py, PyAny>,
    crawl: &Bound<'py, PyAny>,
    backlog: PyRef<'py, Backlog>,
    mut ready: PyRefMut<'py, Ready>,
    mut timetable: PyRefMut<'py, Timetable>,
) -> PyResult<Bound<'py, PyBytes>> {
    let mut named = rows(hosts, "hosts")?;
    let now = number::<i64>(now, "i64", "now")?;
    let cells = Octets::of_items(cells, HOST_BYTES, "cells")?;
    let crawl = Octets::of_items(crawl, 4, "crawl")?;
    let columns = Columns { cells: cells.as_slice(), crawl: crawl.as_slice() };
    let odd = settle(
        &mut named,
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

/// See `outrider.kernels.turns.settle_shared_turns`.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
pub fn settle_shared_turns<'py>(
    hosts: &Bound<'py, PyAny>,
    now: &Bound<'py, PyAny>,
    odd_flags: u16,
    cells: &Bound<'py, PyAny>,
    crawl: &Bound<'py, PyAny>,
    located: &Bound<'py, PyAny>,
    backlog: PyRef<'py, Backlog>,
    mut groups: PyRefMut<'py, Groups>,
    mut ready: PyRefMut<'py, Ready>,
    mut timetable: PyRefMut<'py, Timetable>,
) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
    let py = hosts.py();
    let named = rows(hosts, "hosts")?;
    let now = number::<i64>(now, "i64", "now")?;
    let cells = Octets::of_items(cells, HOST_BYTES, "cells")?;
    let crawl = Octets::of_items(crawl, 4, "crawl")?;
    let located = Octets::of_items(located, 8, "located")?;
    let columns = Columns { cells: cells.as_slice(), crawl: crawl.as_slice() };
    let settled = settle_shared(
        &named,
        now,
        odd_flags,
        &columns,
        located.as_slice(),
        &backlog.0,
        &mut groups.kernel,
        &mut ready.kernel,
        &mut timetable.kernel,
    )
    .map_err(refused)?;
    let packed = |hosts: Vec<u32>| bytes_of(py, hosts.into_iter().map(u32::to_le_bytes));
    Ok((packed(settled.odd), packed(settled.displaced), packed(settled.seeking)))
}

/// See `outrider.kernels.turns.count_leases`.
#[pyfunction]
pub fn count_leases<'py>(
    queues: &Bound<'py, PyAny>,
    opened: bool,
    hosts: &Bound<'py, PyAny>,
    cells: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyBytes>> {
    let py = queues.py();
    let named = rows(queues, "queues")?;
    let hosts = Octets::of_items(hosts, 4, "hosts")?;
    let cells = Octets::of(cells)?;
    let cells = cells.as_cells("cells")?;
    let changed = turns::count_leases(&named, opened, hosts.as_slice(), cells).map_err(refused)?;
    Ok(bytes_of(py, changed.into_iter().map(u32::to_le_bytes)))
}
